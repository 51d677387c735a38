"""The three conditions of a CompiledModel: what they say, and when they count as changed.

The words are `api.conditions`; here is the order of precedence. A condition's transition time moves only with its
status, and an Event is worth writing only when a status or a reason changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from preheat_operator.api.conditions import REASONS_OF_CONDITION, ConditionReason, ConditionType
from preheat_operator.api.enums import RevisionState, Verdict
from preheat_operator.api.status import Condition
from preheat_operator.plan.termination import plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.status import Revision, Target
    from preheat_operator.plan.profile import Note

_Status = Literal["True", "False"]
# What may be said of a revision that failed. Its cause is known in the pass in which it fails, and must outlive it.
_FAILURES = frozenset(
    {
        ConditionReason.ALL_TARGETS_FAILED,
        ConditionReason.NO_CAPACITY,
        ConditionReason.IMAGE_UNAVAILABLE,
        ConditionReason.JOB_REFUSED,
        ConditionReason.STORE_CREDENTIALS_MISSING,
        ConditionReason.STORE_DENIED,
        ConditionReason.STORE_UNREACHABLE,
        ConditionReason.RESULT_LOST,
        ConditionReason.INTERNAL,
    }
)
_MAX_MESSAGE = 2048


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What the conditions are about.

    `revision` is the wanted one, None when there is nothing to compile from; `targets` are its verdicts. `blockers` are notes that need a person
    before anything is compiled; `withholding` ones keep pods from what is compiled; `overlays` need a person and leave
    the rest alone; `settled`: the revision had failed before this pass, so that what was said then still holds.
    `taken_back` says why the revision was, in words, and `instead` what pods of its image get now.
    `pinned` is a revision of the same image that pods are held to, where it is another one.
    """

    revision: Revision | None
    targets: Sequence[Target] = ()
    suspended: bool = False
    notes: Sequence[Note] = ()
    blockers: Sequence[Note] = ()
    overlays: Sequence[Note] = ()
    withholding: Sequence[Note] = ()
    settled: bool = False
    taken_back: str = ""
    instead: Revision | None = None
    pinned: Revision | None = None


@dataclass(frozen=True, kw_only=True)
class Announcement:
    """An Event worth writing: a condition's status or reason changed."""

    warning: bool
    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class _Claim:
    status: _Status
    reason: ConditionReason
    message: str


