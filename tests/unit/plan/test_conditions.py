"""When a condition counts as changed, and what an Event is worth."""

from __future__ import annotations

from datetime import timedelta

import pytest

from preheat_operator.api.conditions import REASONS_OF_CONDITION, ConditionReason, ConditionType
from preheat_operator.plan.conditions import Standing, announcements, conditions
from preheat_operator.plan.profile import Note
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


NEEDS_A_PERSON = [
    ConditionReason.VOLUME_NOT_SHAREABLE,
    ConditionReason.VOLUME_UNAVAILABLE,
    ConditionReason.IMAGE_UNAVAILABLE,
]


@pytest.mark.parametrize("reason", NEEDS_A_PERSON)
def test_what_a_job_waits_for_is_said_while_it_goes_on(reason: ConditionReason) -> None:
    note = Note(reason=reason, message="why")
    found = conditions(standing=Standing(revision=None, notes=(note,)), previous=(), generation=1, now=START)
    said = {(each.type, each.status): each.reason for each in found}
    assert said == {("Ready", "False"): reason, ("Progressing", "True"): "Retrying", ("Degraded", "True"): reason}
    for (kind, status), each in said.items():
        assert ConditionReason(each) in REASONS_OF_CONDITION[ConditionType(kind), status]


def test_a_job_of_somebody_elses_keeps_nothing_back() -> None:
    note = Note(reason=ConditionReason.JOB_CONFLICT, message="delete it")
    found = conditions(standing=Standing(revision=None, overlays=(note,)), previous=(), generation=1, now=START)
    said = {(each.type, each.status): each.reason for each in found}
    assert said == {
        ("Ready", "False"): "Compiling",
        ("Progressing", "True"): "Compiling",
        ("Degraded", "True"): "JobConflict",
    }
    assert ConditionReason.JOB_CONFLICT in REASONS_OF_CONDITION[ConditionType.DEGRADED, "True"]


def test_nothing_is_announced_of_what_stays() -> None:
    world = Simulation()
    world.settle()
    conditions = world.model.status.conditions
    assert announcements(previous=conditions, current=conditions) == ()
