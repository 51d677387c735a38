"""Typed views of raw Jobs and pods.

The API server's objects arrive as plain dictionaries, because typed clients drop fields they do not know. What the
decisions read of them is picked out here, once, and tolerantly: a missing field is a normal state of an object.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from preheat_operator.api import names

Raw = dict[str, Any]

_NEVER = datetime.min.replace(tzinfo=UTC)


class JobState(StrEnum):
    """Where a Job stands, by its own conditions."""

    ACTIVE = "Active"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class JobView:
    """What decisions read of a Job. `attempt` is 0 when its label is not a number."""

    name: str
    uid: str
    owner_uid: str = ""
    target_key: str = ""
    template_hash: str = ""
    revision: str = ""
    hardware: str = ""
    attempt: int = 0
    state: JobState = JobState.ACTIVE
    reason: str = ""
    message: str = ""
    created_at: datetime = _NEVER
    finished_at: datetime = _NEVER
    deleting: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerView:
    """What decisions read of a container's status. `exit_code` is None while it has not ended."""

    name: str
    started: bool = False
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    waiting_reason: str = ""
    waiting_message: str = ""
    ends: tuple[End, ...] = ()


@dataclass(frozen=True, kw_only=True)
class End:
    """How a container ended: now, or before it was restarted the last time."""

    exit_code: int
    reason: str = ""
    at: datetime = _NEVER


@dataclass(frozen=True, kw_only=True)
class PodView:
    """What decisions read of a pod.

    `owner_uid` is the uid of the controller that made it, `owner_kind` its kind. `images` is what the pod asks for by
    container, `image_ids` what the kubelet says that it runs. `serves` is the container that Preheat was added to, `node`
    where the pod is; both empty when there is none. `first` is the name of its first container, `gates` are its scheduling
    gates, `fetch_env` what the injected fetch container is told.
    """

    name: str
    namespace: str
    uid: str
    owner_uid: str = ""
    owner_kind: str = ""
    phase: str = "Pending"
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    image_ids: dict[str, str] = field(default_factory=dict)
    first_container: str = ""
    created_at: datetime = _NEVER
    scheduled_at: datetime | None = None
    unschedulable: str | None = None
    status_message: str = ""
    deleting: bool = False
    holds_result: bool = False
    serves: str = ""
    node: str = ""
    containers: dict[str, ContainerView] = field(default_factory=dict)
    first: str = ""
    gates: tuple[str, ...] = ()
    fetch_env: dict[str, str] = field(default_factory=dict)

    @property
    def gated(self) -> bool:
        """Whether our gate holds it back."""
        return names.GATE in self.gates

    @property
    def over_its_disk(self) -> bool:
        """Whether the kubelet evicted it for more local storage than a limit of its own: it would happen again.

        Told by the words alone (pkg/kubelet/eviction/helpers.go); one evicted for its node's sake has a condition, too.
        """
        return self.status_message.startswith("Evicted ") and " exceed" in self.status_message

    @property
    def must_fetch(self) -> bool:
        """Whether it fails rather than start without artifacts."""
        return self.fetch_env.get(names.ENV_WHEN_MISSING) == "Fail"

    @property
    def finished(self) -> bool:
        """Whether no container of the pod will run again."""
        return self.phase in ("Succeeded", "Failed")


