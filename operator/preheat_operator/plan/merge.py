"""From the manifests of several hardware profiles to the one manifest of a revision.

Profiles are compiled on different nodes, so each Job publishes a manifest of its own part. A pod is given one digest:
with one part that is the part itself, with more a small Job joins them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import HardwareState, RevisionState
from preheat_operator.plan.capacity import waiting
from preheat_operator.plan.objects import JobState
from preheat_operator.plan.profile import Note, condition_of, retry_note, wait_note
from preheat_operator.plan.retry import POLICIES, may_retry, not_before
from preheat_operator.plan.termination import Published
from preheat_operator.plan.verdicts import GaveUp, outcome

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.status import RevisionHardware
    from preheat_operator.plan.objects import JobView
    from preheat_operator.plan.profile import Seen


@dataclass(frozen=True, kw_only=True)
class NextMerge:
    """A merge Job to make."""

    attempt: int
    parts: tuple[str, ...]
    recover_job: str


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Where the revision as a whole stands, given its profiles. `manifest` is set when Ready."""

    state: RevisionState
    manifest: str | None = None
    create: NextMerge | None = None
    stop: tuple[JobView, ...] = ()
    notes: tuple[Note, ...] = ()
    look_again_at: datetime | None = None


def join(
    *, entries: Sequence[RevisionHardware], seen: Seen, suspended: bool, schedule_timeout_seconds: int, now: datetime
) -> Joined:
    """The state of a revision and, when all its profiles are terminal, its manifest or the Job that makes it."""
    if any(e.state != HardwareState.TERMINAL for e in entries):
        compiling = any(e.state == HardwareState.COMPILING for e in entries)
        return Joined(state=RevisionState.COMPILING if compiling else RevisionState.PENDING)
    parts = tuple(sorted({e.manifest for e in entries if e.manifest is not None}))
    if not parts:
        return Joined(state=RevisionState.FAILED)
    if len(parts) == 1:
        return Joined(state=RevisionState.READY, manifest=parts[0])
    latest = max(seen.jobs, default=0)
    if latest == 0:
        return _start(parts=parts, attempt=1, recover_job="", seen=seen, suspended=suspended, notes=())
    job = seen.jobs[latest]
    older = tuple(j for attempt, j in seen.jobs.items() if attempt < latest and not j.deleting)
    if job.state == JobState.ACTIVE:
        wait = waiting(
            job=job, pods=seen.pods.get(job.uid, ()), troubles=seen.troubles,
            schedule_timeout_seconds=schedule_timeout_seconds, now=now,
        )  # fmt: skip
        publishing = Note(
            reason=ConditionReason.PUBLISHING, message="joining the results of all profiles", needs_person=False
        )
        note = publishing if wait is None or wait.reason == ConditionReason.COMPILING else wait_note(wait)
        look_again_at = None if wait is None else wait.look_again_at
        return Joined(state=RevisionState.COMPILING, stop=older, notes=(note,), look_again_at=look_again_at)
    ending = outcome(job, seen.pods.get(job.uid, ()))
    if isinstance(ending, Published):
        return Joined(state=RevisionState.READY, manifest=ending.digest, stop=older)
    if isinstance(ending, GaveUp):
        note = Note(reason=condition_of(ending.reason), message=ending.message)
        return Joined(state=RevisionState.FAILED, stop=older, notes=(note,))
    if not may_retry(cause=ending.cause, attempt=latest):
        note = Note(reason=POLICIES[ending.cause].condition, message=ending.message)
        return Joined(state=RevisionState.FAILED, stop=older, notes=(note,))
    notes = (retry_note(ending),)
    earliest = not_before(cause=ending.cause, attempt=latest, ended_at=job.finished_at)
    if now < earliest:
        return Joined(state=RevisionState.COMPILING, stop=older, notes=notes, look_again_at=earliest)
    return _start(parts=parts, attempt=latest + 1, recover_job=job.uid, seen=seen, suspended=suspended, notes=notes)


def _start(
    *, parts: tuple[str, ...], attempt: int, recover_job: str, seen: Seen, suspended: bool, notes: tuple[Note, ...]
) -> Joined:
    if suspended:
        return Joined(state=RevisionState.PENDING, notes=notes)
    while attempt in seen.taken:
        attempt += 1
    create = NextMerge(attempt=attempt, parts=parts, recover_job=recover_job)
    publishing = Note(
        reason=ConditionReason.PUBLISHING, message="joining the results of all profiles", needs_person=False
    )
    return Joined(state=RevisionState.COMPILING, create=create, notes=notes or (publishing,))
