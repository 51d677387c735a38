"""Which pods that wait go on, with what, and which are made anew.

A pod waits behind a scheduling gate (whenMissing Wait), or fails until something is there (Fail). It goes on as soon
as its outcome is known, and never waits for what will not come: that is the promise behind holding pods back at all.
Which artifacts fit a pod is known only on its node, so every profile of a revision counts as one that could serve it.

What was added to a pod cannot be changed any more. Where it rests on a guess about the image's PYTHONPATH that turned
out wrong, or where nothing was added, the pod is deleted and its controller makes it again: it held no node.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.api.enums import RevisionState, Suspend, WhenMissing
from preheat_operator.api.index import WAIT_TIMEOUT_SECONDS
from preheat_operator.plan.workload import Serving, serving

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.index import ImageEntry
    from preheat_operator.plan.objects import PodView

_MAX_WAIT_SECONDS: Final = 86400
#: A Deployment's controller takes superseded pods away itself, as soon as it has seen the new template.
_UNSETTLED_AGAIN: Final = timedelta(seconds=2)
_UNDECIDED: Final = ""
#: Of a revision of which nothing more comes, what is said of it.
_TOLD: Final = {
    RevisionState.READY: "cannot be given to it",
    RevisionState.FAILED: "failed",
    RevisionState.TAKEN_BACK: "was taken back",
}
_ASKED: Final = frozenset({WhenMissing.COLD.value, WhenMissing.WAIT.value, WhenMissing.FAIL.value})


@dataclass(frozen=True, kw_only=True)
class Opening:
    """A pod that goes on: the values its annotations get. It has our gate, or fails until it gets them."""

    pod: PodView
    manifest: str
    injected: str


@dataclass(frozen=True, kw_only=True)
class Gates:
    """What to do with pods that wait. `wake`: models that have not taken up an image that is waited for."""

    open: tuple[Opening, ...] = ()
    replace: tuple[PodView, ...] = ()
    wake: tuple[str, ...] = ()
    look_again_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Waited:
    """What the decisions about a namespace's waiting pods rest on.

    Attributes:
        models: CompiledModels that are not being deleted, by name.
        workloads: the raw workload of each model that has waiting pods and follows one; None when it is not there.
        entries: the image lines of the namespace's index, as they should be now.
        paused: whether injection is paused in the namespace.
        now: the time.
    """

    models: Mapping[str, CompiledModel]
    workloads: Mapping[str, dict[str, Any] | None]
    entries: Mapping[tuple[str, str], ImageEntry]
    paused: bool
    now: datetime


def waits(pod: PodView) -> bool:
    """Whether a pod waits for us: it has our gate, or fails until something is there."""
    if pod.deleting or pod.finished:
        return False
    failing = pod.must_fetch and pod.annotations.get(names.ANNOTATION_MANIFEST) == names.MANIFEST_PENDING
    return pod.gated or (failing and pod.phase == "Pending")


def deadline(pod: PodView) -> datetime:
    """When a pod goes on whatever has become of its model."""
    text = pod.annotations.get(names.ANNOTATION_WAIT_SECONDS, "")
    usable = text.isascii() and text.isdigit() and len(text) <= 6
    return pod.created_at + timedelta(seconds=min(int(text), _MAX_WAIT_SECONDS) if usable else WAIT_TIMEOUT_SECONDS)


def overdue(pod: PodView) -> Opening:
    """How a pod goes on whose time is over."""
    seconds = int((deadline(pod) - pod.created_at).total_seconds())
    return _without(pod, f"nothing was ready within the {seconds} s that it waited")


def decide(pods: Iterable[PodView], observed: Waited) -> Gates:
    """What to do with the waiting ones of a namespace's labelled pods."""
    opening: list[Opening] = []
    replace: list[PodView] = []
    wake: set[str] = set()
    times: list[datetime] = []
    for pod in sorted((p for p in pods if waits(p)), key=lambda p: (p.created_at, p.name)):
        outcome = _outcome(pod, observed)
        if isinstance(outcome, Opening):
            opening.append(outcome)
        elif isinstance(outcome, _Replace):
            replace.append(pod)
        else:
            times += [] if outcome.until is None else [outcome.until]
            wake |= {outcome.wake} if outcome.wake else set()
    return Gates(
        open=tuple(opening), replace=tuple(replace), wake=tuple(sorted(wake)), look_again_at=min(times, default=None)
    )


@dataclass(frozen=True, kw_only=True)
class _Stay:
    until: datetime | None = None
    wake: str = ""


class _Replace:
    pass


