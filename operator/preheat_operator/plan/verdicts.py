"""How an attempt ended: from a finished Job and its pods to verdicts, or to a reason to try again.

Read in the order in which things can go wrong: the Job's own deadline, then the containers in the order they run.
Every path ends in one of three answers, so a Job can be finished in ways nobody thought of and still get an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.enums import VerdictReason
from preheat_operator.plan.objects import ContainerView, JobState, JobView, PodView
from preheat_operator.plan.termination import (
    Complaint,
    Progress,
    Published,
    TargetName,
    plain,
    read_compile,
    read_complaint,
    read_publish,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

# Waiting reasons of a container whose image cannot be had.
IMAGE_TROUBLE = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
     "ImageInspectError", "SignatureValidationFailed"}
)  # fmt: skip


class RetryCause(StrEnum):
    """Why an attempt that ended without a result is worth another one."""

    STORE_UNREACHABLE = "StoreUnreachable"
    STORE_DENIED = "StoreDenied"
    STORE_CREDENTIALS_MISSING = "StoreCredentialsMissing"
    KILLED = "Killed"
    OUT_OF_MEMORY = "OutOfMemory"
    DISK_FULL = "DiskFull"
    RESULT_LOST = "ResultLost"


@dataclass(frozen=True, kw_only=True)
class TryAgain:
    """The attempt has no result. `without` is a target that must not be tried again."""

    cause: RetryCause
    message: str
    without: TargetName | None = None


@dataclass(frozen=True, kw_only=True)
class GaveUp:
    """The attempt has no result and another one would have none either."""

    reason: VerdictReason
    message: str


Outcome = Published | TryAgain | GaveUp

_EXIT_NO_TORCH = 65
_EXITS_FINAL = range(64, 79)
_EXIT_KILLED = 137
_STORE_COMPLAINTS = {
    "StoreUnreachable": RetryCause.STORE_UNREACHABLE,
    "StoreDenied": RetryCause.STORE_DENIED,
    "StoreCredentialsMissing": RetryCause.STORE_CREDENTIALS_MISSING,
}


def outcome(job: JobView, pods: Sequence[PodView]) -> Outcome:
    """How a finished Job ended. `pods` are the Job's own."""
    ordered = _newest_first(pods)
    if job.state == JobState.SUCCEEDED:
        for pod in ordered:
            published = read_publish(_container(pod, names.CONTAINER_PUBLISH).message)
            if pod.phase == "Succeeded" and isinstance(published, Published):
                return published
        return TryAgain(
            cause=RetryCause.RESULT_LOST,
            message=f"Job {job.name} finished, but its pod's termination message is gone or unreadable",
        )
    if job.reason == "DeadlineExceeded":
        return _deadline(job, ordered)
    for pod in ordered:
        ending = _failed_pod(job, pod)
        if ending is not None:
            return ending
    return TryAgain(
        cause=RetryCause.RESULT_LOST, message=f"Job {job.name} failed and its pods are gone: {plain(job.message)}"
    )


def so_far(job: JobView, pods: Sequence[PodView]) -> TryAgain | None:
    """Why the last pod that a running Job lost has no result; None while it lost none.

    A Job replaces a pod by itself, and each may take minutes to find out that, say, the store is still down.
    """
    for pod in _newest_first(pods):
        if pod.phase == "Failed":
            ending = _failed_pod(job, pod)
            return ending if isinstance(ending, TryAgain) else None
    return None


def waiting_for_image(pod: PodView) -> str | None:
    """Why an image of the pod cannot be pulled, in words; None when that is not what it waits for."""
    for container in pod.containers.values():
        if container.waiting_reason in IMAGE_TROUBLE:
            why = plain(container.waiting_message, limit=512)
            image = pod.images.get(container.name, "")
            return f"{container.waiting_reason}: image {image!r} of container {container.name!r}: {why}"
    return None


def _newest_first(pods: Sequence[PodView]) -> list[PodView]:
    return sorted(pods, key=lambda pod: (pod.created_at, pod.name), reverse=True)


