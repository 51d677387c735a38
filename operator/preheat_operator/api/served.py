"""The pod annotation `preheat.dev/served`: how a pod says it was served, kept on the pod itself.

Why it exists: the controller decides from what pods report, and neither it nor the two servers may hold that in memory
alone. Written by whichever server a report reaches, it lives and dies with its pod. All of it is the pod's own word, so
it is bounded in size, holds names and numbers only, and whoever reads it takes what does not fit for absent.

Counts are kept as powers of two, so that a count that grows does not write the pod again and again: `merge` hands back
what was not enough for the next one. What can end (calls no bucket is for) is counted by the hour, this one and the one
before, so that what a pod did last week says nothing about today.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from preheat_runtime.reasons import CLASSES, OUTCOMES

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION: Final = 1
MAX_CHARACTERS: Final = 4096
HOUR_SECONDS: Final = 3600
_MAX_TARGETS: Final = 4
_MAX_ANSWERS: Final = 6
_MAX_SHAPES: Final = 6
_MAX_SHAPE: Final = 120
_MAX_COUNT: Final = 2**40
_MAX_NUMBER: Final = 1e6
_TENSOR: Final = (
    r"(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64)|bfloat16|complex(?:32|64|128)|float8_[a-z0-9_]{1,12})"
    r"\[(?:[0-9]{1,10}(?:,[0-9]{1,10}){0,7})?\]"
)
SHAPE: Final = rf"{_TENSOR}(?: {_TENSOR}){{0,7}}(?: more)?|none|other"
"""The tensors of a call, as a regular expression: `float32[2,64] int64[2]`."""
_NAME: Final = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_TARGET: Final = re.compile(rf"{_NAME}/{_NAME}/{_NAME}")
_SHAPES: Final = re.compile(rf"(?:{_NAME})?\|(?:{SHAPE})")
_FACT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._:()+-]{0,63}")
_FACTS: Final = ("torch", "python", "machine", "cpuIsa", "gpu")

Counts = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class Served:
    """How one pod was served.

    `answers` counts first answers by `outcome/reason`; `first` are the seconds of first answers, `steady` the time of later
    ones as a multiple of the compile Job's, both by target (`module/bucket/hardware`); `wrong` are targets that answered
    otherwise than eager. `uncovered` counts calls that no bucket is for, by `module|shape`, and `answered` those that an
    artifact answered, both in the hour number `hour` since 1970; `*_before` in the hour before. `node` is what the pod
    found where nothing fitted: torch, Python, machine, CPU class, GPU.
    """

    answers: Counts = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    steady: dict[str, float] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()
    hour: int = 0
    answered: int = 0
    answered_before: int = 0
    uncovered: Counts = field(default_factory=dict)
    uncovered_before: Counts = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)

    def at(self, hour: int) -> Served:
        """The same, as it is to be read in another hour."""
        if hour == self.hour:
            return self
        if hour == self.hour + 1:
            return replace(
                self, hour=hour, answered=0, uncovered={}, answered_before=self.answered,
                uncovered_before=self.uncovered,
            )  # fmt: skip
        return replace(self, hour=hour, answered=0, uncovered={}, answered_before=0, uncovered_before={})

    def render(self) -> str:
        """The annotation: at most MAX_CHARACTERS; figures give way before what decides anything."""
        for kept in (self, replace(self, uncovered_before={}), replace(self, uncovered={}, uncovered_before={})):
            text = _dump(kept)
            if len(text) <= MAX_CHARACTERS:
                return text
        return _dump(Served(wrong=self.wrong[:_MAX_TARGETS], answers=self.answers, hour=self.hour))


def merge(there: Served, more: Served, *, hour: int) -> tuple[Served, Served]:
    """What is on a pod with what came since: what to write, and what of it is still too little to be written."""
    there = there.at(hour)
    more = more if more.hour == hour else replace(more, hour=hour, answered=0, uncovered={})
    answers, answers_left = _add(there.answers, more.answers, _MAX_ANSWERS)
    uncovered, uncovered_left = _add(there.uncovered, more.uncovered, _MAX_SHAPES)
    answered, answered_left = _add({"": there.answered}, {"": more.answered}, 1)
    merged = replace(
        there,
        answers=answers,
        first=_bounded({**there.first, **more.first}),
        steady=_bounded({**there.steady, **more.steady}),
        wrong=tuple(dict.fromkeys((*there.wrong, *more.wrong)))[:_MAX_TARGETS],
        answered=answered[""],
        uncovered=uncovered,
        node=more.node or there.node,
    )
    left = Served(hour=hour, answers=answers_left, uncovered=uncovered_left, answered=answered_left.get("", 0))
    return merged, left


def gather(one: Served, other: Served, *, hour: int) -> Served:
    """Two reports as one, with exact counts; what is not of this hour is forgotten."""
    one, other = (each if each.hour == hour else replace(each, answered=0, uncovered={}) for each in (one, other))
    return Served(
        hour=hour,
        answers=_sum(one.answers, other.answers),
        first=_bounded({**one.first, **other.first}),
        steady=_bounded({**one.steady, **other.steady}),
        wrong=tuple(dict.fromkeys((*one.wrong, *other.wrong)))[:_MAX_TARGETS],
        answered=one.answered + other.answered,
        uncovered=_sum(one.uncovered, other.uncovered),
        node=other.node or one.node,
    )


def parse(text: str | None) -> Served | None:
    """What an annotation says; None when it says nothing that can be believed."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        said = json.loads(text)
    # RecursionError: a few thousand brackets are enough for it.
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict) or said.get("v") != VERSION:
        return None
    return Served(
        answers=_counts(said.get("answers"), is_answer, _MAX_ANSWERS),
        first=_numbers(said.get("first")),
        steady=_numbers(said.get("steady")),
        wrong=tuple(t for t in _list(said.get("wrong")) if is_target(t))[:_MAX_TARGETS],
        hour=_count(said.get("hour")),
        answered=_count(said.get("answered")),
        answered_before=_count(said.get("answeredBefore")),
        uncovered=_counts(said.get("uncovered"), is_call, _MAX_SHAPES),
        uncovered_before=_counts(said.get("uncoveredBefore"), is_call, _MAX_SHAPES),
        node=facts(said.get("node")),
    )


