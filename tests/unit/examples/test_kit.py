"""What the demo and the end-to-end tests take for the pods of an app, and what they say when nothing goes on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import kit
import pytest


@dataclass(frozen=True, kw_only=True)
class Cluster(kit.Kube):
    """One whose pods are these."""

    pods: tuple[dict[str, Any], ...] = ()
    models: tuple[dict[str, Any], ...] = ()

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        assert selector in ("", "app=tiny")
        if kind == "jobs":
            raise RuntimeError("get job: 503 away")
        return [*{"pods": self.pods, "compiledmodels": self.models}[kind]]


def pod(name: str, phase: str | None, **metadata: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "server", "image": "registry.example/tiny"}]}
    status = {} if phase is None else {"phase": phase}
    return {"metadata": {"name": name, **metadata}, "spec": spec, "status": status}


def test_a_pod_that_the_kubelet_turned_away_is_none_of_an_apps() -> None:
    # Its workload made another one, and nobody takes this one away.
    away = pod("away", "Failed")
    away["status"]["reason"] = "OutOfexample.com/gpu"
    going = pod("going", "Running", deletionTimestamp="2026-01-01T00:00:00Z")
    there = (pod("serves", "Running"), pod("waits", "Pending"), pod("new", None))
    kube = Cluster(kubeconfig="", namespace="", pods=(away, there[0], going, pod("done", "Succeeded"), *there[1:]))
    assert [each["metadata"]["name"] for each in kit.running_pods(kube, "tiny")] == ["serves", "waits", "new"]


def test_a_wait_that_ends_says_what_there_was() -> None:
    gated = pod(
        "gated", "Pending", annotations={"preheat.dev/manifest": "pending", "other.example/token": "of another"}
    )
    gated["spec"]["schedulingGates"] = [{"name": "preheat.dev/artifact"}]
    gated["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "waits for a gate"}]
    away = pod("away", "Failed")
    away["status"] |= {"reason": "OutOfexample.com/gpu", "message": "too few"}
    condition = {"type": "Ready", "status": "False", "reason": "NoCapacity", "message": "no node"}
    revision = {"name": "tiny-1", "image": "i", "state": "Failed", "manifest": None, "cause": "Created"}
    model = {
        "metadata": {"name": "tiny", "generation": 3},
        "status": {"conditions": [condition], "revisions": [revision]},
    }
    kube = Cluster(kubeconfig="", namespace="", pods=(gated, away), models=(model,))
    with pytest.raises(kit.NotInTimeError) as told:
        kube.wait_for("two pods", list, timeout=0)
    first, *lines = str(told.value).splitlines()
    assert first == "two pods: not within 0 s (last seen: [])"
    there = dict(line.split(": ", 1) for line in lines)
    assert there.pop("jobs") == "RuntimeError: get job: 503 away"
    image = {"image": "registry.example/tiny"}
    assert {name: json.loads(words) for name, words in there.items()} == {
        "pods/gated": {
            "phase": "Pending", "gates": ["preheat.dev/artifact"], "not true": {"PodScheduled": "waits for a gate"},
            "says": {"preheat.dev/manifest": "pending"}, **image,
        },
        "pods/away": {"phase": "Failed", "reason": "OutOfexample.com/gpu", "message": "too few", **image},
        "compiledmodels/tiny": {"generation": 3, "Ready": "False NoCapacity: no node", "revisions": [revision]},
    }  # fmt: skip
