"""What follows when a revision is taken back: what pods get, what status and conditions say, and that it ends with another one."""

from __future__ import annotations

from typing import Any

from preheat_operator.plan.index import index_text
from unit.plan.pods import HOT, WRONG, ended, pod
from unit.plan.simulation import Simulation, deployment, digest, spec
from unit.plan.test_notices import miss

KEPT = "main|one|Kept|Faster|1.7|0.1|1"
FIRST, SECOND = digest("a"), digest("b")


def with_revisions(*manifests: str) -> Simulation:
    """A model whose revisions were ready one after the other, all of one image."""
    world = Simulation()
    for number, manifest in enumerate(manifests):
        world.generation += 1
        world.body = spec(keepIf={"minSpeedup": str(number)})
        world.settle()
        world.publish(world.open_jobs()[0], manifest, KEPT)
        world.settle()
    return world


def index(world: Simulation) -> list[str]:
    """What pods get: the manifest of each image that has one."""
    lines = index_text(models=[world.model], paused=False).models.split()
    return [line for line in lines if "=sha256:" in line]


def degraded(world: Simulation) -> dict[str, Any]:
    return next(c for c in world.status["conditions"] if c["type"] == "Degraded")


def test_pods_get_the_one_before_it() -> None:
    world = with_revisions(FIRST, SECOND)
    assert index(world) == [f"vision|registry/vision:1={SECOND}"]
    world.wait(100)
    world.served = [pod(f"w{n}", served=WRONG, manifest=SECOND) for n in range(2)]
    plan = world.pass_once()
    assert [(a.warning, a.reason) for a in plan.announcements] == [(True, "RevisionTakenBack")]
    assert index(world) == [f"vision|registry/vision:1={FIRST}"]
    assert world.condition("Ready") == ("False", "RevisionTakenBack")
    assert world.condition("Progressing") == ("False", "Complete")
    assert world.condition("Degraded") == ("True", "RevisionTakenBack")
    newest, before = world.status["revisions"]
    assert (newest["state"], before["state"]) == ("TakenBack", "Ready")
    assert newest["takenBack"] == {
        "at": "2026-01-01T00:01:40Z",
        "pods": 2,
        "wrong": 2,
        "crashed": 0,
        "targets": ["main/one/cpu"],
    }
    message = degraded(world)["message"]
    assert "2 of 2 pods reported wrong answers (main/one/cpu)" in message
    assert f"new pods of the image get revision {before['name']}, the one before it" in message
    # Pods of the one before are well; those of the other go. Nothing comes back.
    world.served = [pod(f"h{n}", served=HOT, manifest=FIRST) for n in range(2)]
    for _ in range(3):
        world.wait(100_000)
        assert world.settle().create == ()
        assert world.status["revisions"][0]["state"] == "TakenBack"
    assert index(world) == [f"vision|registry/vision:1={FIRST}"]
    assert len(world.made) == 2, "and nothing is compiled again by itself"


def test_or_nothing_when_there_is_none() -> None:
    world = with_revisions(FIRST)
    world.served = [pod(f"c{n}", last=ended(139)) for n in range(3)]
    world.settle()
    assert index(world) == []
    assert (
        "3 of 3 pods crashed; new pods of the image get nothing: they compile for themselves"
        in degraded(world)["message"]
    )


def test_another_spec_replaces_it_and_going_back_does_not_bring_it_back() -> None:
    world = with_revisions(FIRST)
    body = world.body
    world.served = [pod(f"w{n}", served=WRONG) for n in range(2)]
    world.settle()
    world.generation += 1
    world.body = spec(keepIf={"minSpeedup": "2"})
    world.settle()
    assert world.condition("Ready") == ("False", "Compiling")
    assert world.condition("Degraded") == ("True", "RevisionTakenBack"), "its pods are there"
    world.publish(world.open_jobs()[0], SECOND, KEPT)
    world.served = [pod("h", served=HOT, manifest=SECOND)]
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.condition("Degraded") == ("False", "AsExpected"), "and now they are gone"
    assert index(world) == [f"vision|registry/vision:1={SECOND}"]
    world.generation += 1
    world.body = body
    world.settle()
    assert world.condition("Ready") == ("False", "RevisionTakenBack")
    assert index(world) == [f"vision|registry/vision:1={SECOND}"], "pods keep what is good"
    assert world.open_jobs() == []


