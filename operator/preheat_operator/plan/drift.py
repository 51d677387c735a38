"""Calls that no bucket is for, and the bucket to add for them.

Why it exists: traffic moves away from the shapes that somebody wrote down once. Each such call is answered by torch,
compiled or eager; what would help is a bucket, which can be written down from the shape alone where one of the module's
own has tensors of the same kinds in the same places.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from preheat_operator.api.inputs import Bucket, Module
    from preheat_operator.api.served import Served
    from preheat_operator.api.spec import CompiledModelSpec

LEAST_CALLS: Final = 64
LEAST_SHARE: Final = Fraction(1, 100)
"""Of the calls of pods that had such calls, in this hour and the one before; below either, nothing is said."""
_MAX_SHAPES: Final = 3
_TENSOR: Final = re.compile(r"([a-z0-9_]+)\[([0-9,]*)\]")


def words(*, spec: CompiledModelSpec, seen: Sequence[Served], said: bool) -> str | None:
    """What to say of the shapes that no bucket is for; None when they are too few. `said`: it was said before."""
    drifting = [s for s in seen if s.uncovered or s.uncovered_before]
    calls: dict[str, int] = {}
    for pod in drifting:
        for each in (pod.uncovered, pod.uncovered_before):
            for call, count in each.items():
                calls[call] = calls.get(call, 0) + count
    answered = sum(pod.answered + pod.answered_before for pod in drifting)
    total = sum(calls.values()) + answered
    # What was said is over when not one came in two hours.
    often = {c: n for c, n in calls.items() if said or (n >= LEAST_CALLS and Fraction(n, total) >= LEAST_SHARE)}
    if not often:
        return None
    ranked = sorted(often.items(), key=lambda item: (-item[1], item[0]))
    told = ", ".join(f"{_named(call)} (at least {count} calls)" for call, count in ranked[:_MAX_SHAPES])
    more = f" and {len(ranked) - _MAX_SHAPES} more" if len(ranked) > _MAX_SHAPES else ""
    fragments = (fragment(spec, call) for call, _ in ranked)
    first = next((found for found in fragments if found is not None), None)
    help_ = f"add to the buckets of module {first[0]}: {first[1]}" if first else "add buckets for them"
    return f"input shapes that no bucket covers, in {len(drifting)} pods in the last two hours: {told}{more}; {help_}"


def fragment(spec: CompiledModelSpec, call: str) -> tuple[str, str] | None:
    """The module of a call (`module|shape`), and the bucket for it as YAML on one line; None where the shape does not say it."""
    named, _, shape = call.partition("|")
    tensors = _tensors(shape)
    module = _module(spec, named)
    if not tensors or module is None:
        return None
    names = {bucket.name for bucket in module.buckets}
    name = next(f"added-{n}" for n in range(1, len(names) + 2) if f"added-{n}" not in names)
    for bucket in module.buckets:
        body = _like(bucket, tensors)
        if body is not None:
            return module.name, _yaml({"name": name, **body})
    return None


def _module(spec: CompiledModelSpec, name: str) -> Module | None:
    modules = spec.torch.modules
    if not name and len(modules) == 1:
        return modules[0]
    return next((m for m in modules if m.name == name), None)


def _named(call: str) -> str:
    module, _, shape = call.partition("|")
    words_ = {"other": "further shapes", "none": "a call without tensors"}.get(shape, shape)
    return f"{words_} of module {module}" if module else words_


def _tensors(shape: str) -> list[tuple[str, list[int]]]:
    """Dtype and sizes of each tensor; empty when the text does not tell all of them."""
    found = []
    for word in shape.split(" "):
        match = _TENSOR.fullmatch(word)
        if match is None:
            return []
        found.append((match[1], [int(size) for size in match[2].split(",") if size]))
    return found


def _like(bucket: Bucket, tensors: Sequence[tuple[str, list[int]]]) -> dict[str, Any] | None:
    """The inputs of a bucket with these tensors in their places; None when they are not the same kinds of tensors."""
    body = bucket.model_dump(mode="json", by_alias=True, exclude_unset=True)
    inputs = {name: body[name] for name in ("args", "kwargs") if body.get(name)}
    places = list(_places(inputs))
    if [(p["dtype"], len(p["shape"])) for p in places] != [(dtype, len(sizes)) for dtype, sizes in tensors]:
        return None
    for place, (_, sizes) in zip(places, tensors, strict=True):
        place["shape"] = sizes
    return inputs


def _places(value: Any) -> Iterator[dict[str, Any]]:
    """Every tensor, in the order in which the runtime tells them: args, then kwargs, from the outside in."""
    if isinstance(value, list):
        for each in value:
            yield from _places(each)
    elif isinstance(value, dict):
        tensor = value.get("tensor")
        if isinstance(tensor, dict):
            yield tensor
        else:
            for each in value.values():
                yield from _places(each)


def _yaml(value: Any) -> str:
    """YAML in its flow style, on one line; a word that needs quotes has those of JSON, which YAML reads as well."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_yaml(each) for each in value) + "]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]*", value) and value.lower() not in _ODD:
        return value
    return json.dumps(value)


_ODD: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
