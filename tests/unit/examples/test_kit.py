"""What the demo and the end-to-end tests take for the pods of an app."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kit


@dataclass(frozen=True, kw_only=True)
class Cluster(kit.Kube):
    """One whose pods are these."""

    pods: tuple[dict[str, Any], ...]

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        assert (kind, selector) == ("pods", "app=tiny")
        return [*self.pods]


def pod(name: str, phase: str | None, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "status": {} if phase is None else {"phase": phase}}


def test_a_pod_that_the_kubelet_turned_away_is_none_of_an_apps() -> None:
    # Its workload made another one, and nobody takes this one away.
    away = pod("away", "Failed")
    away["status"]["reason"] = "OutOfexample.com/gpu"
    going = pod("going", "Running", deletionTimestamp="2026-01-01T00:00:00Z")
    there = (pod("serves", "Running"), pod("waits", "Pending"), pod("new", None))
    kube = Cluster(kubeconfig="", namespace="", pods=(away, there[0], going, pod("done", "Succeeded"), *there[1:]))
    assert [each["metadata"]["name"] for each in kit.running_pods(kube, "tiny")] == ["serves", "waits", "new"]