def test_one_of_an_older_image_is_taken_back_too() -> None:
    world = with_revisions(FIRST)
    world.workload = deployment("registry/vision:2")
    world.settle()
    world.publish(world.open_jobs()[0], SECOND, KEPT)
    world.settle()
    world.served = [
        *(pod(f"w{n}", served=WRONG) for n in range(2)),
        *(pod(f"h{n}", manifest=SECOND, served=HOT) for n in range(9)),
    ]
    plan = world.pass_once()
    assert [a.reason for a in plan.announcements] == ["RevisionTakenBack"], "one Event"
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.condition("Degraded") == ("True", "RevisionTakenBack")
    assert index(world) == [f"vision|registry/vision:2={SECOND}"]


def test_without_a_workload_it_is_taken_back_as_well() -> None:
    world = with_revisions(FIRST)
    world.workload = None
    world.served = [pod(f"w{n}", served=WRONG) for n in range(2)]
    world.settle()
    assert world.status["revisions"][0]["state"] == "TakenBack"
    assert world.condition("Degraded") == ("True", "WorkloadNotFound")


def test_a_notice_is_a_condition_and_one_event_and_changes_nothing() -> None:
    world = with_revisions(FIRST)
    before = index(world)
    world.served = [pod(f"m{n}", served=miss("GpuDiffers")) for n in range(3)]
    plan = world.pass_once()
    assert [(a.warning, a.reason) for a in plan.announcements] == [(True, "HardwareNotCovered")]
    assert world.condition("Degraded") == ("True", "HardwareNotCovered")
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.pass_once().announcements == ()
    world.served = [pod(f"m{n}", served=miss("GpuDiffers") if n else miss()) for n in range(5)]
    world.served += [pod("n", served=miss("ModelDiffers"))]
    plan = world.pass_once()
    assert [a.reason for a in plan.announcements] == ["PodsMiss"], (
        "the second is an Event, though the condition names the first"
    )
    assert [n["reason"] for n in world.status["notices"]] == ["HardwareNotCovered", "PodsMiss"]
    world.served = []
    world.settle()
    assert world.condition("Degraded") == ("False", "AsExpected")
    assert "notices" not in world.status or world.status["notices"] == []
    assert index(world) == before


def test_status_counts_the_pods_of_each_revision_and_when_it_was_ready() -> None:
    world = with_revisions(FIRST)
    assert "served" not in world.status["revisions"][0], "it never had any"
    assert world.status["revisions"][0]["finished"] == "2026-01-01T00:00:00Z"
    world.served = [pod("a", served=HOT), pod("b"), pod("c", served=miss()), pod("d", served=HOT, manifest=SECOND)]
    world.settle()
    counted = world.status["revisions"][0]["served"]
    assert counted == {"pods": 3, "most": 3, "hot": 1, "warm": 0, "eager": 0, "cold": 1, "wrong": 0, "crashed": 0}
    world.served = []
    world.settle()
    assert world.status["revisions"][0]["served"]["most"] == 3


def test_a_rebuild_replaces_it_and_a_pin_does_not_hold_it() -> None:
    world = with_revisions(FIRST, SECOND)
    world.annotations["preheat.dev/pin"] = world.status["revisions"][0]["name"]
    world.settle()
    world.served = [pod(f"w{n}", served=WRONG, manifest=SECOND) for n in range(2)]
    world.settle()
    assert index(world) == [f"vision|registry/vision:1={FIRST}"]
    assert world.condition("Ready") == ("False", "RevisionTakenBack")
    assert "nothing is pinned" in degraded(world)["message"]
    world.annotations = {"preheat.dev/rebuild": "again"}
    world.served = []
    world.settle()
    (job,) = world.open_jobs()
    world.publish(job, digest("c"), KEPT)
    world.settle()
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert [r["state"] for r in world.status["revisions"]] == ["Ready", "TakenBack", "Ready"]
    assert index(world) == [f"vision|registry/vision:1={digest('c')}"]


def test_pods_are_held_to_a_pinned_one_also_when_the_newest_is_taken_back() -> None:
    world = with_revisions(FIRST, SECOND, digest("c"))
    world.annotations["preheat.dev/pin"] = world.status["revisions"][2]["name"]
    world.served = [pod(f"w{n}", served=WRONG, manifest=digest("c")) for n in range(2)]
    world.settle()
    assert world.condition("Ready") == ("True", "Pinned")
    assert index(world) == [f"vision|registry/vision:1={FIRST}"]


def test_pods_that_wait_go_on_when_what_they_waited_for_is_taken_back() -> None:
    """They are not given it, and nothing else comes."""
    world = with_revisions(FIRST)
    world.served = [pod(f"w{n}", served=WRONG) for n in range(2)]
    world.settle()
    assert "vision|registry/vision:1=none" in index_text(models=[world.model], paused=False).models
