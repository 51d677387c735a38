"""What a running Job waits for (a node, a pod, an image, a volume), and when it has waited for a node long enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.plan.termination import plain
from preheat_operator.plan.verdicts import waiting_for_image

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from preheat_operator.plan.objects import JobView, PodView

# A Job without a pod for this long is being refused its pods (the Job controller itself waits 10 s after a failure).
NO_POD_AFTER = timedelta(seconds=30)
# Nothing tells us that a pull began to fail or an event was written, so while a pod waits it is looked at this often.
LOOK_AGAIN = timedelta(seconds=15)
# What the kubelet and the volume controller write of a volume that is attached elsewhere, and of any other trouble.
_VOLUME_EVENTS = {
    "FailedAttachVolume": ConditionReason.VOLUME_NOT_SHAREABLE,
    "FailedMount": ConditionReason.VOLUME_UNAVAILABLE,
}


@dataclass(frozen=True, kw_only=True)
class Wait:
    """What a Job waits for.

    `gave_up`: for a node, longer than the spec allows. `needs_person`: the waiting will hardly end by itself.
    """

    reason: ConditionReason
    message: str
    gave_up: bool = False
    needs_person: bool = False
    look_again_at: datetime | None = None


def waiting(
    *, job: JobView, pods: Sequence[PodView], troubles: Mapping[str, str], schedule_timeout_seconds: int, now: datetime
) -> Wait | None:
    """What an active Job waits for; None when its pod is at work.

    `troubles` maps uids of Jobs and pods to their newest warning Event, as `<reason>: <message>`.
    """
    alive = [pod for pod in pods if not pod.finished and not pod.deleting]
    if not alive:
        return _for_a_pod(job=job, troubles=troubles, now=now)
    pod = max(alive, key=lambda p: (p.created_at, p.name))
    if pod.unschedulable is not None:
        deadline = pod.created_at + timedelta(seconds=schedule_timeout_seconds)
        why = plain(pod.unschedulable, limit=512)
        if now >= deadline:
            message = f"no node took pod {pod.name} within {schedule_timeout_seconds} s: {why}"
            return Wait(reason=ConditionReason.NO_CAPACITY, message=message, gave_up=True)
        message = f"pod {pod.name} waits for a node: {why}"
        return Wait(reason=ConditionReason.WAITING_FOR_CAPACITY, message=message, look_again_at=deadline)
    image = waiting_for_image(pod)
    if image is not None:
        return Wait(
            reason=ConditionReason.IMAGE_UNAVAILABLE, message=image, needs_person=True, look_again_at=now + LOOK_AGAIN
        )
    if any(container.started for container in pod.containers.values()):
        return None
    trouble = troubles.get(pod.uid, "")
    volume = _VOLUME_EVENTS.get(trouble.partition(":")[0])
    if volume is not None:
        return Wait(
            reason=volume,
            message=f"pod {pod.name} cannot mount a volume: {plain(trouble, limit=512)}",
            needs_person=True,
            look_again_at=now + LOOK_AGAIN,
        )
    return Wait(reason=ConditionReason.COMPILING, message=f"pod {pod.name} is starting", look_again_at=now + LOOK_AGAIN)


def _for_a_pod(*, job: JobView, troubles: Mapping[str, str], now: datetime) -> Wait:
    trouble = troubles.get(job.uid, "")
    if now < job.created_at + NO_POD_AFTER or not trouble:
        message = f"Job {job.name} is making its pod"
        return Wait(reason=ConditionReason.COMPILING, message=message, look_again_at=now + LOOK_AGAIN)
    return Wait(
        reason=ConditionReason.JOB_REFUSED,
        message=f"Job {job.name} cannot make a pod: {plain(trouble, limit=768)}",
        needs_person=True,
        look_again_at=now + LOOK_AGAIN,
    )
