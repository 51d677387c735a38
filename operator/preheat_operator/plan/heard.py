"""What the pods of a model say, as it enters its status: revisions with their pods counted, notices, notes and Events.

Apart from `watched` and `notices`, which judge: this is where both are put together for one model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import RevisionState
from preheat_operator.plan.conditions import Announcement
from preheat_operator.plan.given import given_of, pin
from preheat_operator.plan.notices import notices
from preheat_operator.plan.profile import Note
from preheat_operator.plan.watched import taken_back_words, watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.api.status import Notice, Revision, Target
    from preheat_operator.plan.observed import Observed


@dataclass(frozen=True, kw_only=True)
class Heard:
    """`revisions` as they are now, newest first; `notes` for the condition Degraded; `instead` is what pods of the newest image get."""

    revisions: tuple[Revision, ...]
    notices: tuple[Notice, ...] = ()
    notes: tuple[Note, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    instead: Revision | None = None


def listen(observed: Observed, revisions: Sequence[Revision], targets: Sequence[Target]) -> Heard:
    """What pods say of these revisions, newest first. `targets` are the newest one's."""
    seen = observed.witnesses
    watched = watch(revisions=revisions, seen=seen, now=observed.now)
    newest = watched.revisions[0] if watched.revisions else None
    of_interest = None if newest is None else given_of(watched.revisions, held=pin(observed.model)).get(newest.image)
    previous = observed.model.status.notices
    said = notices(
        spec=observed.model.spec, revision=of_interest, targets=targets if of_interest is newest else (), seen=seen,
        previous=previous, now=observed.now,
    )  # fmt: skip
    # An older one is told of for as long as there are pods that have it; the newest one has a condition of its own.
    older = (r for r in watched.revisions[1:] if r.state == RevisionState.TAKEN_BACK and r.served and r.served.pods)
    notes = [Note(reason=ConditionReason.REVISION_TAKEN_BACK, message=taken_back_words(r)) for r in older]
    notes += [Note(reason=ConditionReason(n.reason), message=n.message) for n in said]
    known = {notice.reason for notice in previous}
    begun = (Announcement(warning=True, reason=n.reason, message=n.message) for n in said if n.reason not in known)
    return Heard(
        revisions=watched.revisions, notices=said, notes=tuple(notes), announcements=(*watched.announcements, *begun),
        instead=of_interest,
    )  # fmt: skip
