"""The whole decision about one namespace: what admission may read, and what becomes of labelled pods.

Apart from the decision about a model, because pods of one namespace share one index and one breaker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.api.enums import RestartState
from preheat_operator.plan import annotate, breaker, gates
from preheat_operator.plan.index import index_text
from preheat_operator.plan.indexnotes import IndexNotes
from preheat_operator.plan.rollout import restarted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.plan.gates import Opening
    from preheat_operator.plan.objects import PodView

_AFTER_WRITE: Final = timedelta(seconds=2)


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """An index as it is or should be: its text and the notes on it."""

    models: str
    notes: IndexNotes = field(default_factory=IndexNotes)


@dataclass(frozen=True, kw_only=True)
class NamespaceObserved:
    """Everything a decision about one namespace rests on.

    `index`: None when there is none; `image`: the product's; `workloads`: those of models that have waiting pods, or a
    restart that is due, by the model's name, None when they are not there.
    """

    models: Sequence[CompiledModel]
    pods: Sequence[PodView]
    index: IndexState | None
    image: str
    now: datetime
    workloads: Mapping[str, dict[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RestartDue:
    """A workload to restart: the raw object, the model it is for, and the time its template gets."""

    workload: dict[str, Any]
    model: CompiledModel
    since: datetime


@dataclass(frozen=True, kw_only=True)
class NamespacePlan:
    """What to do, in this order: write the index (or delete it), annotate pods, let waiting ones go on, delete stuck
    ones and those that are to be made again, restart workloads.

    `wake`: models whose conditions speak of the notes, which have changed, or that have not seen a waiting pod's image.
    """

    write: IndexState | None = None
    delete_index: bool = False
    annotate: tuple[tuple[PodView, str], ...] = ()
    open: tuple[Opening, ...] = ()
    replace: tuple[PodView, ...] = ()
    renew: tuple[PodView, ...] = ()
    restart: tuple[RestartDue, ...] = ()
    wake: tuple[str, ...] = ()
    look_again_seconds: float | None = None


def plan_namespace(observed: NamespaceObserved) -> NamespacePlan:
    """What to do for one namespace now."""
    models = {m.metadata.name: m for m in observed.models if m.metadata.deletion_timestamp is None}
    before = observed.index.notes if observed.index is not None else IndexNotes()
    tripped = breaker.decide(pause=before.pause, pods=observed.pods, image=observed.image, now=observed.now)
    paused = tripped.pause is not None
    text = index_text(models=models.values(), paused=paused)
    state = IndexState(models=text.models, notes=IndexNotes(pause=tripped.pause, left_out=text.left_out))
    verdicts = ((p, annotate.verdict(pod=p, models=models, paused=paused)) for p in observed.pods)
    held = gates.decide(
        observed.pods,
        gates.Waited(
            models=models, workloads=observed.workloads, entries={(e.model, e.image): e for e in text.images},
            paused=paused, now=observed.now,
        ),
    )  # fmt: skip
    write = state if models and state != observed.index else None
    times = [t for t in (tripped.look_again_at, held.look_again_at) if t is not None]
    # A pod made between our look at the pods and this write is held back for what the index has now.
    times += [observed.now + _AFTER_WRITE] if write is not None else []
    look_again = min(times, default=None)
    return NamespacePlan(
        write=write,
        delete_index=not models and observed.index is not None,
        annotate=tuple((pod, text) for pod, text in verdicts if text is not None),
        open=held.open,
        replace=tripped.replace,
        renew=held.replace,
        restart=() if write is not None else _restarts(models.values(), observed),
        wake=tuple(models) if state.notes != before else held.wake,
        look_again_seconds=None if look_again is None else max(0.0, (look_again - observed.now).total_seconds()),
    )


def needs_workload(model: CompiledModel, pods: Sequence[PodView]) -> bool:
    """Whether a decision about the namespace needs to see the workload of a model."""
    if model.spec.workload_ref is None:
        return False
    name = model.metadata.name
    return _due(model) is not None or any(gates.waits(p) and p.labels.get(names.LABEL_MODEL) == name for p in pods)


def _restarts(models: Iterable[CompiledModel], observed: NamespaceObserved) -> tuple[RestartDue, ...]:
    """Restarts that are due. Only once the index has what the new pods shall get."""
    result = []
    for model in models:
        since, workload = _due(model), observed.workloads.get(model.metadata.name)
        # A paused Deployment makes no pods; what it is told meanwhile belongs to whoever resumes it.
        if since is None or workload is None or (workload.get("spec") or {}).get("paused"):
            continue
        if not restarted(workload, since=since):
            result.append(RestartDue(workload=workload, model=model, since=since))
    return tuple(result)


def _due(model: CompiledModel) -> datetime | None:
    restart = model.status.revisions[0].restart if model.status.revisions else None
    return restart.since if restart is not None and restart.state == RestartState.PENDING else None