def conditions(
    *, standing: Standing, previous: Sequence[Condition], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Ready, Progressing and Degraded, in this order."""
    before = {c.type: c for c in previous}
    ready, progressing, degraded = _claims(standing, before.get(ConditionType.READY.value))
    claims = {
        ConditionType.READY: ready,
        ConditionType.PROGRESSING: progressing,
        ConditionType.DEGRADED: degraded,
    }
    result = []
    for kind, claim in claims.items():
        former = before.get(kind.value)
        since = former.last_transition_time if former is not None and former.status == claim.status else now
        result.append(
            Condition(
                type=kind.value, status=claim.status, reason=claim.reason.value, observed_generation=generation,
                message=plain(claim.message, limit=_MAX_MESSAGE), last_transition_time=since,
            )
        )  # fmt: skip
    return tuple(result)


def announcements(*, previous: Sequence[Condition], current: Sequence[Condition]) -> tuple[Announcement, ...]:
    """What changed, as Events: of Ready, and of Degraded when it is not what Ready already says."""
    before = {c.type: (c.status, c.reason) for c in previous}
    said: set[tuple[str, str]] = set()
    result = []
    for condition in current:
        if condition.type == ConditionType.PROGRESSING or (condition.reason, condition.message) in said:
            continue
        changed = before.get(condition.type) != (condition.status, condition.reason)
        quiet = condition.reason == ConditionReason.AS_EXPECTED
        if changed and not quiet:
            said.add((condition.reason, condition.message))
            blocked = condition.reason in REASONS_OF_CONDITION[ConditionType.DEGRADED, "True"]
            result.append(Announcement(warning=blocked, reason=condition.reason, message=condition.message))
    return tuple(result)


def _claims(standing: Standing, before: Condition | None) -> tuple[_Claim, _Claim, _Claim]:
    if standing.blockers:
        first = standing.blockers[0]
        return (
            _Claim(status="False", reason=first.reason, message=first.message),
            _Claim(status="False", reason=first.reason, message=first.message),
            _Claim(status="True", reason=first.reason, message=_join(standing.blockers)),
        )
    revision = standing.revision
    if revision is not None and revision.state == RevisionState.READY:
        ready, progressing, troubles = _of_ready(revision, _why(standing.targets))
    elif revision is not None and revision.state == RevisionState.TAKEN_BACK:
        ready, progressing, troubles = _of_taken_back(standing)
    elif revision is not None and revision.state == RevisionState.FAILED:
        ready, progressing, troubles = _of_failed(standing, revision, before)
    else:
        ready, progressing, troubles = _under_way(standing, revision)
    if standing.pinned is not None:
        message = f"pods of image {standing.pinned.image} get revision {standing.pinned.name}, to which they are pinned"
        ready = _Claim(status="True", reason=ConditionReason.PINNED, message=f"{message}; the newest: {ready.message}")
    if ready.status == "True" and standing.withholding:
        ready = _Claim(status="False", reason=standing.withholding[0].reason, message=_join(standing.withholding))
    needing = [
        *(_Claim(status="True", reason=n.reason, message=n.message) for n in standing.withholding),
        *troubles,
        *(_Claim(status="True", reason=n.reason, message=n.message) for n in standing.overlays),
    ]
    if not needing:
        degraded = _Claim(status="False", reason=ConditionReason.AS_EXPECTED, message="nothing needs a person")
    else:
        messages = "; ".join(dict.fromkeys(n.message for n in needing))
        degraded = _Claim(status="True", reason=needing[0].reason, message=messages)
    return ready, progressing, degraded


def _of_ready(revision: Revision, why: str) -> tuple[_Claim, _Claim, list[_Claim]]:
    count = counts(revision)
    told = f"revision {revision.name} of image {revision.image}: {_told(count)}"
    carried = sum(entry.carried for entry in revision.hardware)
    if carried:
        told += f", {carried} of them carried over: checked with these weights, not compiled again"
    complete = _Claim(status="False", reason=ConditionReason.COMPLETE, message=told)
    troubles = []
    if count["failed"]:
        only = not count["kept"] and not count["rejected"]
        reason = ConditionReason.ALL_TARGETS_FAILED if only else ConditionReason.TARGETS_FAILED
        troubles.append(_Claim(status="True", reason=reason, message=f"{told}; {why}"))
    if count["no_capacity"]:
        where = ", ".join(h.name for h in revision.hardware if h.no_capacity)
        message = f"no node took the compile pod of: {where}; check spec.hardware and free nodes"
        troubles.append(_Claim(status="True", reason=ConditionReason.NO_CAPACITY, message=message))
    if count["kept"]:
        return _Claim(status="True", reason=ConditionReason.REVISION_READY, message=told), complete, troubles
    if count["rejected"]:
        message = f"{told}; pods run eager, loosen spec.keepIf to keep artifacts"
        return _Claim(status="True", reason=ConditionReason.NOTHING_KEPT, message=message), complete, troubles
    reason = ConditionReason.ALL_TARGETS_FAILED
    message = f"{told}; {why}"
    return _Claim(status="False", reason=reason, message=message), complete, troubles


def _of_taken_back(standing: Standing) -> tuple[_Claim, _Claim, list[_Claim]]:
    instead = standing.instead
    gets = (
        f"revision {instead.name}, the one before it" if instead is not None else "nothing: they compile for themselves"
    )
    message = (
        f"{standing.taken_back}; new pods of the image get {gets}. Change the image or the spec, and look at the logs of its "
        "pods for why"
    )
    reason = ConditionReason.REVISION_TAKEN_BACK
    ready = _Claim(status="False", reason=reason, message=message)
    complete = _Claim(status="False", reason=ConditionReason.COMPLETE, message=standing.taken_back)
    return ready, complete, [_Claim(status="True", reason=reason, message=message)]


def _of_failed(standing: Standing, revision: Revision, before: Condition | None) -> tuple[_Claim, _Claim, list[_Claim]]:
    count = counts(revision)
    needing = [n for n in standing.notes if n.needs_person]
    if standing.settled and before is not None and before.status == "False" and before.reason in _FAILURES:
        reason, message = ConditionReason(before.reason), before.message
    elif needing:
        reason, message = needing[0].reason, f"revision {revision.name}: {_told(count)}; {_join(needing)}"
    elif count["no_capacity"] and not count["failed"]:
        reason = ConditionReason.NO_CAPACITY
        message = f"revision {revision.name}: no node took its compile pods; check spec.hardware and free nodes"
    else:
        reason = ConditionReason.ALL_TARGETS_FAILED
        message = f"revision {revision.name}: {_told(count)}; {_why(standing.targets)}"
    claim = _Claim(status="False", reason=reason, message=message)
    return claim, claim, [_Claim(status="True", reason=reason, message=message)]


def _under_way(standing: Standing, revision: Revision | None) -> tuple[_Claim, _Claim, list[_Claim]]:
    name = "the revision" if revision is None else f"revision {revision.name} of image {revision.image}"
    needing = [n for n in standing.notes if n.needs_person]
    troubles = [_Claim(status="True", reason=n.reason, message=n.message) for n in needing]
    if standing.suspended:
        message = f"{name} is not compiled: spec.suspend is Enabled, set it to Disabled to go on"
        claim = _Claim(status="False", reason=ConditionReason.SUSPENDED, message=message)
        return claim, claim, troubles
    under_way = REASONS_OF_CONDITION[ConditionType.PROGRESSING, "True"]
    telling = [n for n in standing.notes if n.reason in under_way and n.reason != ConditionReason.COMPILING]
    if telling:
        progressing = _Claim(status="True", reason=telling[0].reason, message=f"{name}: {_join(telling)}")
    else:
        reason = ConditionReason.RETRYING if needing else ConditionReason.COMPILING
        progressing = _Claim(status="True", reason=reason, message=f"{name} is being compiled")
    if needing:
        return _Claim(status="False", reason=needing[0].reason, message=_join(needing)), progressing, troubles
    return _Claim(status="False", reason=progressing.reason, message=progressing.message), progressing, troubles


def counts(revision: Revision) -> Counter[str]:
    """How many targets of a revision ended how: kept, rejected, failed, no_capacity."""
    total: Counter[str] = Counter()
    for entry in revision.hardware:
        total.update(kept=entry.kept, rejected=entry.rejected, failed=entry.failed, no_capacity=entry.no_capacity)
    return total


def _why(targets: Sequence[Target]) -> str:
    """The first failed target in its own words, and where the others are."""
    failed = [t for t in targets if t.verdict == Verdict.FAILED]
    if not failed:
        return "see status.targets for the reasons"
    first = failed[0]
    words = f"{first.module}/{first.bucket} on {first.hardware}: {first.reason}{f': {first.message}' if first.message else ''}"
    return words if len(failed) == 1 else f"{words} (the others are in status.targets)"


def _told(count: Counter[str]) -> str:
    total = sum(count.values())
    parts = [f"{count['kept']} of {total} targets kept"]
    words = (("rejected", "rejected"), ("failed", "failed"), ("no_capacity", "without a node"))
    parts += [f"{count[key]} {word}" for key, word in words if count[key]]
    return ", ".join(parts)


def _join(notes: Sequence[Note]) -> str:
    return "; ".join(dict.fromkeys(n.message for n in notes))
