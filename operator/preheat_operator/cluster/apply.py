"""Carrying out a plan. Every step may be repeated, and a crash between any two is repaired by planning again.

The order is what makes that so: a Job is made before status says that it compiles, a result is in status before the
pod that brought it may go, and an index allows nothing that status does not record.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.enums import WorkloadKind
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import Api, ApiError, Raw
from preheat_operator.plan.learned import is_read
from preheat_operator.plan.objects import JobView, PodView, read_job

if TYPE_CHECKING:
    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import CompiledModelStatus
    from preheat_operator.plan.conditions import Announcement
    from preheat_operator.plan.namespace import IndexState, RestartDue

_LOG = logging.getLogger(__name__)
_COMPONENT = "preheat-controller"
_MAX_EVENT_MESSAGE = 1024


class Made(StrEnum):
    """What became of a Job that was to be made."""

    YES = "Yes"
    TAKEN = "Taken"
    REFUSED = "Refused"


async def make_job(api: Api, job: Raw) -> tuple[Made, str]:
    """Make a Job. Taken: somebody else's has its name. Refused: with what the API server said."""
    namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
    try:
        await api.create(resources.jobs(namespace), job)
    except ApiError as error:
        if error.status == 409:
            return await _whose(api, job), ""
        if error.is_refusal:
            return Made.REFUSED, error.message
        raise
    _LOG.info("made Job %s/%s", namespace, name)
    return Made.YES, ""


async def check_job(api: Api, job: Raw) -> str | None:
    """What the API server would say against a Job; None when nothing, or when there is one of that name already."""
    try:
        await api.create(resources.jobs(job["metadata"]["namespace"]), job, dry_run=True)
    except ApiError as error:
        if error.status == 409:
            return None
        if error.is_refusal:
            return error.message
        raise
    return None


async def write_status(api: Api, model: CompiledModel, status: CompiledModelStatus) -> bool:
    """Write the status, if it is another one than there was; answers whether it was written.

    A model that changed since it was read is a conflict (409). Above all one that was deleted and made again: of what is
    written to `/status` the API server ignores the uid, so the version alone keeps a status from another object.
    """
    if status.to_api() == model.status.to_api():
        return False
    body: Raw = {
        "apiVersion": names.API_VERSION,
        "kind": names.COMPILED_MODEL,
        "metadata": {
            "name": model.metadata.name,
            "namespace": model.metadata.namespace,
            "resourceVersion": model.metadata.resource_version,
        },
        "status": status.to_api(),
    }
    await api.apply(resources.compiled_models(model.metadata.namespace, model.metadata.name, "status"), body)
    return True


async def stop_job(api: Api, namespace: str, job: JobView) -> None:
    """Delete a Job and, in the background, its pods."""
    if await api.delete(resources.jobs(namespace, job.name), uid=job.uid):
        _LOG.info("deleted Job %s/%s", namespace, job.name)


async def release_pod(api: Api, namespace: str, pod: PodView) -> None:
    """Remove our finalizer from a compile pod, and no other; nothing happens when it is gone."""
    path = resources.pods(namespace, pod.name)
    for _ in range(5):
        raw = await api.get(path)
        metadata = (raw or {}).get("metadata") or {}
        finalizers = metadata.get("finalizers") or []
        if metadata.get("uid") != pod.uid or names.FINALIZER_RESULT not in finalizers:
            return
        position = finalizers.index(names.FINALIZER_RESULT)
        operations: list[Raw] = [
            {"op": "test", "path": f"/metadata/finalizers/{position}", "value": names.FINALIZER_RESULT},
            {"op": "remove", "path": f"/metadata/finalizers/{position}"},
        ]
        try:
            await api.json_patch(path, operations)
        except ApiError as error:
            if error.status == 404:
                return
            # Somebody else changed the list between our two requests: look again.
            if error.status not in (409, 422):
                raise
            continue
        return
    raise ApiError(status=409, reason="Conflict", message=f"finalizers of pod {pod.name} keep changing")


