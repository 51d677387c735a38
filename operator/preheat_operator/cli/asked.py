"""`preheat rebuild`, `rollback`, `pin`, `unpin`: what a person asks of a CompiledModel, as annotations of it.

They change what the controller reads and nothing else, so that the same can be done with any tool that writes YAML.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.cli import exits
from preheat_operator.cli.asking import ask, namespace
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.model import annotate
from preheat_operator.cli.output import write
from preheat_operator.plan.given import can_be_given, given

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import Revision


def main(options: argparse.Namespace) -> int:
    """Ask, and say what follows; returns the exit code. Raises CommandError."""
    said: list[str] = []

    def decide(model: CompiledModel) -> Mapping[str, str | None]:
        annotations, words = _DECISIONS[options.command](model, getattr(options, "revision", None))
        said.append(words)
        return annotations

    ask(annotate(namespace(options.namespace), options.name, decide))
    write(f"compiledmodel/{options.name} {said[-1]}")
    return exits.OK


Answer = tuple[dict[str, str | None], str]


def rebuild(model: CompiledModel, revision: str | None) -> Answer:
    """A token that was not heard yet."""
    del model, revision
    token = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {names.ANNOTATION_REBUILD: token}, f"is built again; pods get the newest ready revision meanwhile ({token})"


def pin(model: CompiledModel, revision: str | None) -> Answer:
    """The named revision, which must be there and ready."""
    found = next((r for r in model.status.revisions if r.name == revision), None)
    if found is None or not can_be_given(found):
        ready = ", ".join(r.name for r in model.status.revisions if can_be_given(r)) or "none"
        raise CommandError(
            f"{revision} is no ready revision of {model.metadata.name}; ready: {ready}", code=exits.MISSING
        )
    words = f"pinned: pods of image {found.image} get revision {found.name} from their next start"
    return {names.ANNOTATION_PIN: found.name}, words


def rollback(model: CompiledModel, revision: str | None) -> Answer:
    """The ready revision of the newest image before the one that its pods get; or the named one."""
    return pin(model, revision if revision is not None else _before(model).name)


def unpin(model: CompiledModel, revision: str | None) -> Answer:
    """No pin."""
    del model, revision
    return {names.ANNOTATION_PIN: None}, "unpinned: pods get the newest ready revision of their image"


def _before(model: CompiledModel) -> Revision:
    revisions = model.status.revisions
    now = given(model).get(revisions[0].image) if revisions else None
    if now is not None:
        alike = [r for r in revisions if r.image == now.image and can_be_given(r)]
        older = sorted((r for r in alike if r.created < now.created), key=lambda r: r.created)
        if older:
            return older[-1]
    raise CommandError(
        f"{model.metadata.name} has no earlier ready revision of its image to go back to. To go back to another image, "
        "roll back the workload (kubectl rollout undo): its pods get what is ready for it",
        code=exits.MISSING,
    )


_DECISIONS = {"rebuild": rebuild, "pin": pin, "rollback": rollback, "unpin": unpin}
