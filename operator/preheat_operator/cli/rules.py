"""The rules that an API server enforces on a CompiledModel, enforced without one.

The schema is the generated CRD, so there is no second copy of a rule to come to differ. Structure (unknown and missing
fields, types, items that are there twice) is walked here; the CEL rules are evaluated by cel-python with what
Kubernetes adds to the language and the rules use: `sum()`, and escaped names of fields (`__const__`). Regular
expressions are RE2's, as in the API server.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api.base import INT_OR_STRING, PRESERVE_UNKNOWN, VALIDATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

Schema = Mapping[str, Any]

_TYPES: Final[Mapping[str, type | tuple[type, ...]]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
}  # fmt: skip
# The words that cannot be field names in CEL (Kubernetes: "Escaping").
_RESERVED: Final = frozenset(
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is wrong at one place of the document."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def structural_problems(schema: Schema, value: Any, field: str = "") -> Iterator[Problem]:
    """Unknown and missing fields, values of another type, and items of a list that are there twice."""
    if INT_OR_STRING in schema:
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield Problem(field=field, message=f"must be an integer or a string, not {_shown(value)}")
        return
    kind = schema["type"]
    if "enum" in schema and value not in schema["enum"]:
        words = f"must be a {kind}, one of {', '.join(map(str, schema['enum']))}, not {_shown(value)}"
        yield Problem(field=field, message=words)
    elif not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        yield Problem(field=field, message=f"must be of type {kind}, not {_shown(value)}{_quote(kind, value)}")
    elif isinstance(value, dict):
        yield from _object_problems(schema, value, field)
    elif isinstance(value, list):
        seen: list[Any] = []
        keys = schema.get("x-kubernetes-list-map-keys")
        for i, item in enumerate(value):
            yield from structural_problems(schema["items"], item, f"{field}[{i}]")
            if keys and isinstance(item, dict):
                key = [item.get(name) for name in keys]
                if key in seen:
                    yield Problem(
                        field=f"{field}[{i}]", message=f"Duplicate value: {dict(zip(keys, key, strict=True))}"
                    )
                seen.append(key)


def _object_problems(schema: Schema, value: dict[Any, Any], field: str) -> Iterator[Problem]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    extra = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if value.get(name) is None:
            yield Problem(field=_below(field, name), message="Required value: set it")
    for name, item in value.items():
        place = _below(field, str(name))
        if not isinstance(name, str):
            yield Problem(field=place, message=f"a field's name must be text, not {_shown(name)}: put it in quotes")
        elif item is None:
            continue  # as if it were absent
        elif name in properties:
            yield from structural_problems(properties[name], item, place)
        elif extra:
            yield from structural_problems(extra, item, place)
        elif properties and PRESERVE_UNKNOWN not in schema:
            near = difflib.get_close_matches(name, properties, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(properties))}"
            yield Problem(field=place, message=f'unknown field "{place}": {remedy}')


def broken_rules(schema: Schema, value: Any, field: str = "") -> Iterator[Problem]:
    """The CEL rules of the schema that `value`, with defaults filled in, breaks. Call it when the structure is right.

    A rule that cannot be evaluated counts as broken, as in an API server.
    """
    for rule in schema.get(VALIDATIONS, ()):
        if not _holds(rule["rule"], schema, value):
            yield Problem(field=field, message=rule["message"])
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties", {})
        for name, item in value.items():
            below = properties.get(name) or schema.get("additionalProperties")
            if below:
                yield from broken_rules(below, item, _below(field, name))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from broken_rules(schema["items"], item, f"{field}[{i}]")


def _holds(rule: str, schema: Schema, value: Any) -> bool:
    from celpy.adapter import json_to_cel
    from celpy.evaluation import CELEvalError

    try:
        result = _program(rule).evaluate({"self": json_to_cel(_escaped(schema, value))})
    except (CELEvalError, ValueError):  # the second of numbers that are too large for it
        return False
    return bool(result)


@cache
def _program(rule: str) -> Any:
    import celpy
    from celpy.celtypes import IntType

    def total(items: Any) -> Any:
        return sum(items, IntType(0))

    environment = celpy.Environment()
    return environment.program(environment.compile(rule), functions={"sum": total})


def _escaped(schema: Schema, value: Any) -> Any:
    """The value with names of fields as CEL in Kubernetes spells them."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties", {})
        return {
            f"__{name}__" if name in _RESERVED and name in properties else name: _escaped(
                properties.get(name, {}), item
            )
            for name, item in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_escaped(schema.get("items", {}), item) for item in value]
    return value


def _below(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _shown(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{value!r}"[:80]


def _quote(kind: str, value: object) -> str:
    if kind != "string" or not isinstance(value, int | float):
        return ""
    if isinstance(value, bool):
        # Which of the words was written is not known any more.
        return ": YAML takes yes, no, on, off, true and false for it; put the word in quotes"
    return f': put it in quotes, "{value}"'
