"""Uninstalling with models present leaves no stuck object. Named to run last: Preheat is gone afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import kit
import pytest

from e2e.traffic import said, wait_gated
from e2e.world import EAGER, jobs_ever

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster

CLUSTER_SCOPED = (
    "mutatingadmissionpolicies", "mutatingadmissionpolicybindings", "validatingadmissionpolicies",
    "validatingadmissionpolicybindings", "clusterroles", "clusterrolebindings", "priorityclasses",
)  # fmt: skip


def test_uninstall_leaves_no_stuck_object(world: World, ready: kit.Kube, kube: kit.Kube) -> None:
    image = world.image("tiny")
    kit.scale(ready, "tiny", 1)
    before = kit.wait_ready_pod(ready, "tiny")
    # One model is ready, and the Job of another is running, with a pod that waits for it, when everything goes.
    kube.apply(kit.compiled_model("tiny", keepIf={"minSpeedup": "0"}, rollout={"whenMissing": "Wait"}))
    kube.wait_for(
        "the index",
        lambda: "Wait" in (kube.get("compiledmodelindex", "preheat") or {}).get("models", ""),
        timeout=300,
    )
    kube.apply(kit.deployment("tiny", image, label="tiny", env=EAGER))
    waiting = wait_gated(kube, "tiny", image)
    kube.wait_for(
        "a running compile pod",
        lambda: [
            p for p in kube.list("pods", "preheat.dev/compiledmodel") if p["status"]["phase"] in ("Pending", "Running")
        ],
        timeout=300,
    )
    world.uninstall()
    try:
        for each in (ready, kube):
            gone = each.wait_for(
                "no compile pods",
                lambda each=each: not each.list("pods", "preheat.dev/compiledmodel"),
                timeout=300,
            )
            assert gone
            assert not each.list("jobs")
        after = kit.wait_ready_pod(ready, "tiny")
        assert after["metadata"]["uid"] == before["metadata"]["uid"], "running pods go on"
        released = kit.wait_ready_pod(kube, "tiny")
        assert released["metadata"]["uid"] == waiting["metadata"]["uid"]
        assert "uninstalled" in said(released, "injected")
        kube.apply(kit.deployment("tiny", image, name="later", label="tiny", env=EAGER))
        later = kit.wait_ready_pod(kube, "later")
        assert "initContainers" not in later["spec"]
        kinds = ",".join([*CLUSTER_SCOPED, "compiledmodelindices"])
        left = json.loads(kube.run("get", kinds, "--all-namespaces", "-o", "json"))["items"]
        assert not [f"{o['kind']} {o['metadata']['name']}" for o in left if "preheat" in o["metadata"]["name"]]
        # Models stay, and nothing holds them.
        kube.run("delete", "compiledmodel", "tiny", "--wait=true", timeout=300)
    finally:
        world.install()

    # Installed again, what was published serves, and nothing is compiled anew.
    jobs = jobs_ever(ready)
    kit.scale(ready, "tiny", 0)
    ready.wait_for(
        "the index",
        lambda: "|" in (ready.get("compiledmodelindex", "preheat") or {}).get("models", ""),
        timeout=300,
    )
    kit.scale(ready, "tiny", 1)
    assert kit.measure(ready, "tiny", kit.wait_ready_pod(ready, "tiny"), calls=5).outcome == "hot"
    assert jobs_ever(ready) == jobs
    kit.scale(ready, "tiny", 0)
