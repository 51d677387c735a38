"""Which of the Jobs and pods that carry a model's label are really its own, and which of them are still of use.

A label is a claim anyone can make. What is ours has our uid as its controller and the full target key; what merely has
a name we need stays untouched and is avoided.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.plan.jobs import MERGE, JobKey, is_ours
from preheat_operator.plan.objects import JobState, JobView, PodView
from preheat_operator.plan.profile import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.plan.revision import Wanted

# How far ahead names are checked; more forged Jobs than this only delay, since each pass looks again.
_ATTEMPTS_AHEAD = 32


@dataclass(frozen=True, kw_only=True)
class Belongings:
    """A model's Jobs and pods, sorted out. `foreign` are names we need at which somebody else's Job is."""

    seen: Mapping[str, Seen]
    current: tuple[JobView, ...]
    superseded: tuple[JobView, ...]
    foreign: frozenset[str]
    pods: tuple[PodView, ...]

    def of(self, hardware: str) -> Seen:
        """What was seen of one hardware profile of the wanted revision, or of `jobs.MERGE`."""
        return self.seen[hardware]

    def releasable(self, *, stopping: set[str]) -> tuple[PodView, ...]:
        """Pods whose result is recorded or of no use. `stopping` are uids of Jobs that are being deleted."""
        wanted = {job.uid: job for job in self.current if job.uid not in stopping}
        return tuple(p for p in self.pods if p.holds_result and _may_go(p, wanted.get(p.owner_uid)))


def sort_out(
    *, model: CompiledModel, want: Wanted, jobs: Sequence[JobView], pods: Sequence[PodView], taken: frozenset[str],
    troubles: Mapping[str, str],
) -> Belongings:  # fmt: skip
    """Sort Jobs and pods by whose they are and what they are for."""
    uid = model.metadata.uid
    profiles = (*(h.name for h in model.spec.hardware), MERGE)
    by_profile: dict[str, dict[int, JobView]] = defaultdict(dict)
    superseded, strangers = [], set(taken)
    for job in jobs:
        key = JobKey(uid=uid, want=want, hardware=job.hardware, attempt=job.attempt)
        if job.attempt > 0 and job.hardware in profiles and is_ours(job, key):
            by_profile[job.hardware][job.attempt] = job
        elif job.owner_uid == uid and job.revision != want.name:
            superseded.append(job)
        else:
            strangers.add(job.name)
    own_pods = tuple(p for p in pods if p.labels.get(names.LABEL_COMPILED_MODEL_UID) == uid)
    pods_of: dict[str, list[PodView]] = defaultdict(list)
    for pod in own_pods:
        pods_of[pod.owner_uid].append(pod)
    present = {job.uid for job in jobs}
    entries = {h.name: h for r in model.status.revisions if r.name == want.name for h in r.hardware}
    seen, foreign = {}, set()
    for profile in profiles:
        own = by_profile[profile]
        first = entries[profile].attempt if profile in entries else 1
        ahead = {
            attempt: JobKey(uid=uid, want=want, hardware=profile, attempt=attempt).name(model.metadata.name)
            for attempt in range(max(1, first), first + _ATTEMPTS_AHEAD)
            if attempt not in own
        }
        occupied = {attempt for attempt, name in ahead.items() if name in strangers}
        foreign |= {ahead[attempt] for attempt in occupied}
        seen[profile] = Seen(
            jobs=own,
            pods={job.uid: tuple(pods_of[job.uid]) for job in own.values()},
            taken=frozenset(occupied),
            troubles=troubles,
            lost_job=_lost_job(own_pods, present, want=want, profile=profile),
        )
    current = tuple(job for own in by_profile.values() for job in own.values())
    return Belongings(
        seen=seen, current=current, superseded=tuple(superseded), foreign=frozenset(foreign), pods=own_pods
    )


def _may_go(pod: PodView, job: JobView | None) -> bool:
    if job is None:
        return True
    if job.state != JobState.ACTIVE:
        return pod.finished
    # The Job goes on without it. An unscheduled pod never gets to a final phase: nobody runs it.
    return pod.deleting and (pod.phase == "Failed" or pod.scheduled_at is None)


def _lost_job(pods: Sequence[PodView], present: set[str], *, want: Wanted, profile: str) -> str:
    """Uid of the newest Job of this profile that is gone while a pod of it is still there: it may have published."""
    orphans = [
        pod
        for pod in pods
        if pod.owner_kind == "Job"
        and pod.owner_uid not in present
        and pod.labels.get(names.LABEL_REVISION) == want.name
        and pod.labels.get(names.LABEL_HARDWARE) == profile
    ]
    return max(orphans, key=lambda p: (p.created_at, p.name)).owner_uid if orphans else ""
