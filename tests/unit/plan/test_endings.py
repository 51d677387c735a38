"""How a compile Job that does not just succeed ends, and what is made of it, in a simulated cluster."""

from __future__ import annotations

import json

import pytest

from unit.plan.simulation import FAILED, KEPT, REJECTED, Simulation, complaint, digest, spec


@pytest.mark.parametrize(
    ("container", "code", "reason", "message", "verdict", "condition"),
    [
        ("compile", 65, "Error", complaint("TorchUnsupported"), "TorchUnsupported", "AllTargetsFailed"),
        ("compile", 65, "Error", "", "TorchMissing", "AllTargetsFailed"),
        ("compile", 64, "Error", complaint("Internal"), "Internal", "Internal"),
        ("compile", 66, "Error", "\x00\xff", "Internal", "Internal"),
        ("compile", 128, "StartError", "", "TorchMissing", "AllTargetsFailed"),
        ("publish", 66, "Error", complaint("Internal"), "Internal", "Internal"),
        ("toolkit", 64, "Error", "", "Internal", "Internal"),
    ],
)
def test_endings_that_another_attempt_would_repeat(
    container: str, code: int, reason: str, message: str, verdict: str, condition: str
) -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={container: (code, reason, message)}, reason="PodFailurePolicy")
    world.settle()
    assert world.status["targets"][0]["reason"] == verdict
    assert world.status["revisions"][0]["state"] == "Failed"
    assert world.condition("Ready") == ("False", condition)
    world.wait(100_000)
    world.settle()
    assert len(world.made) == 1, "nothing is tried again"
    assert world.condition("Ready") == ("False", condition), "the reason outlives the pass"


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        (KEPT, ("True", "RevisionReady")),
        (REJECTED, ("True", "NothingKept")),
        (FAILED, ("False", "AllTargetsFailed")),
    ],
)
def test_a_published_verdict_is_final(line: str, condition: tuple[str, str]) -> None:
    world = Simulation()
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), line)
    world.settle()
    (target,) = world.status["targets"]
    for _ in range(2):
        assert f"main|one|{target['verdict']}|{target['reason']}" in line
        assert world.condition("Ready") == condition
        world.wait(100_000)
        world.jobs.clear()  # their time to live is over
        world.pods.clear()
        world.settle()
    assert len(world.made) == 1, "nothing is compiled again"


@pytest.mark.parametrize(
    ("reason", "code", "verdict"),
    [
        ("StoreUnreachable", 1, "StoreUnavailable"),
        ("StoreDenied", 70, "StoreUnavailable"),
        ("StoreCredentialsMissing", 70, "StoreUnavailable"),
    ],
)
def test_the_store_is_tried_again_later_and_later_and_then_no_more(reason: str, code: int, verdict: str) -> None:
    world = Simulation()
    world.settle()
    waits = []
    for _ in range(20):
        if not world.open_jobs():
            break
        world.end(world.open_jobs()[0], ok=False, ends={"publish": (code, "Error", complaint(reason))})
        plan = world.settle()
        assert world.condition("Degraded") == ("True", reason)
        if plan.look_again_seconds is None:
            break
        assert not world.open_jobs(), "not before the wait is over"
        assert world.condition("Progressing") == ("True", "Retrying")
        waits.append(plan.look_again_seconds)
        world.wait(plan.look_again_seconds)
        world.settle()
    assert waits == sorted(waits)
    assert 3 <= len(waits) <= 10
    assert world.status["targets"][0]["reason"] == verdict
    assert world.status["revisions"][0]["state"] == "Failed"


@pytest.mark.parametrize(
    ("container", "code", "message", "says"),
    [
        ("publish", 1, complaint("StoreUnreachable"), ("True", "StoreUnreachable")),
        ("compile", 137, "", ("False", "AsExpected")),
    ],
)
def test_what_a_person_must_repair_is_told_while_the_job_tries_again_by_itself(
    container: str, code: int, message: str, says: tuple[str, str]
) -> None:
    world = Simulation()
    world.settle()
    (job,) = world.open_jobs()
    (pod,) = world.pods.values()
    world.end(job, ok=False, ends={container: (code, "Error", message)})
    # The Job controller has not given up: it replaces the pod.
    job["status"]["conditions"] = []
    name = f"{pod['metadata']['name']}-again"
    world.pods[name] = {
        "metadata": {**pod["metadata"], "name": name, "uid": name, "creationTimestamp": "2031-01-01T00:00:00Z"},
        "status": {"phase": "Running", "containerStatuses": [{"name": "toolkit", "state": {"running": {}}}]},
    }
    world.settle()
    assert len(world.made) == 1
    assert world.condition("Degraded") == says
    assert world.condition("Progressing")[0] == "True"
    world.pods.pop(pod["metadata"]["name"])
    world.publish(job, digest("a"), KEPT)
    world.settle()
    assert world.condition("Ready")[0] == "True"
    assert world.condition("Degraded") == ("False", "AsExpected")


def test_a_kill_for_memory_leaves_out_the_target_that_was_running() -> None:
    world = Simulation(body=spec(buckets=("one", "two")))
    world.settle()
    message = json.dumps({"v": 1, "running": "main/two", "done": ["main/one"]})
    world.end(world.open_jobs()[0], ok=False, ends={"compile": (137, "OOMKilled", message)})
    world.settle()
    (job,) = world.open_jobs()
    environment = {e["name"]: e.get("value") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert json.loads(environment["PREHEAT_REQUEST"])["targets"] == [{"bucket": "one", "module": "main"}]
    assert environment["PREHEAT_RECOVER_JOB"] == world.made[0]["metadata"]["uid"]
    world.publish(job, digest("a"), KEPT)
    world.settle()
    verdicts = {t["bucket"]: (t["verdict"], t["reason"]) for t in world.status["targets"]}
    assert verdicts == {"one": ("Kept", "Faster"), "two": ("Failed", "OutOfMemory")}
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_kill_of_the_only_target_ends_it() -> None:
    world = Simulation()
    world.settle()
    message = json.dumps({"v": 1, "running": "main/one", "done": []})
    world.end(world.open_jobs()[0], ok=False, ends={"compile": (137, "OOMKilled", message)})
    world.settle()
    assert world.open_jobs() == []
    assert world.status["targets"][0]["reason"] == "OutOfMemory"


def test_a_lost_result_is_asked_for_and_in_the_end_given_up() -> None:
    world = Simulation()
    world.settle()
    for _ in range(10):
        if not world.open_jobs():
            break
        world.end(world.open_jobs()[0], ok=True, ends={}, pods=False)
        world.settle()
        world.wait(3600)
        world.settle()
    assert world.status["targets"][0]["reason"] == "ResultLost"
    assert world.condition("Ready") == ("False", "ResultLost")
    assert 2 <= len(world.made) <= 6


def test_a_deadline_is_a_timeout() -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={}, reason="DeadlineExceeded")
    world.settle()
    assert world.status["targets"][0]["reason"] == "Timeout"
