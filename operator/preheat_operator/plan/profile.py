"""The course of one hardware profile of the wanted revision: Pending, Compiling, Terminal, one attempt after another.

`step` is given what is recorded and what is seen, and answers what to record next and which Job to make. It records
before it acts on a result: an attempt that failed is written down first, and the next attempt is made in the pass
after, so a crash between the two loses nothing that decides what the next Job compiles.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import HardwareState, Verdict, VerdictReason
from preheat_operator.api.status import MAX_TARGET_MESSAGE, RevisionHardware, Target
from preheat_operator.plan.capacity import Wait, waiting
from preheat_operator.plan.objects import JobState, JobView, PodView
from preheat_operator.plan.retry import POLICIES, may_retry, not_before
from preheat_operator.plan.termination import Published, TargetName, plain
from preheat_operator.plan.verdicts import GaveUp, TryAgain, outcome, so_far

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something a condition should say. `needs_person`: it belongs into Degraded, not only into Progressing."""

    reason: ConditionReason
    message: str
    needs_person: bool = True


@dataclass(frozen=True, kw_only=True)
class NextJob:
    """A Job to make: for which attempt, which targets, and which former Job it may find the result of."""

    attempt: int
    targets: tuple[TargetName, ...]
    recover_job: str


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is there of one profile: our Jobs by attempt, their pods by the Job's uid, attempts whose names others took.

    `lost_job` is the uid of a Job that is gone while its finished pod is still there, empty when there is none.
    """

    jobs: Mapping[int, JobView]
    pods: Mapping[str, Sequence[PodView]]
    taken: frozenset[int] = frozenset()
    troubles: Mapping[str, str]
    lost_job: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """What follows for one profile. `python_path` is set when a result brought it (`has_python_path`).

    `held`: the Job in `create` is not to be made now, because the model is suspended; it can still be checked.
    """

    entry: RevisionHardware
    targets: tuple[Target, ...] = ()
    create: NextJob | None = None
    held: bool = False
    stop: tuple[JobView, ...] = ()
    notes: tuple[Note, ...] = ()
    look_again_at: datetime | None = None
    has_python_path: bool = False
    python_path: str | None = None


def step(
    *, name: str, targets: Sequence[TargetName], recorded: RevisionHardware | None, verdicts: Sequence[Target],
    seen: Seen, template_hash: str, suspended: bool, schedule_timeout_seconds: int, now: datetime,
) -> Step:  # fmt: skip
    """The next step of one profile. `verdicts` are the recorded ones of this profile alone."""
    entry = recorded or RevisionHardware(name=name)
    if entry.state == HardwareState.TERMINAL:
        if not _worth_again(entry, seen, template_hash):
            running = tuple(job for job in seen.jobs.values() if job.state == JobState.ACTIVE and not job.deleting)
            return Step(entry=entry, targets=tuple(verdicts), stop=running)
        entry = RevisionHardware(name=name, attempt=max(seen.jobs) + 1)
        verdicts = ()
    open_targets = _open(targets, verdicts)
    latest = max(seen.jobs, default=0)
    if latest < entry.attempt:
        return _start(
            entry=entry, verdicts=tuple(verdicts), open_targets=open_targets, seen=seen, suspended=suspended, now=now
        )
    job = seen.jobs[latest]
    older = tuple(j for attempt, j in seen.jobs.items() if attempt < latest and not j.deleting)
    entry = entry.model_copy(update={"attempt": latest})
    if job.state != JobState.ACTIVE:
        done = _finish(entry=entry, job=job, verdicts=tuple(verdicts), open_targets=open_targets, seen=seen, now=now)
        return _with_stop(done, older)
    if job.deleting:
        entry = entry.model_copy(update={"state": HardwareState.PENDING})
        return Step(entry=entry, targets=tuple(verdicts), stop=older)
    if suspended:
        entry = entry.model_copy(update={"state": HardwareState.PENDING})
        return Step(entry=entry, targets=tuple(verdicts), stop=(*older, job))
    wait = waiting(
        job=job, pods=seen.pods.get(job.uid, ()), troubles=seen.troubles,
        schedule_timeout_seconds=schedule_timeout_seconds, now=now,
    )  # fmt: skip
    if wait is not None and wait.gave_up:
        ended = [_target(t, name, Verdict.NO_CAPACITY, VerdictReason.UNSCHEDULABLE) for t in open_targets]
        return Step(
            entry=_terminal(entry, (*verdicts, *ended), manifest=None), targets=(*verdicts, *ended),
            stop=(*older, job), notes=(wait_note(wait),),
        )  # fmt: skip
    entry = entry.model_copy(update={"state": HardwareState.COMPILING})
    lost = so_far(job, seen.pods.get(job.uid, ()))
    notes = [retry_note(lost)] if lost is not None and POLICIES[lost.cause].needs_person else []
    return Step(
        entry=entry, targets=tuple(verdicts), stop=older, notes=(*notes, *((wait_note(wait),) if wait else ())),
        look_again_at=None if wait is None else wait.look_again_at,
    )  # fmt: skip


def _start(
    *, entry: RevisionHardware, verdicts: tuple[Target, ...], open_targets: tuple[TargetName, ...], seen: Seen,
    suspended: bool, now: datetime,
) -> Step:  # fmt: skip
    """No Job of the recorded attempt is there: make it, unless it must wait."""
    notes: tuple[Note, ...] = ()
    former = seen.jobs.get(max(seen.jobs, default=0))
    pending = entry.model_copy(update={"state": HardwareState.PENDING})
    if former is not None and former.state != JobState.ACTIVE:
        ending = outcome(former, seen.pods.get(former.uid, ()))
        if isinstance(ending, TryAgain):
            notes = (retry_note(ending),)
            earliest = not_before(cause=ending.cause, attempt=former.attempt, ended_at=former.finished_at)
            if now < earliest:
                return Step(entry=pending, targets=verdicts, notes=notes, look_again_at=earliest)
    if not open_targets:
        # Every target was left out, one kill for memory after another.
        return Step(entry=_terminal(entry, verdicts, manifest=None), targets=verdicts)
    attempt = entry.attempt
    while attempt in seen.taken:
        attempt += 1
    recover_job = former.uid if former is not None else seen.lost_job
    create = NextJob(attempt=attempt, targets=open_targets, recover_job=recover_job)
    if suspended:
        return Step(entry=pending, targets=verdicts, create=create, held=True, notes=notes)
    compiling = entry.model_copy(update={"state": HardwareState.COMPILING, "attempt": attempt})
    return Step(entry=compiling, targets=verdicts, create=create, notes=notes)


def _finish(
    *, entry: RevisionHardware, job: JobView, verdicts: tuple[Target, ...], open_targets: tuple[TargetName, ...],
    seen: Seen, now: datetime,
) -> Step:  # fmt: skip
    """The Job of the latest attempt has ended: record what it brought."""
    ending = outcome(job, seen.pods.get(job.uid, ()))
    if isinstance(ending, Published):
        reported = {e.target: e for e in ending.endings}
        ended = tuple(
            Target(
                module=t.module, bucket=t.bucket, hardware=entry.name, verdict=e.verdict, reason=e.reason.value,
                speedup=e.speedup, first_answer=e.first_answer, size=e.size, message=e.message,
            )
            if (e := reported.get(t)) is not None
            # A manifest without a word on a target we asked for: it is not served, and that is Preheat's fault.
            else _target(t, entry.name, Verdict.FAILED, VerdictReason.INTERNAL)
            for t in open_targets
        )  # fmt: skip
        done = _terminal(entry, (*verdicts, *ended), manifest=ending.digest)
        done = done.model_copy(update={"carried": min(ending.carried, done.kept)})
        return Step(entry=done, targets=(*verdicts, *ended), has_python_path=True, python_path=ending.python_path)
    if isinstance(ending, GaveUp):
        ended = tuple(_target(t, entry.name, Verdict.FAILED, ending.reason, ending.message) for t in open_targets)
        done = _terminal(entry, (*verdicts, *ended), manifest=None)
        return Step(
            entry=done, targets=(*verdicts, *ended),
            notes=(Note(reason=condition_of(ending.reason), message=ending.message),),
        )  # fmt: skip
    if ending.without in open_targets and ending.without is not None:
        reason = POLICIES[ending.cause].verdict
        verdicts = (*verdicts, _target(ending.without, entry.name, Verdict.FAILED, reason, ending.message))
        open_targets = tuple(t for t in open_targets if t != ending.without)
    if open_targets and may_retry(cause=ending.cause, attempt=entry.attempt):
        again = entry.model_copy(update={"state": HardwareState.PENDING, "attempt": entry.attempt + 1})
        earliest = not_before(cause=ending.cause, attempt=entry.attempt, ended_at=job.finished_at)
        return Step(entry=again, targets=verdicts, notes=(retry_note(ending),), look_again_at=max(now, earliest))
    policy = POLICIES[ending.cause]
    ended = tuple(_target(t, entry.name, Verdict.FAILED, policy.verdict, ending.message) for t in open_targets)
    done = _terminal(entry, (*verdicts, *ended), manifest=None)
    return Step(entry=done, targets=(*verdicts, *ended), notes=(Note(reason=policy.condition, message=ending.message),))


def retry_note(ending: TryAgain) -> Note:
    """What a condition says while an attempt is followed by another one."""
    policy = POLICIES[ending.cause]
    reason = policy.condition if policy.needs_person else ConditionReason.RETRYING
    return Note(reason=reason, message=ending.message, needs_person=policy.needs_person)


def condition_of(reason: VerdictReason) -> ConditionReason:
    """What a condition says of an attempt that ended for good with this reason for each of its targets."""
    special = {
        VerdictReason.IMAGE_UNAVAILABLE: ConditionReason.IMAGE_UNAVAILABLE,
        VerdictReason.TEMPLATE_REFUSED: ConditionReason.JOB_REFUSED,
        VerdictReason.INTERNAL: ConditionReason.INTERNAL,
    }
    return special.get(reason, ConditionReason.ALL_TARGETS_FAILED)


def wait_note(wait: Wait) -> Note:
    """What a condition says while a Job waits."""
    return Note(reason=wait.reason, message=wait.message, needs_person=wait.gave_up or wait.needs_person)


def _worth_again(entry: RevisionHardware, seen: Seen, template_hash: str) -> bool:
    """Whether a profile that ended without any manifest should be tried again: the Job would be another one today."""
    if entry.manifest is not None or not seen.jobs or not template_hash:
        return False
    last = seen.jobs[max(seen.jobs)]
    return last.state != JobState.ACTIVE and not last.deleting and last.template_hash != template_hash


def _open(targets: Sequence[TargetName], verdicts: Sequence[Target]) -> tuple[TargetName, ...]:
    ended = {(v.module, v.bucket) for v in verdicts}
    return tuple(t for t in targets if (t.module, t.bucket) not in ended)


def _terminal(entry: RevisionHardware, verdicts: Sequence[Target], *, manifest: str | None) -> RevisionHardware:
    count = Counter(v.verdict for v in verdicts)
    return RevisionHardware(
        name=entry.name, state=HardwareState.TERMINAL, attempt=entry.attempt, manifest=manifest,
        kept=count[Verdict.KEPT], rejected=count[Verdict.REJECTED], failed=count[Verdict.FAILED],
        no_capacity=count[Verdict.NO_CAPACITY],
    )  # fmt: skip


def _target(target: TargetName, hardware: str, verdict: Verdict, reason: VerdictReason, message: str = "") -> Target:
    return Target(
        module=target.module, bucket=target.bucket, hardware=hardware, verdict=verdict, reason=reason.value,
        message=plain(message, limit=MAX_TARGET_MESSAGE) or None,
    )  # fmt: skip


def _with_stop(done: Step, older: tuple[JobView, ...]) -> Step:
    return dataclasses.replace(done, stop=older)
