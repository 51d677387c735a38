"""What a pod may say: the body of a report, checked to the last character before anything of it is counted.

Why it exists: the sender is a process in somebody's image that holds nothing but a token. What it says becomes labels of
time series, so it must be bounded in size and come from closed lists; whatever does not is `other`, or refused.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, Final

from preheat_runtime.reasons import CLASSES, OTHER, OUTCOMES

VERSION: Final = 1
MAX_BODY_BYTES: Final = 65536
_MAX_RECORDS: Final = 64
_MAX_SHAPES: Final = 64
_MAX_COUNT: Final = 10**9
_MAX_BYTES: Final = 2**50
_MAX_SECONDS: Final = 86400.0
_MODEL: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_TENSOR: Final = r"(?:bool|u?int(?:8|16|32|64)|float(?:16|32|64)|bfloat16|complex(?:32|64|128)|float8_\w{1,12})\[(?:\d{1,10}(?:,\d{1,10}){0,7})?\]"
_SHAPE: Final = re.compile(rf"{_TENSOR}(?: {_TENSOR}){{0,7}}(?: more)?|none|other")
OTHER_SHAPE: Final = "other"


class MessageError(ValueError):
    """The body is not a report; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a call was answered: the first of a process (`first`), of a bucket, or one that was answered otherwise.

    `outcome` and `reason` are from closed lists; `seconds` is the call's own time, `size` the artifact's in bytes.
    """

    first: bool
    outcome: str
    reason: str
    seconds: float | None = None
    size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """One report: answers, faults of the runtime, and how many calls no bucket was for, by shape."""

    model: str
    answers: tuple[Answer, ...] = ()
    errors: int = 0
    uncovered: tuple[tuple[str, int], ...] = ()


def parse(body: bytes) -> Message:
    """Read a body of at most MAX_BODY_BYTES. Raises MessageError."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the body is no JSON: {type(error).__name__}") from None
    if not isinstance(data, dict):
        raise MessageError("the body is no JSON object")
    if data.get("v") != VERSION:
        raise MessageError(f"v: this server knows version {VERSION}")
    model = data.get("model")
    if not isinstance(model, str) or not _MODEL.fullmatch(model):
        raise MessageError("model: is not the name of a CompiledModel")
    records = _list(data, "records", _MAX_RECORDS)
    counts = _list(data, "uncovered", _MAX_SHAPES)
    answers = tuple(
        _answer(record, f"records[{i}]") for i, record in enumerate(records) if record.get("event") == "preheat"
    )
    return Message(
        model=model,
        answers=answers,
        errors=sum(record.get("event") == "preheat-error" for record in records),
        uncovered=tuple(_count(entry, f"uncovered[{i}]") for i, entry in enumerate(counts)),
    )


def _list(data: dict[str, Any], name: str, most: int) -> list[dict[str, Any]]:
    value = data.get(name, [])
    if not isinstance(value, list) or len(value) > most or not all(isinstance(each, dict) for each in value):
        raise MessageError(f"{name}: must be a list of at most {most} objects")
    return value


def _answer(record: dict[str, Any], at: str) -> Answer:
    outcome, reason = record.get("outcome"), record.get("reasonClass")
    if outcome not in OUTCOMES:
        raise MessageError(f"{at}.outcome: must be one of {', '.join(OUTCOMES)}")
    return Answer(
        first=record.get("when") == "first-answer",
        outcome=str(outcome),
        # A newer runtime may know more classes than this server does.
        reason=reason if isinstance(reason, str) and reason in CLASSES else OTHER,
        seconds=_number(record, "firstAnswerSeconds", at, _MAX_SECONDS),
        size=_size(record, at),
    )


def _number(record: dict[str, Any], name: str, at: str, most: float) -> float | None:
    value = record.get(name)
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value <= most
    ):
        raise MessageError(f"{at}.{name}: must be a number from 0 to {most:.0f}")
    return float(value)


def _size(record: dict[str, Any], at: str) -> int | None:
    value = _number(record, "bytes", at, _MAX_BYTES)
    return None if value is None else int(value)


def _count(entry: dict[str, Any], at: str) -> tuple[str, int]:
    shape, count = entry.get("shape"), entry.get("count")
    if not isinstance(shape, str):
        raise MessageError(f"{at}.shape: must be a text")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MAX_COUNT:
        raise MessageError(f"{at}.count: must be a whole number from 1 to {_MAX_COUNT}")
    return shape if _SHAPE.fullmatch(shape) else OTHER_SHAPE, count
