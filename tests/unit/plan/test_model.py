"""The course of a CompiledModel, pass by pass, in a simulated cluster."""

from __future__ import annotations

import copy

import pytest

from preheat_operator.plan.indexnotes import IndexNotes, Pause
from unit.plan.simulation import FAILED, KEPT, START, Simulation, deployment, digest, spec


def test_one_job_for_each_profile_and_ready_when_all_are_terminal() -> None:
    world = Simulation(body=spec(hardware=("cpu", "gpu")))
    world.settle()
    assert len(world.jobs) == 2
    first, second = world.open_jobs()
    world.publish(first, digest("a"), KEPT)
    world.settle()
    assert world.condition("Ready") == ("False", "Compiling")
    world.publish(second, digest("b"), KEPT)
    world.settle()
    (merge,) = world.open_jobs()
    assert world.condition("Progressing") == ("True", "Publishing")
    world.publish(merge, digest("c"))
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.status["revisions"][0]["manifest"] == digest("c")
    assert world.status["kept"] == "2/2"


def test_a_result_is_recorded_before_its_pod_may_go() -> None:
    world = Simulation()
    world.settle()
    (job,) = world.open_jobs()
    world.publish(job, digest("a"), KEPT)
    plan = world.pass_once()
    assert plan.status is not None
    assert plan.status.revisions[0].manifest == digest("a")
    assert [p.owner_uid for p in plan.release] == [job["metadata"]["uid"]]


def test_running_pods_keep_the_finalizer() -> None:
    world = Simulation()
    assert world.settle().release == ()


@pytest.mark.parametrize(
    ("line", "ready", "degraded"),
    [
        (KEPT, ("True", "RevisionReady"), ("False", "AsExpected")),
        ("main|one|Rejected|SpeedupBelowMinimum|0.9|0.1|5", ("True", "NothingKept"), ("False", "AsExpected")),
        (FAILED, ("False", "AllTargetsFailed"), ("True", "AllTargetsFailed")),
        ("nonsense", ("False", "AllTargetsFailed"), ("True", "AllTargetsFailed")),
    ],
)
def test_verdicts_become_conditions(line: str, ready: tuple[str, str], degraded: tuple[str, str]) -> None:
    world = Simulation()
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), line)
    world.settle()
    assert world.condition("Ready") == ready
    assert world.condition("Degraded") == degraded
    assert world.condition("Progressing") == ("False", "Complete")


def test_a_failed_target_says_what_to_do_where_people_look() -> None:
    world = Simulation(body=spec(buckets=("one", "two")))
    world.settle()
    words = {"main/one": "KeyError: 'x' (model.py:7).\nCheck torch.factory.", "main/two": "no such file", "other": 3}
    failures = ("main|one|Failed|FactoryFailed|||", "main|two|Failed|InputsRefused|||")
    world.publish(world.open_jobs()[0], digest("a"), *failures, words=words)
    world.settle()
    world.pass_once()
    assert [t["message"] for t in world.status["targets"]] == [
        "KeyError: 'x' (model.py:7). Check torch.factory.",
        "no such file",
    ]
    for kind in ("Ready", "Degraded"):
        (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == kind)
        assert "main/one on cpu: FactoryFailed: KeyError: 'x' (model.py:7). Check torch.factory." in message
        assert "the others are in status.targets" in message


@pytest.mark.parametrize("words", [[], "x", 7, {"main/one": {}}, {"main/one": "x" * 4000}])
def test_words_that_are_none_are_left_out_or_cut(words: object) -> None:
    world = Simulation()
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), FAILED, words=words)
    world.settle()
    (target,) = world.status["targets"]
    assert len(target.get("message") or "") <= 512


def test_one_failed_target_of_two_is_served_and_said() -> None:
    world = Simulation(body=spec(buckets=("one", "two")))
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), KEPT, "main|two|Failed|InputsRefused|||")
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.condition("Degraded") == ("True", "TargetsFailed")


def test_a_failed_revision_is_tried_again_when_its_job_would_be_another_one() -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={}, reason="DeadlineExceeded")
    world.settle()
    world.body = spec(compile={"timeoutSeconds": 7200})
    world.generation += 1
    world.settle()
    (job,) = world.open_jobs()
    assert job["metadata"]["labels"]["preheat.dev/attempt"] == "2"
    world.publish(job, digest("a"), KEPT)
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.status["observedGeneration"] == 2


def test_an_old_image_is_found_again_without_a_job() -> None:
    world = Simulation()
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), KEPT)
    world.settle()
    world.workload = deployment("registry/vision:2")
    world.settle()
    assert world.status["revisions"][0]["cause"] == "ImageChanged"
    world.publish(world.open_jobs()[0], digest("b"), KEPT)
    world.settle()
    world.workload = deployment("registry/vision:1")
    world.settle()
    assert len(world.made) == 2
    assert [r["image"] for r in world.status["revisions"]] == ["registry/vision:1", "registry/vision:2"]
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_superseded_spec_is_stopped_and_coming_back_starts_again() -> None:
    world = Simulation()
    world.settle()
    (first,) = world.open_jobs()
    world.body = spec(keepIf={"minSpeedup": "2"})
    world.settle()
    assert first["metadata"]["name"] not in world.jobs
    assert world.status["revisions"][0]["cause"] == "SpecChanged"
    world.body = spec()
    world.settle()
    assert [j["metadata"]["name"] for j in world.open_jobs()] == [first["metadata"]["name"]]
    assert len(world.status["revisions"]) == 1


