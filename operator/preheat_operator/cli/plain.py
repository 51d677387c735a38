"""What YAML can say and an API server could not be sent: it takes JSON.

Kept apart from the rules of the CRD, which are about values that are there; these would end them, or the making of JSON,
with an error that names no field.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.cli.rules import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1
"""The whole numbers of an API server, and of CEL."""


def not_plain(document: dict[str, Any]) -> list[Problem]:
    """Every place of the document that JSON cannot hold as it is; each object once, whatever number of aliases name it."""
    return list(_walk(document, "", within=set(), seen=set()))


def _walk(value: Any, field: str, *, within: set[int], seen: set[int]) -> Iterator[Problem]:
    if isinstance(value, dict | list):
        if id(value) in within:
            yield Problem(field=field, message="is an alias of what it is a part of, which has no end")
            return
        if id(value) in seen:
            return
        seen.add(id(value))
        items = (
            _fields(value, field) if isinstance(value, dict) else ((f"{field}[{i}]", e) for i, e in enumerate(value))
        )
        for place, item in items:
            yield from _walk(item, place, within=within | {id(value)}, seen=seen)
        if isinstance(value, dict):
            for name in value:
                if isinstance(name, str):
                    yield from _walk(name, f"{field}: a field's name", within=within, seen=seen)
                elif name is not None and not isinstance(name, int | float):
                    yield Problem(field=field, message=f"a field's name must be text, not {name!r:.80}")
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            yield Problem(field=field, message=f"{value!r:.80} is no text: it holds half of a character")
    elif isinstance(value, bool):
        return
    elif isinstance(value, int):
        if not _LEAST <= value <= _MOST:
            yield Problem(field=field, message=f"must be a whole number from {_LEAST} to {_MOST}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(field=field, message=f"must be a finite number, not {value}")


def _fields(value: dict[Any, Any], field: str) -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        yield (f"{field}.{name}" if field else str(name)), item
