"""What a Job waits for, and when that has been long enough."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from preheat_operator.plan.capacity import Wait, waiting
from preheat_operator.plan.objects import ContainerView, JobView, PodView
from unit.plan.simulation import START

JOB = JobView(name="j", uid="job", created_at=START)
POD = PodView(name="p", namespace="n", uid="pod", owner_uid="job", created_at=START, images={"compile": "v:1"})


def wait(*pods: PodView, after: float = 0, troubles: dict[str, str] | None = None) -> Wait | None:
    return waiting(
        job=JOB, pods=pods, troubles=troubles or {}, schedule_timeout_seconds=300, now=START + timedelta(seconds=after)
    )


def test_a_pod_without_a_node_waits_and_then_there_is_no_capacity() -> None:
    pod = replace(POD, unschedulable="0/3 nodes are available")
    before, after = wait(pod, after=299), wait(pod, after=300)
    assert before is not None
    assert after is not None
    assert (before.reason, before.gave_up) == ("WaitingForCapacity", False)
    assert before.look_again_at == START + timedelta(seconds=300)
    assert (after.reason, after.gave_up) == ("NoCapacity", True)
    assert "0/3 nodes" in after.message


@pytest.mark.parametrize(
    ("changes", "troubles", "reason"),
    [
        ({"containers": {"compile": ContainerView(name="compile", waiting_reason="ImagePullBackOff")}}, {}, "ImageUnavailable"),
        ({"scheduled_at": START}, {"pod": "FailedAttachVolume: Multi-Attach error"}, "VolumeNotShareable"),
        ({"scheduled_at": START}, {"pod": 'FailedMount: configmap "settings" not found'}, "VolumeUnavailable"),
        ({"scheduled_at": START}, {"pod": "FailedCreatePodSandBox: x"}, "Compiling"),
    ],
)  # fmt: skip
def test_what_keeps_a_pod_from_its_containers(changes: dict[str, Any], troubles: dict[str, str], reason: str) -> None:
    found = wait(replace(POD, **changes), after=60, troubles=troubles)
    assert found is not None
    assert found.reason == reason
    assert found.needs_person == (reason != "Compiling")
    assert found.look_again_at is not None


def test_a_job_that_gets_no_pod_says_why() -> None:
    early, late = wait(after=5, troubles={"job": "x"}), wait(after=60, troubles={"job": "FailedCreate: exceeded quota"})
    silent = wait(after=60)
    assert early is not None
    assert early.reason == "Compiling"
    assert late is not None
    assert late.reason == "JobRefused"
    assert "exceeded quota" in late.message
    assert silent is not None
    assert silent.reason == "Compiling"


def test_a_pod_at_work_waits_for_nothing() -> None:
    assert wait(replace(POD, containers={"toolkit": ContainerView(name="toolkit", started=True)}), after=9999) is None
