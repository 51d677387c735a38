"""What pods of each image are given: the newest ready revision of their image, or the one that somebody pinned.

A pin holds for the image of the pinned revision alone: pods of other images get theirs as ever. What is compiled is not
changed by it, so that taking the pin away needs no Job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import RevisionState
from preheat_operator.plan.profile import Note
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


def held_back(revisions: Sequence[Revision], revision: Revision, *, name: str) -> Revision | None:
    """The revision that pods of the wanted `revision`'s image are pinned to by `name`, where it is not the wanted one."""
    chosen = pinned(revisions, name)
    return chosen if chosen is not None and chosen.image == revision.image and chosen.name != revision.name else None


def pin_not_found(revisions: Sequence[Revision], *, name: str) -> tuple[Note, ...]:
    """A note that the pin cannot be held; nothing where `name` is empty."""
    there = [r for r in revisions if can_be_given(r)]
    if not name or any(r.name == name for r in there):
        return ()
    ready = ", ".join(dict.fromkeys(r.name for r in there)) or "none yet"
    message = f"{names.ANNOTATION_PIN} names {name!r}, which is no ready revision (ready: {ready}): nothing is pinned"
    return (Note(reason=ConditionReason.PIN_NOT_FOUND, message=message),)
