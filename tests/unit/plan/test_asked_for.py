"""What a person may ask for: to compile once more, and to give pods an older revision."""

from __future__ import annotations

import pytest

from preheat_operator.plan.revision import history
from unit.plan.ready import IMAGE, ready, served
from unit.plan.simulation import Simulation, deployment, digest, spec


def test_a_rebuild_is_made_once_for_each_token_and_going_back_stays_hot() -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = "monday"
    world.make_ready(digest("b"))
    assert world.causes == ["Rebuild", "Created"]
    assert (world.status["rebuild"], world.status["revisions"][0]["rebuild"]) == ("monday", "monday")
    assert served(world) == {IMAGE: digest("b")}
    world.settle()
    world.annotations.clear()
    world.settle()
    assert len(world.made) == 2
    world.annotations["preheat.dev/rebuild"] = "monday"
    world.settle()
    assert len(world.made) == 2, "a token that was heard asks for nothing"
    world.annotations["preheat.dev/rebuild"] = "tuesday"
    world.settle()
    assert len(world.made) == 3
    assert world.causes[0] == "Rebuild"


def test_a_rebuild_starts_a_failed_revision_again() -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={"compile": (66, "Error", "")}, reason="PodFailurePolicy")
    world.settle()
    assert world.status["revisions"][0]["state"] == "Failed"
    world.annotations["preheat.dev/rebuild"] = "1"
    world.make_ready(digest("b"))
    assert world.causes == ["Rebuild"]


def test_after_a_rebuild_other_changes_are_what_they_are() -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = "1"
    world.make_ready(digest("b"))
    world.workload = deployment("registry/vision:2")
    world.make_ready(digest("c"))
    assert world.causes[0] == "ImageChanged"
    world.workload = deployment(IMAGE)
    world.settle()
    assert (world.causes[0], len(world.made)) == ("Rebuild", 3)


@pytest.mark.parametrize("token", ["", " \n", "x" * 70_000, "\x00\u202e", "a\nb"])
def test_any_token_is_bounded_and_comes_to_rest(token: str) -> None:
    world = ready()
    world.annotations["preheat.dev/rebuild"] = token
    world.settle()
    assert len(world.status.get("rebuild") or "") <= 63
    assert len(world.made) == (2 if (token.strip() and token.isprintable()) or "\n" in token.strip() else 1)


def two_ready() -> tuple[Simulation, str, str]:
    world = ready()
    world.body = spec(keepIf={"minSpeedup": "1.2"})
    world.make_ready(digest("b"))
    new, old = (r["name"] for r in world.status["revisions"])
    return world, old, new


def test_a_pin_is_what_pods_of_that_image_get_and_is_seen() -> None:
    world, old, new = two_ready()
    assert served(world) == {IMAGE: digest("b")}
    world.annotations["preheat.dev/pin"] = old
    world.settle()
    assert served(world) == {IMAGE: digest("a")}
    assert world.status["pinned"] == old
    assert world.condition("Ready") == ("True", "Pinned")
    assert world.condition("Degraded") == ("False", "AsExpected")
    (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Ready")
    assert old in message
    assert new in message
    world.annotations.clear()
    world.settle()
    assert served(world) == {IMAGE: digest("b")}
    assert "pinned" not in world.status
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert len(world.made) == 2


def test_a_pin_holds_while_the_next_one_is_compiled_and_for_its_image_alone() -> None:
    world, old, _ = two_ready()
    world.annotations["preheat.dev/pin"] = old
    world.body = spec(keepIf={"minSpeedup": "1.3"})
    world.settle()
    assert world.condition("Ready") == ("True", "Pinned")
    assert world.condition("Progressing") == ("True", "Compiling")
    world.make_ready(digest("c"))
    assert served(world) == {IMAGE: digest("a")}
    world.workload = deployment("registry/vision:2")
    world.make_ready(digest("d"))
    assert served(world) == {IMAGE: digest("a"), "registry/vision:2": digest("d")}
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_pinned_revision_outlives_the_history_limit() -> None:
    world, old, _ = two_ready()
    world.annotations["preheat.dev/pin"] = old
    for number in range(2, 6):
        world.body = spec(keepIf={"minSpeedup": f"1.{number}1"}, revisionHistoryLimit=2)
        world.make_ready(digest(str(number)))
    assert [r["name"] for r in world.status["revisions"]].index(old) == 2
    assert served(world) == {IMAGE: digest("a")}
    world.annotations.clear()
    world.settle()
    assert len(world.status["revisions"]) == 2


@pytest.mark.parametrize("name", ["nobody", "vision-00000000", "x" * 5000, "\x00"])
def test_a_pin_to_what_is_not_there_needs_a_person_and_changes_nothing(name: str) -> None:
    world, _, new = two_ready()
    world.annotations["preheat.dev/pin"] = name
    world.settle()
    assert served(world) == {IMAGE: digest("b")}
    wanted = ("True", "PinNotFound") if name.isprintable() else ("False", "AsExpected")
    assert world.condition("Degraded") == wanted
    assert world.condition("Ready") == ("True", "RevisionReady")
    if name.isprintable():
        (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Degraded")
        assert new in message


def test_history_keeps_what_was_asked_for() -> None:
    world, old, _ = two_ready()
    current, previous = world.model.status.revisions[0], world.model.status.revisions
    assert [r.name for r in history(current=current, previous=previous, limit=1)] == [current.name]
    assert [r.name for r in history(current=current, previous=previous, limit=1, keep=old)] == [current.name, old]
