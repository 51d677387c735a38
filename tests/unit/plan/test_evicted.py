"""A compile pod that has to make room half-way: the Job goes on with another one, and it costs no attempt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit.plan.simulation import KEPT, Simulation, digest, spec

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


def asked(job: dict[str, Any]) -> Any:
    """The targets that a Job is to compile."""
    environment = {e["name"]: e.get("value") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    return json.loads(environment["PREHEAT_REQUEST"])["targets"]


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
        assert asked(job) == [{"bucket": "one", "module": "main"}]
        world.end(job, ok=False, ends={}, reason="BackoffLimitExceeded")
        for pod in world.pods.values():
            pod["status"] |= {"reason": "Evicted", "message": EVICTED}
        world.settle()
        world.wait(3600)
    assert 2 <= len(world.made) <= 6
    (target,) = world.status["targets"]
    assert (target["verdict"], target["reason"]) == ("Failed", "Killed")
    assert EVICTED in target["message"]


def over_its_limit(world: Simulation, message: str, running: str | None) -> None:
    """The only open Job fails with a pod that the kubelet evicted for its own use of disk: there is no condition then."""
    (job,) = world.open_jobs()
    said = json.dumps({"v": 1, "done": [], **({"running": running} if running else {})})
    world.end(job, ok=False, ends={"compile": (137, "Error", said)}, reason="PodFailurePolicy")
    for pod in world.pods.values():
        if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]:
            pod["status"] |= {"reason": "Evicted", "message": message}


@pytest.mark.parametrize(
    "message",
    [
        "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. ",
        'Container compile exceeded its local ephemeral storage limit "64Mi". ',
        'Usage of EmptyDir volume "scratch" exceeds the limit "64Mi". ',
    ],
)
def test_a_target_that_uses_more_disk_than_the_pod_may_is_left_out_and_says_which_limit(message: str) -> None:
    world = Simulation(body=spec(buckets=("one", "two")))
    world.settle()
    over_its_limit(world, message, "main/one")
    world.settle()
    (job,) = world.open_jobs()
    assert asked(job) == [{"bucket": "two", "module": "main"}]
    world.publish(job, digest("a"), KEPT.replace("main|one", "main|two"))
    world.settle()
    found = {t["bucket"]: t for t in world.status["targets"]}
    assert (found["one"]["verdict"], found["one"]["reason"]) == ("Failed", "DiskFull")
    assert message.strip() in found["one"]["message"]
    assert "ephemeral-storage in spec.hardware[].resources" in found["one"]["message"]
    assert found["two"]["verdict"] == "Kept"


def test_a_pod_that_uses_too_much_disk_before_any_target_is_not_made_again() -> None:
    world = Simulation()
    world.settle()
    over_its_limit(world, "Pod ephemeral local storage usage exceeds the total limit of containers 64Mi. ", None)
    world.settle()
    world.wait(3600)
    world.settle()
    assert len(world.made) == 1
    (target,) = world.status["targets"]
    assert (target["verdict"], target["reason"]) == ("Failed", "DiskFull")
    assert world.condition("Degraded") == ("True", "AllTargetsFailed")
