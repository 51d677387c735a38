"""The status of a CompiledModel, put together from what was decided; bounded, and equal when nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api.spec import MAX_TARGETS
from preheat_operator.api.status import CompiledModelStatus
from preheat_operator.plan.conditions import Announcement, Standing, announcements, conditions, counts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.enums import WhenMissing
    from preheat_operator.api.status import Revision, Target


def assemble(
    *, model: CompiledModel, revisions: Sequence[Revision], targets: Sequence[Target], standing: Standing,
    when_missing: WhenMissing, now: datetime,
) -> tuple[CompiledModelStatus, tuple[Announcement, ...]]:  # fmt: skip
    """The next status, and the Events that its conditions are worth."""
    current = conditions(
        standing=standing, previous=model.status.conditions, generation=model.metadata.generation, now=now
    )
    total = sum(len(m.buckets) for m in model.spec.torch.modules) * len(model.spec.hardware)
    newest = standing.revision
    kept = counts(newest)["kept"] if newest is not None else None
    status = CompiledModelStatus(
        observed_generation=model.metadata.generation,
        kept=None if kept is None else f"{kept}/{total}",
        when_missing=when_missing,
        conditions=current,
        revisions=tuple(revisions),
        targets=tuple(sorted(targets, key=lambda t: (t.module, t.bucket, t.hardware)))[:MAX_TARGETS],
    )
    return status, announcements(previous=model.status.conditions, current=current)
