"""What a decision about one CompiledModel rests on, and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from preheat_operator.plan.indexnotes import IndexNotes
from preheat_operator.plan.watched import witnesses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import CompiledModelStatus
    from preheat_operator.plan.conditions import Announcement
    from preheat_operator.plan.objects import JobView, PodView
    from preheat_operator.plan.watched import Witness


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Everything a decision about one model rests on.

    `jobs` and `pods` carry the model's label, whoever made them; `serving_pods` the one that users set. `taken` are names at
    which the API server has a Job that is not ours, `refused` what it said to Jobs it would not have; both are learned by trying. `troubles` maps
    uids of Jobs and pods to their newest warning Event. `learned` stands for a workload that is not read itself.
    """

    model: CompiledModel
    workload: dict[str, Any] | None
    jobs: Sequence[JobView] = ()
    pods: Sequence[PodView] = ()
    serving_pods: Sequence[PodView] = ()
    learned: Sequence[dict[str, Any]] = ()
    notes: IndexNotes = field(default_factory=IndexNotes)
    troubles: Mapping[str, str] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    now: datetime

    @cached_property
    def witnesses(self) -> tuple[Witness, ...]:
        """What the serving pods say, read once for all that is decided by it."""
        return witnesses(self.serving_pods, now=self.now)


@dataclass(frozen=True, kw_only=True)
class ModelPlan:
    """What to do, in this order: `check` (dry runs) and `create` Jobs, write `status`, then `stop` and `release`."""

    create: tuple[dict[str, Any], ...] = ()
    check: tuple[dict[str, Any], ...] = ()
    status: CompiledModelStatus | None = None
    stop: tuple[JobView, ...] = ()
    release: tuple[PodView, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    look_again_seconds: float | None = None