def _deadline(job: JobView, pods: Sequence[PodView]) -> Outcome:
    for pod in pods:
        image = waiting_for_image(pod)
        if image is not None:
            return GaveUp(reason=VerdictReason.IMAGE_UNAVAILABLE, message=image)
    if not pods:
        return GaveUp(
            reason=VerdictReason.TEMPLATE_REFUSED,
            message=f"Job {job.name} could not make a pod within its deadline: see its events (quota, policy, account)",
        )
    return GaveUp(
        reason=VerdictReason.TIMEOUT,
        message=f"Job {job.name} ran into its deadline: raise spec.compile.timeoutSeconds, or compile fewer buckets",
    )


def _failed_pod(job: JobView, pod: PodView) -> Outcome | None:
    if pod.phase == "Failed" and pod.over_its_disk:
        return _over_its_disk(pod)
    for name, status in pod.containers.items():
        if status.exit_code in (None, 0):
            continue
        if name == names.CONTAINER_COMPILE:
            return _compile(job, status)
        if name in (names.CONTAINER_TOOLKIT, names.CONTAINER_PUBLISH):
            return _own(status)
        return TryAgain(
            cause=RetryCause.KILLED,
            message=f"init container {name!r} of the workload ended with exit code {status.exit_code} ({pod.name})",
        )
    if pod.phase == "Failed":
        return TryAgain(
            cause=RetryCause.KILLED,
            message=f"pod {pod.name} ended before its containers did: {plain(pod.status_message) or 'no reason given'}",
        )
    return None


def _compile(job: JobView, status: ContainerView) -> Outcome:
    said = read_compile(status.message)
    if status.exit_code == _EXIT_NO_TORCH:
        return GaveUp(reason=_reason(said, VerdictReason.TORCH_MISSING), message=_words(said, status))
    if status.exit_code in _EXITS_FINAL:
        return GaveUp(reason=_reason(said, VerdictReason.INTERNAL), message=_words(said, status))
    if status.reason in ("StartError", "ContainerCannotRun"):
        return GaveUp(
            reason=VerdictReason.TORCH_MISSING,
            message="the image has no Python or shell where compile was to start it; see the pod's container statuses",
        )
    running = said.running if isinstance(said, Progress) else None
    if status.reason == "OOMKilled":
        where = f"while compiling {running}" if running else "before the first target"
        return TryAgain(
            cause=RetryCause.OUT_OF_MEMORY,
            message=f"compile was killed for memory {where}: raise the memory limit in spec.hardware[].resources",
            without=running,
        )
    # A target that crashes the driver would do so again: from the second attempt on it is left out as well.
    crashed_before = job.attempt > 1 and status.exit_code != _EXIT_KILLED
    return TryAgain(
        cause=RetryCause.KILLED,
        message=f"compile ended with exit code {status.exit_code}" + (f" while compiling {running}" if running else ""),
        without=running if crashed_before else None,
    )


def _over_its_disk(pod: PodView) -> Outcome:
    said = read_compile(_container(pod, names.CONTAINER_COMPILE).message)
    running = said.running if isinstance(said, Progress) else None
    # The kubelet's own words name the limit, and the container or volume that it is of.
    message = (
        f"pod {pod.name} was evicted{f' while compiling {running}' if running else ''}: {plain(pod.status_message)}"
        " Raise that limit (ephemeral-storage in spec.hardware[].resources)"
    )
    if running is None:
        return GaveUp(reason=VerdictReason.DISK_FULL, message=message)
    return TryAgain(cause=RetryCause.DISK_FULL, message=message, without=running)


def _own(status: ContainerView) -> Outcome:
    said = read_complaint(status.message)
    cause = _STORE_COMPLAINTS.get(said.reason) if said else None
    if cause is not None:
        return TryAgain(cause=cause, message=_words(said, status))
    if status.exit_code in _EXITS_FINAL:
        return GaveUp(reason=VerdictReason.INTERNAL, message=_words(said, status))
    return TryAgain(cause=RetryCause.KILLED, message=_words(said, status))


def _reason(said: Complaint | Progress, default: VerdictReason) -> VerdictReason:
    if isinstance(said, Complaint) and said.reason in set(VerdictReason):
        return VerdictReason(said.reason)
    return default


def _words(said: Complaint | Progress | None, status: ContainerView) -> str:
    if isinstance(said, Complaint) and said.message:
        return said.message
    return f"{status.name} ended with exit code {status.exit_code} ({status.reason or 'no reason given'})"


def _container(pod: PodView, name: str) -> ContainerView:
    return pod.containers.get(name) or ContainerView(name=name)
