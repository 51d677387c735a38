"""From plain data to CEL: typed object literals as a MutatingAdmissionPolicy wants them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from preheat_operator.injection.additions import Input, Maybe

if TYPE_CHECKING:
    from collections.abc import Sequence


def literal(value: Any, *, type_name: str) -> str:
    """`value` as a CEL expression; objects become literals of `type_name` and of the types nested in it.

    Placeholders become variables of the policy. A setting that may be absent is a list of one or none there: CEL has
    no null for it.
    """
    if isinstance(value, Input):
        return f"variables.{value.name}[0]" if value.optional else f"variables.{value.name}"
    if isinstance(value, Maybe):
        body = literal(value.value, type_name=type_name)
        return f"(size(variables.{value.given.name}) == 1 ? optional.of({body}) : optional.none())"
    if isinstance(value, dict):
        fields = (f"{_key(key, item)}: {literal(item, type_name=f'{type_name}.{key}')}" for key, item in value.items())
        return f"{type_name}{{{', '.join(fields)}}}"
    if isinstance(value, list):
        items = (f"{_mark(item)}{literal(item, type_name=type_name)}" for item in value)
        return f"[{', '.join(items)}]"
    return constant(value)


def constant(value: str | bool | int) -> str:
    """A string, boolean or integer as CEL; its escapes are those of JSON."""
    return json.dumps(value, ensure_ascii=True)


def constants(values: Sequence[str | int]) -> str:
    """A list of constants as CEL."""
    return f"[{', '.join(constant(value) for value in values)}]"


def words(template: str) -> str:
    """A template with `{name}` fields as a CEL concatenation over variables of those names."""
    parts = re.split(r"\{(\w+)\}", template)
    texts = [constant(part) if number % 2 == 0 else f"variables.{part}" for number, part in enumerate(parts)]
    return " + ".join(text for text in texts if text != '""')


def _key(key: str, value: Any) -> str:
    return f"{_mark(value)}{key}"


def _mark(value: Any) -> str:
    return "?" if isinstance(value, Maybe) else ""