def _outcome(pod: PodView, observed: Waited) -> Opening | _Replace | _Stay:
    name = pod.labels.get(names.LABEL_MODEL, "")
    model = observed.models.get(name)
    image = _image(pod, model)
    entry = observed.entries.get((name, image))
    if not observed.paused and entry is not None and entry.manifest != names.MANIFEST_NONE:
        return _with(pod, entry)
    if not pod.gated:
        # It fails for as long as that is asked for; what is made in its place is admitted by what holds now.
        asked_for = (
            model is not None
            and not observed.paused
            and _rule(pod, model)
            in (
                WhenMissing.FAIL.value,
                _UNDECIDED,
            )
        )
        return _Stay() if asked_for or not _made_again(pod) else _Replace()
    why = _why_not(pod, name, model, observed)
    if why is not None:
        # Where injection is paused, what was added to it would keep it from starting.
        return _Replace() if observed.paused and _injected(pod) and _made_again(pod) else _without(pod, why)
    assert model is not None  # noqa: S101 - said by `_why_not`; for the type checker
    if entry is not None:
        # Nothing is going to come, and the index says so to whatever is made in its place.
        guessed = names.ENV_ASSUMED_PYTHON_PATH in pod.fetch_env
        why = f"nothing could be compiled for image {image}; see the conditions of CompiledModel {name}"
        return _Replace() if guessed and _made_again(pod) else _without(pod, why)
    return _unfinished(pod, model, image, observed)


def _why_not(pod: PodView, name: str, model: CompiledModel | None, observed: Waited) -> str | None:
    """Why a pod is not held back any longer, whatever stands in status; None when it is."""
    if pod.labels.get(names.LABEL_INJECT) == names.INJECT_DISABLED:
        return f"the pod's label {names.LABEL_INJECT} is {names.INJECT_DISABLED}"
    if model is None:
        return f"there is no CompiledModel {name} in this namespace"
    if observed.paused:
        return "injection is paused in this namespace; see the condition Degraded of the CompiledModel"
    if model.spec.suspend == Suspend.ENABLED:
        return f"CompiledModel {name} is suspended"
    rule = _rule(pod, model)
    if rule not in (WhenMissing.WAIT.value, _UNDECIDED):
        return f"CompiledModel {name} lets its pods wait no longer: whenMissing is {rule} now"
    if observed.now >= deadline(pod):
        return overdue(pod).injected.removeprefix(names.INJECTED_NO_PREFIX)
    return None


def _rule(pod: PodView, model: CompiledModel) -> str:
    """What holds for the pod: its own annotation, else what the model's spec comes to, once somebody looked at it."""
    asked = pod.annotations.get(names.ANNOTATION_WHEN_MISSING, "")
    if asked in _ASKED:
        return asked
    decided = model.status.when_missing
    return _UNDECIDED if decided is None else decided.value


def _unfinished(pod: PodView, model: CompiledModel, image: str, observed: Waited) -> Opening | _Stay:
    """A pod whose image has neither a manifest nor the word that there will be none."""
    name = model.metadata.name
    revision = next((r for r in model.status.revisions if r.image == image), None)
    if revision is not None and revision.state in _TOLD:
        told = _TOLD[revision.state]
        return _without(pod, f"revision {revision.name} {told}; see the conditions of CompiledModel {name}")
    workload = observed.workloads.get(name)
    source = serving(spec=model.spec, workload=workload)
    if not isinstance(source, Serving):
        # The workload may come, or come back; its pods are told of in its own time.
        return _Stay(until=deadline(pod))
    if source.image != image:
        if not _settled(workload):
            return _Stay(until=min(deadline(pod), observed.now + _UNSETTLED_AGAIN))
        return _without(pod, f"nothing is compiled for image {image}: the workload of CompiledModel {name} has another")
    return _Stay(until=deadline(pod), wake="" if revision is not None else name)


def _settled(workload: dict[str, Any] | None) -> bool:
    """Whether the workload's own controller has acted on its newest template."""
    if workload is None:
        return True
    seen = (workload.get("status") or {}).get("observedGeneration", 0)
    return bool(seen >= (workload.get("metadata") or {}).get("generation", 0))


def _with(pod: PodView, entry: ImageEntry) -> Opening | _Replace:
    guess = pod.fetch_env.get(names.ENV_ASSUMED_PYTHON_PATH)
    right = guess is None or guess == (entry.python_path or "-").replace("$(", "$$(")
    if _injected(pod) and right:
        return Opening(pod=pod, manifest=entry.manifest, injected=names.INJECTED_YES)
    if _made_again(pod):
        return _Replace()
    if not _injected(pod):
        return _without(
            pod, f"before image {entry.image} was compiled nothing could be added to it; make the pod again"
        )
    return _without(pod, f"PYTHONPATH of image {entry.image} is another than was assumed; make the pod again")


def _without(pod: PodView, why: str) -> Opening:
    return Opening(pod=pod, manifest=names.MANIFEST_NONE, injected=f"{names.INJECTED_NO_PREFIX}{why}")


def _injected(pod: PodView) -> bool:
    return names.CONTAINER_FETCH in pod.images


def _made_again(pod: PodView) -> bool:
    """Whether somebody makes another pod in its place; a Job would count it as a failure."""
    return bool(pod.owner_uid) and pod.owner_kind != "Job"


def _image(pod: PodView, model: CompiledModel | None) -> str:
    """Image of the container that serves, chosen as admission does."""
    container = pod.annotations.get(names.ANNOTATION_CONTAINER)
    if not container and model is not None and model.spec.workload_ref is not None:
        container = model.spec.workload_ref.container
    return pod.images.get(container or pod.first, "")
