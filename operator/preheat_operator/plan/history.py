"""The audit trail of a model, as status has it: what happened to each revision, when, and with which digest.

Why it exists: Events are gone within an hour, and "since when do our pods get this, and why not the other" is asked a week
later. Nothing is kept for it alone: it is told from what the revisions in status carry anyway, which is bounded by
`spec.revisionHistoryLimit`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.plan.conditions import counts
from preheat_operator.plan.watched import taken_back_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from preheat_operator.api.status import CompiledModelStatus, Revision


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that happened: `what` is Needed, Ready, TakenBack, Served or Notice; `words` are for people.

    `at` is None for what has no moment: how many pods a revision has now.
    """

    at: datetime | None
    revision: str
    what: str
    words: str
    manifest: str | None = None


def history(status: CompiledModelStatus) -> tuple[Entry, ...]:
    """Everything that happened to the revisions in status, newest revision first, each one's in the order of time."""
    entries = [entry for revision in status.revisions for entry in _of(revision)]
    newest = status.revisions[0].name if status.revisions else ""
    entries += [
        Entry(at=n.since, revision=newest, what="Notice", words=f"{n.reason}: {n.message}") for n in status.notices
    ]
    return tuple(entries)


def _of(revision: Revision) -> Iterator[Entry]:
    def entry(at: datetime | None, what: str, words: str) -> Entry:
        return Entry(at=at, revision=revision.name, what=what, words=words, manifest=revision.manifest)

    yield entry(revision.created, "Needed", f"{revision.cause}, for image {revision.image}")
    if revision.ready is not None:
        yield entry(revision.ready, "Ready", _compiled(revision))
    served = revision.served
    if served is not None:
        kinds = ("hot", "warm", "eager", "cold", "wrong", "crashed")
        how = ", ".join(f"{number} {kind}" for kind in kinds if (number := getattr(served, kind)))
        yield entry(
            None, "Served", f"{served.pods} pods now{f' ({how})' if how else ''}, at most {served.most} at once"
        )
    if revision.taken_back is not None:
        yield entry(revision.taken_back.at, "TakenBack", taken_back_words(revision))


def _compiled(revision: Revision) -> str:
    count = counts(revision)
    words = (("kept", "kept"), ("rejected", "rejected"), ("failed", "failed"), ("no_capacity", "without a node"))
    told = ", ".join(f"{count[key]} {word}" for key, word in words if count[key])
    return f"targets: {told or 'none'}; compiled on {', '.join(h.name for h in revision.hardware) or 'nothing'}"
