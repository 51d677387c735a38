"""The whole decision about one namespace: what admission may read, and what becomes of labelled pods.

Apart from the decision about a model, because pods of one namespace share one index and one breaker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from preheat_operator.plan import annotate, breaker
from preheat_operator.plan.index import index_text
from preheat_operator.plan.indexnotes import IndexNotes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.plan.objects import PodView


@dataclass(frozen=True, kw_only=True)
class IndexState:
    """An index as it is or should be: its text and the notes on it."""

    models: str
    notes: IndexNotes = field(default_factory=IndexNotes)


@dataclass(frozen=True, kw_only=True)
class NamespaceObserved:
    """Everything a decision about one namespace rests on. `index`: None when there is none; `image`: the product's."""

    models: Sequence[CompiledModel]
    pods: Sequence[PodView]
    index: IndexState | None
    image: str
    now: datetime


@dataclass(frozen=True, kw_only=True)
class NamespacePlan:
    """What to do, in this order: write the index (or delete it), annotate pods, delete stuck ones.

    `wake`: models whose conditions speak of the notes, which have changed.
    """

    write: IndexState | None = None
    delete_index: bool = False
    annotate: tuple[tuple[PodView, str], ...] = ()
    replace: tuple[PodView, ...] = ()
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
    look_again = tripped.look_again_at
    return NamespacePlan(
        write=state if models and state != observed.index else None,
        delete_index=not models and observed.index is not None,
        annotate=tuple((pod, text) for pod, text in verdicts if text is not None),
        replace=tripped.replace,
        wake=tuple(models) if state.notes != before else (),
        look_again_seconds=None if look_again is None else max(0.0, (look_again - observed.now).total_seconds()),
    )
