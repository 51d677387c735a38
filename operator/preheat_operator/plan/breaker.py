"""When what Preheat adds to pods keeps them from starting, stop adding it, and replace the pods that are stuck.

The injected container exits 0 whatever happens inside it, so what is left is what happens before it runs: its image
cannot be pulled, or it cannot be created. A pod must never be down for the sake of a faster start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.plan.indexnotes import Pause
from preheat_operator.plan.termination import plain
from preheat_operator.plan.verdicts import IMAGE_TROUBLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_operator.plan.objects import PodView

# A registry's hiccup mends itself in this time; a longer one is an outage for the pod's users.
STUCK_AFTER: Final = timedelta(seconds=60)
STUCK_REASONS = IMAGE_TROUBLE | {
    "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Breaker:
    """The state of injection in a namespace, and the stuck pods to delete so that their controllers make new ones."""

    pause: Pause | None = None
    replace: tuple[PodView, ...] = ()
    look_again_at: datetime | None = None


def decide(*, pause: Pause | None, pods: Iterable[PodView], image: str, now: datetime) -> Breaker:
    """Whether injection is paused from now on. `image` is the product image in use."""
    if pause is not None and (pause.image != image or now >= pause.until):
        pause = None
    times: list[datetime] = []
    replace: list[PodView] = []
    for pod in sorted(pods, key=lambda p: p.name):
        trouble = _trouble(pod)
        if trouble is None:
            continue
        stuck_at = (pod.scheduled_at or pod.created_at) + STUCK_AFTER
        if now < stuck_at:
            times.append(stuck_at)
            continue
        if pause is None and pod.images.get(names.CONTAINER_FETCH) == image:
            pause = Pause(image=image, since=now, why=f"pod {pod.name} cannot start: {trouble}")
        # A pod nobody makes again is left as it is: deleting it would lose it.
        if pod.owner_uid:
            replace.append(pod)
    if pause is not None:
        times.append(pause.until)
    return Breaker(pause=pause, replace=tuple(replace), look_again_at=min(times, default=None))


def _trouble(pod: PodView) -> str | None:
    fetch = pod.containers.get(names.CONTAINER_FETCH)
    if pod.deleting or pod.phase != "Pending" or fetch is None or fetch.waiting_reason not in STUCK_REASONS:
        return None
    # It fails on purpose while nothing is ready for it.
    if pod.must_fetch and fetch.waiting_reason == "CrashLoopBackOff":
        return None
    return f"container {fetch.name} is in {fetch.waiting_reason}: {plain(fetch.waiting_message, limit=512)}"