async def write_index(api: Api, namespace: str, state: IndexState) -> None:
    """Write a namespace's index with the notes on it; made if it is not there."""
    body: Raw = {
        "apiVersion": names.API_VERSION,
        "kind": names.COMPILED_MODEL_INDEX,
        "metadata": {"name": names.INDEX_NAME, "namespace": namespace, "annotations": state.notes.annotations()},
        "models": state.models,
    }
    await api.apply(resources.index(namespace), body)


async def delete_index(api: Api, namespace: str) -> None:
    """Delete a namespace's index."""
    await api.delete(resources.index(namespace))


async def annotate_pod(api: Api, pod: PodView, text: str) -> None:
    """Say on a pod why it was not injected; the pod may be gone meanwhile."""
    body = {"metadata": {"uid": pod.uid, "annotations": {names.ANNOTATION_INJECTED: text}}}
    try:
        await api.merge_patch(resources.pods(pod.namespace, pod.name), body)
    except ApiError as error:
        if error.status not in (404, 409):
            raise


async def replace_pod(api: Api, pod: PodView) -> None:
    """Delete a pod that cannot start, so that its controller makes one that can."""
    if await api.delete(resources.pods(pod.namespace, pod.name), uid=pod.uid):
        _LOG.warning("deleted pod %s/%s: what is added to it keeps it from starting", pod.namespace, pod.name)


async def renew_pod(api: Api, pod: PodView) -> None:
    """Delete a pod that waited, so that its controller makes one that is given what there is now."""
    if await api.delete(resources.pods(pod.namespace, pod.name), uid=pod.uid):
        _LOG.info("deleted pod %s/%s, which waited: its controller makes it anew", pod.namespace, pod.name)


async def restart_workload(api: Api, due: RestartDue) -> None:
    """Restart a workload as `kubectl rollout restart` does; it may be gone meanwhile."""
    reference = due.model.spec.workload_ref
    if reference is None or not is_read(reference):
        return
    namespace = due.model.metadata.namespace
    annotations = {names.ANNOTATION_RESTARTED_AT: due.since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    body: Raw = {
        "metadata": {"uid": due.workload["metadata"]["uid"]},
        "spec": {"template": {"metadata": {"annotations": annotations}}},
    }
    try:
        await api.merge_patch(resources.workload(WorkloadKind(reference.kind), namespace, reference.name), body)
    except ApiError as error:
        if error.status not in (404, 409):
            raise
        return
    _LOG.info("restarted %s %s/%s for CompiledModel %s", reference.kind, namespace, reference.name,
              due.model.metadata.name)  # fmt: skip


async def announce(api: Api, model: CompiledModel, announcement: Announcement, *, at: str) -> None:
    """Write an Event. It repeats what a condition says, so failing to write it is not worth failing for."""
    body: Raw = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{model.metadata.name}.", "namespace": model.metadata.namespace},
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.COMPILED_MODEL,
            "name": model.metadata.name,
            "namespace": model.metadata.namespace,
            "uid": model.metadata.uid,
        },
        "type": "Warning" if announcement.warning else "Normal",
        "reason": announcement.reason,
        "message": announcement.message[:_MAX_EVENT_MESSAGE],
        "source": {"component": _COMPONENT},
        "reportingComponent": _COMPONENT,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    try:
        await api.create(resources.events(model.metadata.namespace), body)
    except ApiError as error:
        _LOG.warning("an Event for CompiledModel %s/%s was not written: %s",
                     model.metadata.namespace, model.metadata.name, error)  # fmt: skip


async def _whose(api: Api, job: Raw) -> Made:
    """Whether the Job that has our name is ours after all: made by us before a crash, or being deleted."""
    existing = await api.get(resources.jobs(job["metadata"]["namespace"], job["metadata"]["name"]))
    if existing is None:
        return Made.YES
    view = read_job(existing)
    owner = job["metadata"]["ownerReferences"][0]["uid"]
    key = job["metadata"]["annotations"][names.ANNOTATION_TARGET_KEY]
    return Made.YES if (view.owner_uid, view.target_key) == (owner, key) else Made.TAKEN
