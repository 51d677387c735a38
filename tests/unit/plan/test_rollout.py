"""What spec.rollout comes to: whether pods wait, what a person should know, when a workload is restarted."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from preheat_operator.api.spec import CompiledModelSpec
from preheat_operator.plan.rollout import notes, restarted, surges, when_missing
from unit.plan.simulation import START, Simulation, deployment, digest, spec

KEPT = "main|one|Kept|Faster|1.75|0.12|1900000"


def rolling(surge: Any = "25%", kind: str = "RollingUpdate", **more: Any) -> dict[str, Any]:
    strategy = {"type": kind} | ({} if surge is None else {"rollingUpdate": {"maxSurge": surge}})
    body = deployment("registry/vision:1")
    return {"spec": body["spec"] | {"strategy": strategy} | more}


@pytest.mark.parametrize(
    ("workload", "answer"),
    [
        (None, False), ({"spec": {}}, True), (rolling(1), True), (rolling("25%"), True), (rolling("1%"), True),
        (rolling(0), False), (rolling("0"), False), (rolling("0%"), False), (rolling(None), True),
        (rolling(None, kind="Recreate"), False), (rolling(1, kind="Recreate"), False),
    ],
)  # fmt: skip
def test_a_deployment_that_makes_new_pods_first(workload: dict[str, Any] | None, answer: bool) -> None:
    assert surges(workload) is answer


def asked(when: str = "Auto", *, kind: str = "Deployment", seconds: int = 480, **more: Any) -> CompiledModelSpec:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "vision"}
    rollout = {"whenMissing": when, "waitTimeoutSeconds": seconds}
    return CompiledModelSpec.model_validate(spec(workloadRef=reference, rollout=rollout, **more))


@pytest.mark.parametrize("when", ["Auto", "Cold", "Wait", "Fail"])
@pytest.mark.parametrize("had_ready", [False, True])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.parametrize("surge", [0, 1])
@pytest.mark.parametrize("suspend", ["Disabled", "Enabled"])
@pytest.mark.parametrize("gating", [False, True])
def test_what_pods_do(when: str, had_ready: bool, kind: str, surge: int, suspend: str, gating: bool) -> None:
    answer = when_missing(
        spec=asked(when, kind=kind, suspend=suspend), workload=rolling(surge), had_ready=had_ready, gating=gating
    )
    if when in ("Cold", "Fail"):
        assert answer == when
    elif suspend == "Enabled" or not gating:
        assert answer == "Cold"
    elif when == "Wait":
        assert answer == "Wait"
    else:
        assert answer == ("Wait" if had_ready and kind == "Deployment" and surge else "Cold")


def test_a_template_written_out_is_no_deployment() -> None:
    body = spec(template=deployment("v:1")["spec"]["template"])
    del body["workloadRef"]
    alone = CompiledModelSpec.model_validate(body)
    assert when_missing(spec=alone, workload=None, had_ready=True, gating=True) == "Cold"


@pytest.mark.parametrize(
    ("spec_", "workload", "reasons"),
    [
        (asked(), rolling(), []),
        (asked(seconds=481), rolling(), ["WaitTooLong"]),
        (asked("Wait", seconds=481), rolling(0), ["WaitTooLong"]),
        (asked("Cold", seconds=481), rolling(), []),
        (asked("Fail", seconds=481), rolling(), []),
        (asked(seconds=481), rolling(0), []),
        (asked(seconds=481), None, []),
        (asked(seconds=800), rolling(progressDeadlineSeconds=1000), []),
        (asked(seconds=801), rolling(progressDeadlineSeconds=1000), ["WaitTooLong"]),
        (asked(seconds=86400), rolling(progressDeadlineSeconds=2**31 - 1), []),
        (asked("Wait", kind="StatefulSet", seconds=9999), rolling(), []),
    ],
)
def test_a_wait_beyond_the_progress_deadline_is_warned_of(
    spec_: CompiledModelSpec, workload: dict[str, Any] | None, reasons: list[str]
) -> None:
    assert [n.reason for n in notes(spec=spec_, workload=workload, gating=True)] == reasons


def test_a_wait_that_this_installation_cannot_give_is_told() -> None:
    (note,) = notes(spec=asked("Wait"), workload=rolling(), gating=False)
    assert note.reason == "WaitUnavailable"
    assert "server.enabled" in note.message
    assert notes(spec=asked("Auto", seconds=9999), workload=rolling(), gating=False) == ()


def ready(simulation: Simulation, letter: str) -> None:
    simulation.settle()
    (job,) = simulation.open_jobs()
    simulation.publish(job, digest(letter), KEPT)
    simulation.settle()


def test_status_says_what_pods_do_and_the_warning_is_a_condition() -> None:
    simulation = Simulation(body=spec(rollout={"waitTimeoutSeconds": 481}))
    simulation.settle()
    assert simulation.status["whenMissing"] == "Cold", "nothing was ever ready"
    assert simulation.condition("Degraded") == ("True", "WaitTooLong")
    ready(simulation, "a")
    assert simulation.status["whenMissing"] == "Wait"
    assert simulation.condition("Ready") == ("True", "RevisionReady")
    simulation.body = spec(suspend="Enabled")
    simulation.settle()
    assert simulation.status["whenMissing"] == "Cold"
    assert simulation.condition("Degraded") == ("False", "AsExpected")


def test_pods_of_the_next_image_wait_also_where_only_one_revision_is_kept() -> None:
    simulation = Simulation(body=spec(revisionHistoryLimit=1))
    ready(simulation, "a")
    simulation.workload = deployment("registry/vision:2")
    simulation.settle()
    assert simulation.status["whenMissing"] == "Wait"
    assert [(r["image"][-1], r["state"]) for r in simulation.status["revisions"]] == [
        ("2", "Compiling"),
        ("1", "Ready"),
    ]
    simulation.publish(simulation.open_jobs()[0], digest("b"), KEPT)
    simulation.settle()
    assert [r["image"][-1] for r in simulation.status["revisions"]] == ["2"]


RESTART = {"rollout": {"restart": "Rollout"}}


def restarts(simulation: Simulation) -> list[str | None]:
    return [(r.get("restart") or {}).get("state") for r in simulation.status["revisions"]]


def at(simulation: Simulation) -> str:
    since: str = simulation.status["revisions"][0]["restart"]["since"]
    return since


def restart(simulation: Simulation, since: str) -> None:
    """What the controller, or kubectl, does to the workload."""
    assert simulation.workload is not None
    simulation.workload["spec"]["template"]["metadata"] = {"annotations": {"kubectl.kubernetes.io/restartedAt": since}}


def test_a_workload_is_restarted_once_for_a_change_that_it_does_not_see() -> None:
    simulation = Simulation(body=spec(**RESTART))
    ready(simulation, "a")
    assert restarts(simulation) == [None], "its pods were started before there was anything"
    simulation.body = spec(buckets=("one", "two"), **RESTART)
    simulation.settle()
    assert restarts(simulation) == [None, None], "not before it is ready"
    simulation.wait(60)
    simulation.publish(simulation.open_jobs()[0], digest("b"), KEPT, "main|two|Kept|Faster|1.75|0.12|1900000")
    simulation.settle()
    assert restarts(simulation) == ["Pending", None]
    simulation.wait(5)
    since = at(simulation)
    simulation.settle()
    assert (at(simulation), restarts(simulation)) == (since, ["Pending", None]), "planned once"
    restart(simulation, since)
    simulation.settle()
    assert restarts(simulation) == ["Done", None]
    restart(simulation, "")
    simulation.settle()
    assert restarts(simulation) == ["Done", None], "taken away again by whoever owns the workload: not our business"


def test_a_person_s_own_restart_counts() -> None:
    simulation = Simulation(body=spec(**RESTART))
    ready(simulation, "a")
    simulation.body = spec(keepIf={"minSpeedup": "0"}, **RESTART)
    ready(simulation, "b")
    restart(simulation, (START + timedelta(hours=1)).isoformat())
    simulation.settle()
    assert restarts(simulation) == ["Done", None]


def test_no_restart_where_the_workload_changed_itself_or_nobody_asked_or_nothing_is_new() -> None:
    by_image = Simulation(body=spec(**RESTART))
    ready(by_image, "a")
    by_image.workload = deployment("registry/vision:2")
    ready(by_image, "b")
    assert restarts(by_image) == [None, None]

    never = Simulation()
    ready(never, "a")
    never.body = spec(keepIf={"minSpeedup": "0"})
    ready(never, "b")
    assert restarts(never) == [None, None]
    never.body = spec(keepIf={"minSpeedup": "0"}, **RESTART)
    never.settle()
    assert restarts(never) == [None, None], "asked for later is not asked for then"

    same = Simulation(body=spec(**RESTART))
    ready(same, "a")
    same.body = spec(keepIf={"minSpeedup": "0"}, **RESTART)
    ready(same, "a")
    assert restarts(same) == [None, None], "the same artifacts"


def test_going_back_to_what_was_is_a_change_too_unless_it_was_never_left() -> None:
    simulation = Simulation(body=spec(**RESTART))
    ready(simulation, "a")
    simulation.body = spec(keepIf={"minSpeedup": "0"}, **RESTART)
    simulation.settle()
    simulation.body = spec(**RESTART)
    simulation.settle()
    assert restarts(simulation) == [None], "the other was not ready yet: pods have this one"
    simulation.body = spec(keepIf={"minSpeedup": "0"}, **RESTART)
    ready(simulation, "b")
    restart(simulation, at(simulation))
    simulation.settle()
    simulation.wait(60)
    simulation.body = spec(**RESTART)
    simulation.settle()
    assert restarts(simulation) == ["Pending", "Done"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (None, False), ("", False), ("yesterday", False), ("2025-12-31T23:59:59Z", False), ("2026-01-01T00:00:00Z", True),
        ("2026-01-01T01:00:00+01:00", True), ("2026-01-01T00:30:00+01:00", False),
    ],
)  # fmt: skip
def test_restarted_since(text: str | None, answer: bool) -> None:
    workload: dict[str, Any] = {"spec": {"template": {}}}
    if text is not None:
        workload["spec"]["template"]["metadata"] = {"annotations": {"kubectl.kubernetes.io/restartedAt": text}}
    assert restarted(workload, since=START) is answer
    assert not restarted(None, since=START)


def test_a_profile_without_capacity_ends_the_wait_in_its_own_time() -> None:
    """Compile Jobs wait for a node at most scheduleTimeoutSeconds; then the revision is over, and nobody waits for it."""
    simulation = Simulation(body=spec(compile={"scheduleTimeoutSeconds": 60}))
    ready(simulation, "a")
    simulation.workload = deployment("registry/vision:2")
    simulation.settle()
    for pod in simulation.pods.values():
        if pod["status"]["phase"] != "Succeeded":
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
            pod["status"] = {"phase": "Pending", "conditions": [condition]}
    waiting = simulation.settle()
    assert waiting.look_again_seconds == 60
    assert simulation.status["revisions"][0]["state"] == "Compiling"
    simulation.wait(60)
    simulation.settle()
    assert simulation.status["revisions"][0]["state"] == "Failed"
    assert simulation.status["targets"][0]["verdict"] == "NoCapacity"
    assert not simulation.open_jobs(), "what waits for a node does not stand in the way of the pods"
