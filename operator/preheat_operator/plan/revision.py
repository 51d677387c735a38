"""Which revision a CompiledModel needs now, and which older ones it keeps.

A revision is named by what decides its contents: the parts of the spec that reach the compiler, and the image. So the
same spec and image lead to the same revision for ever, which is what makes a rollback hot without any Job.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api.enums import RevisionState
from preheat_operator.api.status import Revision

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.spec import CompiledModelSpec

#: Of what is asked of a compile Job; a new one makes every revision a new one.
FORMAT_VERSION: Final = 1
_MAX_PREFIX = 40


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The revision the spec and the workload's image ask for now."""

    name: str
    spec_hash: str
    image: str


def spec_hash(spec: CompiledModelSpec) -> str:
    """Hash of what decides compilation: `torch`, `hardware` (with its cpuIsa) and `keepIf`.

    What is as it is by default is left out, written or not: a release that adds a field must not make every revision
    a new one. A release that changes what a default means has to change `FORMAT_VERSION`.
    """
    body = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts = {name: body.get(name, {}) for name in ("torch", "hardware", "keepIf")}
    return digest({"formatVersion": FORMAT_VERSION, **parts})


def wanted(*, model: str, spec: CompiledModelSpec, image: str) -> Wanted:
    """The revision for this spec and image, named `<model, at most 40 characters>-<hash of 8>`."""
    of_spec = spec_hash(spec)
    return Wanted(name=f"{prefix(model)}-{digest([of_spec, image])[:8]}", spec_hash=of_spec, image=image)


def history(*, current: Revision, previous: Sequence[Revision], limit: int) -> tuple[Revision, ...]:
    """The revisions to keep: the current one first, then ready ones, newest first, `limit` in all.

    A superseded revision that never became ready is left out: nobody can be given it, and coming back to it should
    try again. While the current one is not ready it does not count: what pods get now must not go for it.
    """
    kept = [r for r in previous if r.name != current.name and r.state == RevisionState.READY]
    return (current, *kept[: limit - 1 if current.state == RevisionState.READY else limit])


def begin(*, want: Wanted, previous: Sequence[Revision], now: datetime) -> Revision:
    """The entry of the wanted revision: the one there is, or a new one with the cause that made it necessary."""
    for revision in previous:
        if revision.name == want.name:
            return revision
    if not previous:
        cause = "Created"
    elif previous[0].spec_hash != want.spec_hash:
        cause = "SpecChanged"
    else:
        cause = "ImageChanged"
    return Revision(name=want.name, image=want.image, created=now, cause=cause, spec_hash=want.spec_hash)


def prefix(model: str) -> str:
    """The part of a model's name that goes into the names of what is made for it."""
    return model[:_MAX_PREFIX].rstrip("-.")


def digest(value: Any) -> str:
    """SHA-256 of a JSON value in its one canonical form, as 64 hex digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
