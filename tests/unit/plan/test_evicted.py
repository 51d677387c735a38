"""A compile pod that has to make room half-way: the Job goes on with another one, and it costs no attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit.plan.simulation import Simulation, digest

KEPT = "main|one|Kept|Faster|1.7500|0.1200|1900000"
HALF_WAY = json.dumps({"v": 1, "running": "main/one", "done": []})
EVICTED = "The node was low on resource: ephemeral-storage."


def evict(world: Simulation, *, ends: dict[str, int], deleted: bool) -> dict[str, Any]:
    """Evict the only compile pod; `ends` are exit codes of its containers, `deleted` is how a drained node does it."""
    (pod,) = world.pods.values()
    pod["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": EVICTED,
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
        "initContainerStatuses": [
            {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error", "message": HALF_WAY}}}
            for name, code in ends.items()
        ],
    }
    if deleted:
        pod["metadata"]["deletionTimestamp"] = world.now.isoformat()
    return pod


def replace_pod(world: Simulation, former: dict[str, Any]) -> None:
    """As the Job controller does, which takes an evicted pod for no failure."""
    name = f"{former['metadata']['name']}-again"
    status = {"phase": "Running", "containerStatuses": [{"name": "toolkit", "state": {"running": {}}}]}
    metadata = {**former["metadata"], "name": name, "uid": name, "finalizers": ["preheat.dev/result"]}
    metadata.pop("deletionTimestamp", None)
    world.pods[name] = {"metadata": metadata, "status": status}


@pytest.mark.parametrize("deleted", [True, False], ids=["drained", "the node ran short"])
@pytest.mark.parametrize("code", [143, 137], ids=["told to stop", "killed"])
def test_the_job_goes_on_with_another_pod(code: int, deleted: bool) -> None:
    world = Simulation()
    world.settle()
    evicted = evict(world, ends={"compile": code}, deleted=deleted)
    world.settle()
    assert world.condition("Progressing") == ("True", "Compiling")
    assert world.condition("Degraded") == ("False", "AsExpected")
    # One that is going must not wait for the Job's end: its node may have to be empty.
    assert (evicted["metadata"]["finalizers"] == []) == deleted
    replace_pod(world, evicted)
    world.settle()
    assert len(world.made) == 1, "no other attempt, and no other Job"
    world.publish(world.open_jobs()[0], digest("a"), KEPT)
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert evicted["metadata"]["finalizers"] == []


def test_a_job_that_ends_with_its_evicted_pod_is_tried_again_with_every_target_and_not_for_ever() -> None:
    world = Simulation()
    for _ in range(20):
        world.settle()
        if not world.open_jobs():
            break
        (job,) = world.open_jobs()
        environment = {e["name"]: e.get("value") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
        assert json.loads(environment["PREHEAT_REQUEST"])["targets"] == [{"bucket": "one", "module": "main"}]
        world.end(job, ok=False, ends={}, reason="BackoffLimitExceeded")
        for pod in world.pods.values():
            pod["status"] |= {"reason": "Evicted", "message": EVICTED}
        world.settle()
        world.wait(3600)
    assert 2 <= len(world.made) <= 6
    (target,) = world.status["targets"]
    assert (target["verdict"], target["reason"]) == ("Failed", "Killed")
    assert EVICTED in target["message"]