def read_job(raw: Raw) -> JobView:
    """The view of a raw `batch/v1` Job."""
    metadata = _mapping(raw.get("metadata"))
    labels = _mapping(metadata.get("labels"))
    annotations = _mapping(metadata.get("annotations"))
    status = _mapping(raw.get("status"))
    state, reason, message, finished_at = JobState.ACTIVE, "", "", _NEVER
    for condition in _mappings(status.get("conditions")):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            state = JobState.SUCCEEDED if condition["type"] == "Complete" else JobState.FAILED
            reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
            finished_at = parse_time(condition.get("lastTransitionTime")) or _NEVER
    owner_uid, _ = _controller(metadata)
    attempt = str(labels.get(names.LABEL_ATTEMPT, ""))
    return JobView(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        owner_uid=owner_uid,
        target_key=str(annotations.get(names.ANNOTATION_TARGET_KEY, "")),
        template_hash=str(annotations.get(names.ANNOTATION_TEMPLATE_HASH, "")),
        revision=str(labels.get(names.LABEL_REVISION, "")),
        hardware=str(labels.get(names.LABEL_HARDWARE, "")),
        attempt=int(attempt) if attempt.isascii() and attempt.isdigit() and len(attempt) < 9 else 0,
        state=state,
        reason=reason,
        message=message,
        created_at=parse_time(metadata.get("creationTimestamp")) or _NEVER,
        finished_at=finished_at,
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def read_pod(raw: Raw) -> PodView:
    """The view of a raw `v1` Pod."""
    metadata, spec, status = _mapping(raw.get("metadata")), _mapping(raw.get("spec")), _mapping(raw.get("status"))
    scheduled_at, unschedulable = None, None
    for condition in _mappings(status.get("conditions")):
        if condition.get("type") != "PodScheduled":
            continue
        if condition.get("status") == "True":
            scheduled_at = parse_time(condition.get("lastTransitionTime"))
        elif condition.get("reason") == "Unschedulable":
            unschedulable = str(condition.get("message", ""))
    owner_uid, owner_kind = _controller(metadata)
    containers = [*_mappings(spec.get("initContainers")), *_mappings(spec.get("containers"))]
    statuses = [*_mappings(status.get("initContainerStatuses")), *_mappings(status.get("containerStatuses"))]
    return PodView(
        name=str(metadata.get("name", "")),
        namespace=str(metadata.get("namespace", "")),
        uid=str(metadata.get("uid", "")),
        owner_uid=owner_uid,
        owner_kind=owner_kind,
        phase=str(status.get("phase", "Pending")),
        labels={str(k): str(v) for k, v in _mapping(metadata.get("labels")).items()},
        annotations={str(k): str(v) for k, v in _mapping(metadata.get("annotations")).items()},
        images={str(c.get("name", "")): str(c.get("image", "")) for c in containers},
        image_ids={str(s.get("name", "")): str(s.get("imageID", "")) for s in statuses if s.get("imageID")},
        first_container=next((str(c.get("name", "")) for c in _mappings(spec.get("containers"))), ""),
        created_at=parse_time(metadata.get("creationTimestamp")) or _NEVER,
        scheduled_at=scheduled_at,
        unschedulable=unschedulable,
        status_message=" ".join(str(status[k]) for k in ("reason", "message") if status.get(k)),
        deleting=bool(metadata.get("deletionTimestamp")),
        holds_result=names.FINALIZER_RESULT in (metadata.get("finalizers") or ()),
        serves=next((str(c.get("name", "")) for c in _mappings(spec.get("containers")) if _is_served(c)), ""),
        node=str(spec.get("nodeName") or ""),
        containers={str(s.get("name", "")): _read_container(s) for s in statuses},
        first=next((str(c.get("name", "")) for c in _mappings(spec.get("containers"))), ""),
        gates=tuple(str(g.get("name", "")) for g in _mappings(spec.get("schedulingGates"))),
        fetch_env=_fetch_env(spec),
    )


def parse_time(value: object) -> datetime | None:
    """A Kubernetes timestamp as an aware datetime; None when absent or not one."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(value)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def _read_container(raw: Raw) -> ContainerView:
    # A container that was restarted carries how it ended before in lastState. What a compile pod came to is never there:
    # init containers of a Job never restart.
    state = _mapping(raw.get("state"))
    terminated, waiting = _mapping(state.get("terminated")), _mapping(state.get("waiting"))
    exit_code = terminated.get("exitCode")
    return ContainerView(
        name=str(raw.get("name", "")),
        started=bool(state.get("running") or terminated.get("startedAt")),
        exit_code=exit_code if isinstance(exit_code, int) else None,
        reason=str(terminated.get("reason", "")),
        message=str(terminated.get("message", "")),
        waiting_reason=str(waiting.get("reason", "")),
        waiting_message=str(waiting.get("message", "")),
        ends=_ends(raw),
    )


def _is_served(container: Raw) -> bool:
    return any(entry.get("name") == names.ENV_DIR for entry in _mappings(container.get("env")))


def _ends(raw: Raw) -> tuple[End, ...]:
    found = []
    for state in ("state", "lastState"):
        terminated = _mapping(_mapping(raw.get(state)).get("terminated"))
        code = terminated.get("exitCode")
        if isinstance(code, int):
            at = parse_time(terminated.get("finishedAt")) or _NEVER
            found.append(End(exit_code=code, reason=str(terminated.get("reason", "")), at=at))
    return tuple(found)


def _fetch_env(spec: Raw) -> dict[str, str]:
    for container in _mappings(spec.get("initContainers")):
        if container.get("name") == names.CONTAINER_FETCH:
            entries = [e for e in _mappings(container.get("env")) if isinstance(e.get("value"), str)]
            return {str(e.get("name", "")): e["value"] for e in entries}
    return {}


def _controller(metadata: Raw) -> tuple[str, str]:
    for reference in _mappings(metadata.get("ownerReferences")):
        if reference.get("controller"):
            return str(reference.get("uid", "")), str(reference.get("kind", ""))
    return "", ""


def _mapping(value: object) -> Raw:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
