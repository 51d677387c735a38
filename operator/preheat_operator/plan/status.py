"""The status of a CompiledModel, put together from what was decided; bounded, and equal when nothing changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api.spec import MAX_TARGETS
from preheat_operator.api.status import CompiledModelStatus
from preheat_operator.plan.conditions import Announcement, Standing, announcements, conditions, counts
from preheat_operator.plan.given import pin, pinned

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.enums import WhenMissing
    from preheat_operator.api.status import Revision, Target
    from preheat_operator.plan.heard import Heard


def assemble(
    *,
    model: CompiledModel,
    revisions: Sequence[Revision],
    targets: Sequence[Target],
    standing: Standing,
    heard: Heard,
    when_missing: WhenMissing,
    now: datetime,
    rebuild: str = "",
) -> tuple[CompiledModelStatus, tuple[Announcement, ...]]:
    """The next status, and the Events that its conditions, and what pods say, are worth."""
    current = conditions(
        standing=standing, previous=model.status.conditions, generation=model.metadata.generation, now=now
    )
    total = sum(len(m.buckets) for m in model.spec.torch.modules) * len(model.spec.hardware)
    newest = standing.revision
    kept = counts(newest)["kept"] if newest is not None else None
    held = pinned(revisions, pin(model))
    status = CompiledModelStatus(
        observed_generation=model.metadata.generation,
        kept=None if kept is None else f"{kept}/{total}",
        # What was heard stays heard: an annotation that is taken away and put back asks for nothing new.
        rebuild=rebuild or model.status.rebuild,
        pinned=None if held is None else held.name,
        when_missing=when_missing,
        conditions=current,
        revisions=tuple(revisions),
        targets=tuple(sorted(targets, key=lambda t: (t.module, t.bucket, t.hardware)))[:MAX_TARGETS],
        notices=heard.notices,
    )
    # One Event for each reason: a condition that says the same says it with more words.
    of_conditions = announcements(previous=model.status.conditions, current=current)
    said = {each.reason for each in of_conditions}
    return status, (*of_conditions, *(each for each in heard.announcements if each.reason not in said))
