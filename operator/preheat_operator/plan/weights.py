"""Which revision of the weights a model has now: the one that is named, or what a small Job saw in S3 or on the Hub.

Looks are Jobs, because only a pod of the namespace has the credentials. One follows another after an interval; what was
seen is in status before its Job is stopped, so a crash between the two costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import Suspend
from preheat_operator.api.status import WeightsLookup
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.jobs import JobKey, is_ours, lookup_job
from preheat_operator.plan.objects import JobState
from preheat_operator.plan.profile import Note
from preheat_operator.plan.revision import Wanted
from preheat_operator.plan.termination import plain, read_complaint, read_lookup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.weights import Weights
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.objects import JobView, PodView
    from preheat_operator.plan.workload import Serving

#: Stands for a hardware profile where a Job is named; a profile's name cannot hold a dot.
LOOKUP: Final = "weights.lookup"
_MAX_TROUBLE = 512


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What is known of the weights, and what to do to know it. `revision` is None while they must be waited for."""

    revision: str | None
    record: WeightsLookup | None = None
    create: dict[str, Any] | None = None
    stop: tuple[JobView, ...] = ()
    release: tuple[PodView, ...] = ()
    notes: tuple[Note, ...] = ()
    look_again_at: datetime | None = None


def is_look(labels: Mapping[str, str]) -> bool:
    """Whether the labels are those of a look at weights, and not of a compile."""
    return labels.get(names.LABEL_HARDWARE) == LOOKUP


def look(
    *, model: CompiledModel, source: Serving, installation: Installation, jobs: Sequence[JobView],
    pods: Sequence[PodView], refused: Mapping[str, str], now: datetime,
) -> Looked:  # fmt: skip
    """`jobs` and `pods` are those of looks alone."""
    spec = model.spec.weights
    ours = [job for job in jobs if job.owner_uid == model.metadata.uid]
    if spec is None or spec.revision is not None:
        named = "" if spec is None else str(spec.revision)
        return Looked(revision=named, stop=_living(ours), release=_held(pods))
    where = _source(spec)
    record = model.status.weights
    if record is None or record.source != where:
        record = WeightsLookup(source=where)
    key = _key(model, where, record.looks + 1)
    current = next((job for job in ours if is_ours(job, key)), None)
    if current is not None and current.state != JobState.ACTIVE:
        record = _read(record, current, pods, now)
        key, current = _key(model, where, record.looks + 1), None
    others = tuple(job for job in ours if current is None or job.uid != current.uid)
    create, notes, again = None, list(_trouble(record)), None
    if current is None:
        due = now if record.looked is None else record.looked + timedelta(seconds=spec.check_interval_seconds)
        # Nothing is made in the pass in which a look ends: it must be in status first.
        if (now >= due and record == model.status.weights) or record.looks == 0:
            create = None if model.spec.suspend == Suspend.ENABLED else _job(model, key, spec, source, installation)
        else:
            again = max(due, now + timedelta(seconds=1))
    if create is not None and (refusal := refused.get(create["metadata"]["name"])) is not None:
        notes.append(
            Note(reason=ConditionReason.WEIGHTS_UNKNOWN, message=f"the API server refuses the look: {refusal}")
        )
        create, again = None, now + timedelta(seconds=spec.check_interval_seconds)
    return Looked(
        revision=_known(model, record, create is not None or current is not None), record=record, create=create,
        stop=_living(others), release=tuple(p for p in _held(pods) if p.owner_uid != (current.uid if current else "")),
        notes=tuple(notes), look_again_at=again,
    )  # fmt: skip


def _known(model: CompiledModel, record: WeightsLookup, looking: bool) -> str | None:
    """What was seen; else what the last revision has, so that a look that fails changes nothing; else None: wait for it.

    Nobody waits for a look that cannot be made: models are compiled without knowing, and then checked.
    """
    if record.revision is not None:
        return record.revision
    if model.status.revisions:
        return model.status.revisions[0].weights or ""
    return None if looking and record.looks == 0 else ""


def _read(record: WeightsLookup, job: JobView, pods: Sequence[PodView], now: datetime) -> WeightsLookup:
    messages = [
        pod.containers[names.CONTAINER_LOOKUP].message
        for pod in pods
        if pod.owner_uid == job.uid and names.CONTAINER_LOOKUP in pod.containers
    ]
    seen = next(filter(None, map(read_lookup, messages)), None)
    said = next(filter(None, map(read_complaint, messages)), None)
    trouble = None
    if seen is None:
        trouble = said.message if said is not None else plain(job.message) or "its pod said nothing"
    return WeightsLookup(
        source=record.source, revision=seen or record.revision, looks=record.looks + 1, looked=now,
        trouble=None if trouble is None else plain(trouble, limit=_MAX_TROUBLE),
    )  # fmt: skip


def _trouble(record: WeightsLookup) -> tuple[Note, ...]:
    if record.trouble is None:
        return ()
    message = f"which weights there are could not be seen: {record.trouble}"
    return (Note(reason=ConditionReason.WEIGHTS_UNKNOWN, message=message),)


def _source(spec: Weights) -> str:
    return revisions.digest(spec.model_dump(mode="json", by_alias=True, include={"s3", "hugging_face"}))[:16]


def _key(model: CompiledModel, where: str, number: int) -> JobKey:
    want = Wanted(name=f"{revisions.prefix(model.metadata.name)}-weights", spec_hash=where, image="")
    return JobKey(uid=model.metadata.uid, want=want, hardware=LOOKUP, attempt=number)


def _job(
    model: CompiledModel, key: JobKey, spec: Weights, source: Serving, installation: Installation
) -> dict[str, Any]:
    what = spec.model_dump(mode="json", by_alias=True, exclude_none=True, include={"s3", "hugging_face"})
    return lookup_job(model=model, key=key, what=what, serving=source, installation=installation)


def _living(jobs: Sequence[JobView]) -> tuple[JobView, ...]:
    return tuple(job for job in jobs if not job.deleting)


def _held(pods: Sequence[PodView]) -> tuple[PodView, ...]:
    return tuple(pod for pod in pods if pod.holds_result)
