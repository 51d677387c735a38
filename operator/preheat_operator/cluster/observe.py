"""Reading what a decision rests on, in an order that makes reading again unnecessary.

Jobs before pods: a Job that is seen finished has pods that were finished before, so their messages are there to read.
Every read is consistent (served by etcd's quorum): a stale answer could make a Job twice.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.enums import WorkloadKind
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import Api, ApiError, Raw
from preheat_operator.plan.capacity import NO_POD_AFTER
from preheat_operator.plan.indexnotes import IndexNotes, read_notes
from preheat_operator.plan.learned import is_read, learned
from preheat_operator.plan.namespace import IndexState, NamespaceObserved, needs_workload
from preheat_operator.plan.objects import JobState, JobView, PodView, read_job, read_pod
from preheat_operator.plan.observed import Observed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_operator.cluster.keys import ModelKey

_LOG = logging.getLogger(__name__)
_MAX_TROUBLES = 8


def now() -> datetime:
    """The time, to the second, as Kubernetes writes it."""
    return datetime.now(UTC).replace(microsecond=0)


async def observe_children(api: Api, key: ModelKey) -> tuple[list[JobView], list[PodView]]:
    """Jobs and pods that carry the model's label, whoever made them."""
    selector = f"{names.LABEL_COMPILED_MODEL}={key.name}"
    jobs = [read_job(raw) for raw in await api.list_all(resources.jobs(key.namespace), labels=selector)]
    pods = [read_pod(raw) for raw in await api.list_all(resources.pods(key.namespace), labels=selector)]
    return jobs, pods


async def observe_model(api: Api, key: ModelKey, raw: Raw) -> Observed:
    """Everything a decision about one model rests on. `raw` is the CompiledModel as just read.

    Raises pydantic.ValidationError when the stored object is not one this release understands.
    """
    model = CompiledModel.model_validate(raw)
    reference = model.spec.workload_ref
    workload = None
    if reference is not None and is_read(reference):
        workload = await api.get(resources.workload(WorkloadKind(reference.kind), key.namespace, reference.name))
    jobs, pods = await observe_children(api, key)
    labelled = await api.list_all(resources.pods(key.namespace), labels=f"{names.LABEL_MODEL}={key.name}")
    index = await api.get(resources.index(key.namespace))
    moment = now()
    return Observed(
        model=model,
        workload=workload,
        jobs=jobs,
        pods=pods,
        learned=()
        if reference is None or is_read(reference)
        else learned(
            labelled, reference=reference, image_paths={r.image: r.python_path for r in model.status.revisions}
        ),
        serving_pods=[read_pod(raw) for raw in labelled],
        notes=IndexNotes() if index is None else read_notes(_annotations(index)),
        troubles=await _troubles(api, key.namespace, jobs=jobs, pods=pods, moment=moment),
        now=moment,
    )


async def observe_namespace(api: Api, namespace: str, *, image: str) -> NamespaceObserved:
    """Everything a decision about one namespace rests on."""
    read = [_readable(raw) for raw in await api.list_all(resources.compiled_models(namespace))]
    models = [model for model in read if model is not None]
    index = await api.get(resources.index(namespace))
    pods = await api.list_all(resources.pods(namespace), labels=names.LABEL_MODEL)
    state = None
    if index is not None:
        state = IndexState(models=str(index.get("models", "")), notes=read_notes(_annotations(index)))
    views = [read_pod(raw) for raw in pods]
    workloads = {}
    for model in models:
        reference = model.spec.workload_ref
        # Most models have nobody waiting; reading every workload each time would be the most expensive part of this.
        if reference is not None and is_read(reference) and needs_workload(model, views):
            path = resources.workload(WorkloadKind(reference.kind), namespace, reference.name)
            workloads[model.metadata.name] = await api.get(path)
    return NamespaceObserved(models=models, pods=views, index=state, image=image, workloads=workloads, now=now())


def _readable(raw: Raw) -> CompiledModel | None:
    try:
        return CompiledModel.model_validate(raw)
    except ValueError:
        # Its own reconcile says so in a condition; the others must not suffer from it.
        return None


async def _troubles(
    api: Api, namespace: str, *, jobs: Iterable[JobView], pods: Iterable[PodView], moment: datetime
) -> dict[str, str]:
    """The newest warning Event of each active Job without a pod and of each pod that does not get to its containers."""
    pods = list(pods)
    pods_of = {pod.owner_uid for pod in pods if not pod.finished}
    suspects = [
        job.uid
        for job in jobs
        if job.state == JobState.ACTIVE and job.uid not in pods_of and _older(job.created_at, moment)
    ]
    suspects += [
        pod.uid
        for pod in pods
        if not pod.finished and pod.scheduled_at and not _started(pod) and _older(pod.scheduled_at, moment)
    ]
    troubles: dict[str, str] = {}
    for uid in suspects[:_MAX_TROUBLES]:
        try:
            events = await api.list_all(resources.events(namespace), fields=f"type=Warning,involvedObject.uid={uid}")
        except ApiError as error:
            if not error.is_refusal:
                raise
            _LOG.warning("Events in %s cannot be read, so conditions cannot quote them: %s", namespace, error)
            return {}
        if events:
            newest = max(events, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""))
            troubles[uid] = f"{newest.get('reason', '')}: {newest.get('message', '')}"
    return troubles


def _older(since: datetime, moment: datetime, age: timedelta = NO_POD_AFTER) -> bool:
    return since + age <= moment


def _started(pod: PodView) -> bool:
    return any(container.started for container in pod.containers.values())


def _annotations(raw: Raw) -> dict[str, str]:
    return (raw.get("metadata") or {}).get("annotations") or {}
