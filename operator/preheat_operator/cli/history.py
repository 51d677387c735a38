"""`preheat history`: the revisions of a CompiledModel, what caused each, what became of it, and who is given it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_operator.cli import exits
from preheat_operator.cli.asking import ask, namespace
from preheat_operator.cli.model import read
from preheat_operator.cli.output import table, write, write_json
from preheat_operator.plan.conditions import counts
from preheat_operator.plan.given import given, pin

if TYPE_CHECKING:
    import argparse

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import Revision

_HEAD = ["REVISION", "CAUSE", "CREATED", "TOOK", "STATE", "KEPT", "PODS", "SERVED", "WEIGHTS", "MANIFEST", "IMAGE"]
_SHORT = len("sha256:") + 12


def main(options: argparse.Namespace) -> int:
    """Print the history; returns the exit code. Raises CommandError."""
    model = ask(read(namespace(options.namespace), options.name))
    if options.output == "json":
        write_json([entry(model, revision) for revision in model.status.revisions])
        return exits.OK
    if not model.status.revisions:
        write("there is no revision yet")
        return exits.OK
    for line in table(rows(model)):
        write(line)
    return exits.OK


def rows(model: CompiledModel) -> list[list[str]]:
    """The history for people: a head, and a row a revision."""
    return [_HEAD, *(_row(model, revision) for revision in model.status.revisions)]


def entry(model: CompiledModel, revision: Revision) -> dict[str, Any]:
    """One revision for programs: what status says of it, and what pods of its image are given."""
    return {**revision.to_api(), "pods": pods(model, revision)}


def pods(model: CompiledModel, revision: Revision) -> str:
    """What pods of the revision's image have of it: `Given`, `Pinned` (given, because somebody said so) or `None`."""
    chosen = given(model).get(revision.image)
    if chosen is None or chosen.name != revision.name:
        return "None"
    return "Pinned" if pin(model) == revision.name else "Given"


def _row(model: CompiledModel, revision: Revision) -> list[str]:
    count = counts(revision)
    total = sum(count.values())
    carried = sum(entry.carried for entry in revision.hardware)
    took = "" if revision.finished is None else f"{(revision.finished - revision.created).total_seconds():.0f}s"
    image = f"{revision.image} ({_short(revision.image_digest)})" if revision.image_digest else revision.image
    return [
        revision.name,
        revision.cause,
        revision.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        took or "-",
        revision.state.value,
        f"{count['kept']}/{total}" + (f" ({carried} carried over)" if carried else "") if total else "-",
        pods(model, revision),
        _served(revision),
        revision.weights or "-",
        _short(revision.manifest) if revision.manifest else "-",
        image,
    ]


def _served(revision: Revision) -> str:
    """How many pods run with it, and how many of them were wrong or crashed; of one that was taken back what was so then."""
    now, then = revision.served, revision.taken_back
    if then is not None:
        return f"{min(then.pods, then.wrong + then.crashed)} of {then.pods} bad at {then.at.strftime('%Y-%m-%dT%H:%M:%SZ')}"
    return "-" if now is None else f"{now.pods} now, {now.most} at most"


def _short(digest: str) -> str:
    return digest[:_SHORT]