def test_history_is_limited() -> None:
    world = Simulation(body=spec(revisionHistoryLimit=2))
    for number in range(4):
        world.workload = deployment(f"registry/vision:{number}")
        world.settle()
        world.publish(world.open_jobs()[0], digest(str(number)), KEPT)
        world.settle()
    assert [r["image"] for r in world.status["revisions"]] == ["registry/vision:3", "registry/vision:2"]


def test_taken_names_are_avoided_and_said_while_it_matters() -> None:
    world = Simulation()
    world.settle()
    name = next(iter(world.jobs))
    world = Simulation(taken=frozenset({name}))
    world.settle()
    (job,) = world.open_jobs()
    assert job["metadata"]["labels"]["preheat.dev/attempt"] == "2"
    assert world.condition("Degraded") == ("True", "JobConflict")
    world.taken = frozenset()
    world.settle()
    assert world.condition("Degraded") == ("True", "JobConflict"), "also when only the status remembers it"
    world.publish(job, digest("a"), KEPT)
    world.settle()
    assert world.condition("Degraded") == ("False", "AsExpected")


@pytest.mark.parametrize("change", ["owner", "key"])
def test_a_job_that_only_looks_like_ours_is_neither_read_nor_deleted(change: str) -> None:
    world = Simulation()
    world.settle()
    (job,) = world.open_jobs()
    if change == "owner":
        job["metadata"]["ownerReferences"][0]["uid"] = "somebody"
    else:
        job["metadata"]["annotations"]["preheat.dev/target-key"] = "0" * 64
    world.publish(job, digest("e"), KEPT)
    world.settle()
    assert job["metadata"]["name"] in world.jobs
    assert world.status["revisions"][0].get("manifest") is None
    assert world.condition("Degraded") == ("True", "JobConflict")
    assert [j["metadata"]["labels"]["preheat.dev/attempt"] for j in world.open_jobs()] == ["2"]


def test_a_refusal_is_said_and_tried_again_after_a_while() -> None:
    world = Simulation()
    world.settle()
    name = next(iter(world.jobs))
    world = Simulation(refused={name: "no such volume"})
    plan = world.settle()
    assert world.jobs == {}
    assert plan.look_again_seconds == 120
    for kind in ("Ready", "Progressing"):
        assert world.condition(kind) == ("False", "TemplateRefused")
    world.refused = {}
    world.settle()
    assert len(world.jobs) == 1
    assert world.condition("Degraded") == ("False", "AsExpected")


def test_a_pause_is_said_by_ready_models() -> None:
    world = Simulation()
    world.settle()
    world.publish(world.open_jobs()[0], digest("a"), KEPT)
    world.settle()
    world.notes = IndexNotes(pause=Pause(image="i", since=START, why="pod x cannot start"))
    world.settle()
    assert world.condition("Ready") == ("False", "InjectionPaused")
    assert world.condition("Degraded") == ("True", "InjectionPaused")
    world.notes = IndexNotes()
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_suspended_models_are_checked_and_not_started() -> None:
    world = Simulation(body=spec(suspend="Enabled"))
    plan = world.settle()
    assert plan.create == ()
    assert len(plan.check) == 1
    assert world.condition("Progressing") == ("False", "Suspended")


def test_a_job_whose_deletion_was_not_ours_is_made_again_and_knows_the_former() -> None:
    world = Simulation()
    world.settle()
    (job,) = world.open_jobs()
    world.publish(job, digest("a"), KEPT)
    world.jobs.clear()
    world.settle()
    (again,) = world.open_jobs()
    environment = {e["name"]: e.get("value") for e in again["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["PREHEAT_RECOVER_JOB"] == job["metadata"]["uid"]


@pytest.mark.parametrize("state", ["ready", "suspended", "no workload", "compiling"])
@pytest.mark.parametrize("going", [True, False])
def test_pods_of_an_earlier_model_of_this_name_are_let_go_once_they_are_going(state: str, going: bool) -> None:
    world = Simulation()
    world.settle()
    (job,) = world.open_jobs()
    left = copy.deepcopy(world.pods[next(iter(world.pods))])
    left["metadata"] |= {"name": "left", "uid": "left"}
    left["metadata"]["labels"]["preheat.dev/compiledmodel-uid"] = "an earlier one"
    left["metadata"]["ownerReferences"][0]["uid"] = "a Job that is gone"
    if going:
        left["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state == "ready":
        world.publish(job, digest("a"), KEPT)
    elif state == "suspended":
        world.body["suspend"] = "Enabled"
    elif state == "no workload":
        world.workload = None
    world.settle()
    world.pods["left"] = left
    assert [pod.name for pod in world.pass_once().release if pod.name == "left"] == ["left"] * going
