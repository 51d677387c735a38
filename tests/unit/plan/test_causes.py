"""What makes a new revision, one cause a test; and what becomes of the Jobs of the one before."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.api.enums import Cause
from preheat_operator.plan import revision as revisions
from unit.plan.ready import IMAGE, ONE, TWO, compiled_in, ready, served
from unit.plan.simulation import START, Simulation, deployment, digest, spec


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda w: setattr(w, "body", spec(keepIf={"minSpeedup": "1.2"})), "SpecChanged"),
        (lambda w: setattr(w, "workload", deployment("registry/vision:2")), "ImageChanged"),
        (lambda w: setattr(w, "body", spec(weights={"revision": "7"})), "WeightsChanged"),
        (lambda w: w.workload["spec"]["template"]["spec"]["containers"][0].update(args=["x"]), "TemplateChanged"),
        (lambda w: w.annotations.update({"preheat.dev/rebuild": "now"}), "Rebuild"),
        (lambda w: (compiled_in(w, ONE), w.settle(), w.serve("p", IMAGE, TWO)), "ImageMoved"),
    ],
)
def test_each_cause_is_told_in_status_and_by_one_event(change: Any, cause: str) -> None:
    world = ready()
    assert world.causes == ["Created"]
    change(world)
    plan = world.pass_once()
    assert world.causes == [cause, "Created"]
    first = plan.announcements[0]
    assert (first.warning, first.reason) == (False, cause)
    old, new = (world.status["revisions"][i]["name"] for i in (1, 0))
    assert new in first.message
    assert old in first.message
    assert all(a.reason != cause for a in world.settle().announcements)
    assert served(world) == {IMAGE: digest("a")}, "the old one is given while the new one is compiled"


def test_a_release_that_asks_in_another_format_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ready()
    monkeypatch.setattr(revisions, "FORMAT_VERSION", 2)
    world.settle()
    assert world.causes == ["FormatChanged", "Created"]


def test_every_cause_has_words() -> None:
    from preheat_operator.plan.need import news

    world = ready()
    (current,) = world.model.status.revisions
    for cause in Cause:
        (event,) = news(revision=current.model_copy(update={"cause": cause.value}), previous=())
        assert event.message.startswith(f"revision {current.name} is needed: ")


@pytest.mark.parametrize("b_ran", [0, 1, 3])
def test_there_and_back_leaves_no_job_of_what_was_left(b_ran: int) -> None:
    world = ready()
    world.workload = deployment("registry/vision:2")
    for _ in range(b_ran):
        world.pass_once()
    world.workload = deployment(IMAGE)
    world.settle()
    assert world.open_jobs() == []
    assert [r["image"] for r in world.status["revisions"]] == [IMAGE]
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_a_superseded_job_is_stopped_while_the_new_one_begins() -> None:
    world = Simulation()
    world.settle()
    world.workload = deployment("registry/vision:2")
    plan = world.pass_once()
    assert len(plan.create) == len(plan.stop) == 1
    assert [j["metadata"]["labels"]["preheat.dev/revision"] for j in world.open_jobs()] == [
        world.status["revisions"][0]["name"]
    ]


def test_when_a_revision_came_to_its_end_is_recorded_once() -> None:
    world = Simulation()
    world.settle()
    assert "finished" not in world.status["revisions"][0]
    world.wait(60)
    world.make_ready(digest("a"))
    world.wait(60)
    world.settle()
    revision = world.status["revisions"][0]
    assert revision["created"].startswith(START.isoformat()[:16])
    assert revision["finished"][:16] == "2026-01-01T00:01"