def is_target(value: object) -> bool:
    """Whether it is `module/bucket/hardware`."""
    return isinstance(value, str) and _TARGET.fullmatch(value) is not None


def is_answer(value: object) -> bool:
    """Whether it is `outcome/reason`, both of closed lists."""
    outcome, _, reason = value.partition("/") if isinstance(value, str) else ("", "", "")
    return outcome in OUTCOMES and reason in CLASSES


def is_call(value: object) -> bool:
    """Whether it is `module|shape`."""
    return isinstance(value, str) and len(value) <= _MAX_SHAPE + 64 and _SHAPES.fullmatch(value) is not None


def call_of(module: str | None, shape: str) -> str:
    """`module|shape`; a shape that is too long, or is not one, is `other`."""
    known = module if module and re.fullmatch(_NAME, module) else ""
    call = f"{known}|{shape}"
    return call if len(shape) <= _MAX_SHAPE and is_call(call) else f"{known}|other"


def facts(value: object) -> dict[str, str]:
    """What is known of a machine: of its fields those that are plain words."""
    given = value if isinstance(value, dict) else {}
    return {name: given[name] for name in _FACTS if isinstance(given.get(name), str) and _FACT.fullmatch(given[name])}


def _dump(served: Served) -> str:
    said: dict[str, Any] = {
        "answers": served.answers,
        "first": {target: _decimal(value) for target, value in served.first.items()},
        "steady": {target: _decimal(value) for target, value in served.steady.items()},
        "wrong": list(served.wrong),
        "hour": served.hour if served.answered or served.answered_before or served.uncovered or served.uncovered_before else 0,
        "answered": served.answered,
        "answeredBefore": served.answered_before,
        "uncovered": served.uncovered,
        "uncoveredBefore": served.uncovered_before,
        "node": served.node,
    }  # fmt: skip
    full = {"v": VERSION, **{name: value for name, value in said.items() if value}}
    return json.dumps(full, sort_keys=True, separators=(",", ":"))


def _decimal(value: float) -> str:
    # From 999.5 on three digits are written as 1e+03.
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}"


def _add(there: Mapping[str, int], more: Mapping[str, int], most: int) -> tuple[Counts, Counts]:
    """Powers of two on the left, what is too little for the next on the right."""
    total, left = dict(there), {}
    for name, count in more.items():
        before = total.get(name, 0)
        if name not in total and len(total) >= most:
            continue
        after = min(before + count, _MAX_COUNT)
        grown = 1 << (after.bit_length() - 1) if after else 0
        if grown > before:
            total[name] = grown
        if after > total.get(name, 0):
            left[name] = after - total.get(name, 0)
    return total, left


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> Counts:
    total = dict(one)
    for name, count in other.items():
        # More kinds than an annotation can hold: those that came first.
        if name in total or len(total) < 4 * _MAX_SHAPES:
            total[name] = min(total.get(name, 0) + count, _MAX_COUNT)
    return total


def _bounded(values: Mapping[str, float]) -> dict[str, float]:
    return dict(list(values.items())[:_MAX_TARGETS])


def _counts(value: object, known: Any, most: int) -> Counts:
    given = value if isinstance(value, dict) else {}
    return {name: _count(count) for name, count in list(given.items())[:most] if known(name) and _count(count)}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT else 0


def _numbers(value: object) -> dict[str, float]:
    found: dict[str, float] = {}
    for target, text in list(value.items() if isinstance(value, dict) else ())[:_MAX_TARGETS]:
        try:
            number = float(text) if isinstance(text, str) and len(text) <= 16 else math.nan
        except ValueError:
            continue
        if is_target(target) and 0 <= number <= _MAX_NUMBER:
            found[target] = number
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
