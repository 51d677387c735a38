"""When a condition counts as changed, and what an Event is worth."""

from __future__ import annotations

from datetime import timedelta

from preheat_operator.plan.conditions import announcements
from unit.plan.simulation import START, Simulation, digest

KEPT = "main|one|Kept|Faster|1.7|0.1|1"


def test_the_transition_time_moves_with_the_status_only() -> None:
    world = Simulation()
    world.settle()
    times = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    world.wait(60)
    world.publish(world.open_jobs()[0], digest("a"), KEPT)
    world.settle()
    after = {c["type"]: c["lastTransitionTime"] for c in world.status["conditions"]}
    assert after["Ready"] != times["Ready"]
    assert after["Progressing"] != times["Progressing"]
    assert after["Degraded"] == times["Degraded"]
    assert after["Ready"].startswith((START + timedelta(seconds=60)).isoformat()[:19])


def test_an_event_for_each_transition_and_none_without() -> None:
    world = Simulation()
    first = world.pass_once()
    assert [(a.warning, a.reason) for a in first.announcements] == [(False, "Created"), (False, "Compiling")]
    assert world.pass_once().announcements == ()
    world.publish(world.open_jobs()[0], digest("a"), KEPT)
    assert [(a.warning, a.reason) for a in world.pass_once().announcements] == [(False, "RevisionReady")]


def test_a_failure_is_one_warning_although_two_conditions_say_it() -> None:
    world = Simulation()
    world.settle()
    world.end(world.open_jobs()[0], ok=False, ends={}, reason="DeadlineExceeded")
    assert [(a.warning, a.reason) for a in world.pass_once().announcements] == [(True, "AllTargetsFailed")]


def test_nothing_is_announced_of_what_stays() -> None:
    world = Simulation()
    world.settle()
    conditions = world.model.status.conditions
    assert announcements(previous=conditions, current=conditions) == ()
