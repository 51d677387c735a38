"""What pods of each image are given: the newest ready revision of their image, or the one that somebody pinned.

A pin holds for the image of the pinned revision alone: pods of other images get theirs as ever. What is compiled is not
changed by it, so that taking the pin away needs no Job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.enums import RevisionState
from preheat_operator.plan.termination import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import Revision

_MAX_NAME = 63


def pin(model: CompiledModel) -> str:
    """Name of the revision that the model's annotation pins, empty when there is none."""
    return plain(model.metadata.annotations.get(names.ANNOTATION_PIN), limit=_MAX_NAME)


def pinned(revisions: Sequence[Revision], name: str) -> Revision | None:
    """The pinned revision, if pods can be given it."""
    return next((r for r in revisions if r.name == name and can_be_given(r)), None)


def can_be_given(revision: Revision) -> bool:
    """Whether there is something of this revision that a pod could fetch."""
    return revision.state == RevisionState.READY and revision.manifest is not None


def given(model: CompiledModel) -> dict[str, Revision]:
    """Image to the revision that its pods get, as status has it."""
    return given_of(model.status.revisions, held=pin(model))


def given_of(revisions: Sequence[Revision], *, held: str) -> dict[str, Revision]:
    """Image to the revision that its pods get; images whose revision was wanted last come first. `held`: the pinned one."""
    result: dict[str, Revision] = {}
    for revision in revisions:
        if can_be_given(revision):
            result.setdefault(revision.image, revision)
    chosen = pinned(revisions, held)
    if chosen is not None:
        result[chosen.image] = chosen
    return result
