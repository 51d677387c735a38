"""What pods say of the revisions they were given, and what follows: a revision that is wrong, or kills them, is taken back.

Why it exists: a revision was proved in a Job, with the Job's inputs, on the Job's machine. Where its pods show that it
is wrong, they must not go on being given it, and nobody may have to be awake for that. Everything short of that is said
and changes nothing (`notices`): it could be the traffic, the node or the neighbours.

What is taken back stays so: the decision, with its numbers, is in status, and is not asked again. Another spec or image,
or a rebuild, is another revision.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names, served
from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import RevisionState
from preheat_operator.api.served import HOUR_SECONDS, Served
from preheat_operator.api.status import RevisionServed, TakenBack
from preheat_operator.plan.conditions import Announcement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from preheat_operator.api.status import Revision
    from preheat_operator.plan.objects import End, PodView

LEAST_PODS: Final = 2
"""One pod may have a bad node, a bad disk or a bad day."""
LEAST_SHARE: Final = Fraction(1, 5)
CRASH_CODES: Final = frozenset({132, 134, 135, 139})
"""128 and the signal: SIGILL, SIGABRT, SIGBUS, SIGSEGV. Not SIGKILL (memory, or somebody), and no code of the application's own."""
CRASH_WINDOW: Final = timedelta(days=1)
"""An older crash of a container that has run ever since says nothing about the revision."""
_OUT_OF_MEMORY: Final = "OOMKilled"
_MAX_TARGETS: Final = 4
_OUTCOMES: Final = ("cold", "eager", "warm", "hot")
_MAX_MESSAGE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class Witness:
    """One pod that runs with a revision, and what is known of it."""

    pod: PodView
    manifest: str
    served: Served
    wrong: bool
    crashed: bool

    @property
    def outcome(self) -> str | None:
        """How its first answers were given; of several ways the one that is the furthest from hot. None: not known."""
        said = {answer.partition("/")[0] for answer in self.served.answers}
        return next((outcome for outcome in _OUTCOMES if outcome in said), None)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Revisions with what their pods say of them, and the Events that this is worth."""

    revisions: tuple[Revision, ...]
    announcements: tuple[Announcement, ...] = ()


def witnesses(pods: Iterable[PodView], *, now: datetime) -> tuple[Witness, ...]:
    """The pods that run with what they were given. `pods` are labelled with one model's name, whoever made them."""
    found = (_witness(pod, now) for pod in pods)
    return tuple(witness for witness in found if witness is not None)


def watch(*, revisions: Sequence[Revision], seen: Sequence[Witness], now: datetime) -> Watched:
    """Count each revision's pods, and take back what must not be given to any more."""
    result, announcements = [], []
    for revision in revisions:
        judged = _judge(revision, [w for w in seen if w.manifest == revision.manifest], now)
        result.append(judged)
        if judged.state == RevisionState.TAKEN_BACK and revision.state != RevisionState.TAKEN_BACK:
            announcements.append(
                Announcement(warning=True, reason=ConditionReason.REVISION_TAKEN_BACK, message=taken_back_words(judged))
            )
    return Watched(revisions=tuple(result), announcements=tuple(announcements))


def is_enough(*, blamed: int, pods: int) -> bool:
    """Whether so many pods, of so many that run with a revision, are enough to take it back."""
    return blamed >= LEAST_PODS and Fraction(blamed, max(pods, blamed)) >= LEAST_SHARE


def taken_back_words(revision: Revision) -> str:
    """What happened to a revision that was taken back, with the numbers, for people."""
    what = revision.taken_back
    if what is None:
        return f"revision {revision.name} was taken back"
    parts = []
    if what.wrong:
        where = f" ({', '.join(what.targets)})" if what.targets else ""
        parts.append(f"{what.wrong} of {what.pods} pods reported wrong answers{where}")
    if what.crashed:
        parts.append(f"{what.crashed} of {what.pods} pods crashed")
    return (
        f"revision {revision.name} of image {revision.image} was taken back at {what.at.isoformat()}, since "
        f"{' and '.join(parts)}"
    )


def has_news(pod: PodView) -> bool:
    """Whether the pod says how it is served, has begun with what it was given, or is going: what a status counts."""
    if not pod.annotations.get(names.ANNOTATION_MANIFEST, "").startswith("sha256:"):
        return False
    container = pod.containers.get(pod.serves)
    return container is not None and (container.started or bool(container.ends))


def _judge(revision: Revision, seen: Sequence[Witness], now: datetime) -> Revision:
    counted = _count(seen, revision.served)
    if counted is not None:
        revision = revision.model_copy(update={"served": counted})
    blamed = sum(w.wrong or w.crashed for w in seen)
    if revision.state != RevisionState.READY or not is_enough(blamed=blamed, pods=len(seen)):
        return revision
    targets = dict.fromkeys(target for w in seen for target in w.served.wrong)
    taken = TakenBack(
        at=now, pods=len(seen), wrong=sum(w.wrong for w in seen), crashed=sum(w.crashed for w in seen),
        targets=tuple(sorted(targets))[:_MAX_TARGETS],
    )  # fmt: skip
    return revision.model_copy(update={"state": RevisionState.TAKEN_BACK, "taken_back": taken})


def _count(seen: Sequence[Witness], before: RevisionServed | None) -> RevisionServed | None:
    if not seen and before is None:
        return None
    outcomes = [w.outcome for w in seen]
    return RevisionServed(
        pods=len(seen),
        most=max(len(seen), 0 if before is None else before.most),
        hot=outcomes.count("hot"),
        warm=outcomes.count("warm"),
        eager=outcomes.count("eager"),
        cold=outcomes.count("cold"),
        wrong=sum(w.wrong for w in seen),
        crashed=sum(w.crashed for w in seen),
    )


def _witness(pod: PodView, now: datetime) -> Witness | None:
    manifest = pod.annotations.get(names.ANNOTATION_MANIFEST, "")
    if pod.annotations.get(names.ANNOTATION_INJECTED) != names.INJECTED_YES or not manifest.startswith("sha256:"):
        return None
    said = served.parse(pod.annotations.get(names.ANNOTATION_SERVED)) or Served()
    crashed = _crashed(pod, now)
    # A pod that is going, or is done, speaks for itself only: it is not one that the revision serves.
    if not (said.wrong or crashed) and (pod.deleting or pod.finished):
        return None
    container = pod.containers.get(pod.serves)
    began = container is not None and (container.started or bool(container.ends))
    if not said.wrong and not (began and _was_brought(pod)):
        return None
    hour = int(now.timestamp() // HOUR_SECONDS)
    return Witness(pod=pod, manifest=manifest, served=said.at(hour), wrong=bool(said.wrong), crashed=crashed)


def _was_brought(pod: PodView) -> bool:
    """Whether `fetch` says that the revision is in the pod: without it, nothing the pod does is the revision's."""
    fetch = pod.containers.get(names.CONTAINER_FETCH)
    if fetch is None or fetch.exit_code != 0 or len(fetch.message) > _MAX_MESSAGE:
        return False
    try:
        said = json.loads(fetch.message)
    except (ValueError, RecursionError):
        return False
    return isinstance(said, dict) and said.get("v") == 1 and said.get("outcome") == "Fetched"


def _crashed(pod: PodView, now: datetime) -> bool:
    container = pod.containers.get(pod.serves)
    return container is not None and _was_brought(pod) and any(_is_crash(end, now) for end in container.ends)


def _is_crash(end: End, now: datetime) -> bool:
    return end.exit_code in CRASH_CODES and end.reason != _OUT_OF_MEMORY and now - end.at < CRASH_WINDOW
