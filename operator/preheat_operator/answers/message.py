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

from preheat_operator.api import served
from preheat_operator.api.served import Served
from preheat_runtime.reasons import CLASSES, OTHER, OUTCOMES

VERSION: Final = 1
MAX_BODY_BYTES: Final = 65536
_MAX_RECORDS: Final = 64
_MAX_SHAPES: Final = 64
_MAX_COUNT: Final = 10**9
_MAX_BYTES: Final = 2**50
_MAX_SECONDS: Final = 86400.0
_MODEL: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_SHAPE: Final = re.compile(served.SHAPE)
OTHER_SHAPE: Final = "other"


class MessageError(ValueError):
    """The body is not a report; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How a call was answered: the first of a process (`first`), of a bucket, or one that was answered otherwise.

    `outcome` and `reason` are from closed lists; `seconds` is the call's own time, `size` the artifact's in bytes,
    `target` whose artifact it was, as `module/bucket/hardware`.
    """

    first: bool
    outcome: str
    reason: str
    seconds: float | None = None
    size: int | None = None
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """One report: answers, faults of the runtime, and how many calls no bucket was for, by shape.

    `wrong` are the targets that answered otherwise than eager, `steady` how many times the compile Job's median later answers
    take, `modules` whose calls the shapes are of. `answered` counts calls that an artifact answered. `node`: what nothing fitted.
    """

    model: str
    answers: tuple[Answer, ...] = ()
    errors: int = 0
    uncovered: tuple[tuple[str, int], ...] = ()
    modules: tuple[str | None, ...] = ()
    wrong: tuple[str, ...] = ()
    steady: tuple[tuple[str, float], ...] = ()
    answered: int = 0
    node: tuple[tuple[str, str], ...] = ()

    def served(self, hour: int) -> Served:
        """What of it is noted on the pod; `hour` is the number of the present hour since 1970."""
        total = Served(hour=hour)
        for answer in self.answers:
            first = {answer.target: answer.seconds} if answer.target and answer.seconds is not None else {}
            one = Served(hour=hour, answers={f"{answer.outcome}/{answer.reason}": 1}, first=first)
            total = served.gather(total, one, hour=hour) if answer.first else total
        modules = (*self.modules, *[None] * len(self.uncovered))
        for (shape, count), module in zip(self.uncovered, modules, strict=False):
            call = Served(hour=hour, uncovered={served.call_of(module, shape): count})
            total = served.gather(total, call, hour=hour)
        rest = Served(
            hour=hour, wrong=self.wrong, steady=dict(self.steady), answered=self.answered, node=dict(self.node)
        )
        return served.gather(total, rest, hour=hour)


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
        modules=tuple(str(entry["module"]) if isinstance(entry.get("module"), str) else None for entry in counts),
        wrong=tuple(t for r in records if r.get("event") == "preheat-mismatch" and (t := _target(r)) is not None),
        steady=tuple(
            (target, ratio) for i, r in enumerate(records) if r.get("event") == "preheat-steady"
            and (target := _target(r)) is not None and (ratio := _number(r, "timesTheJobs", f"records[{i}]", 1e6)) is not None
        ),
        answered=_answered(data),
        node=tuple(served.facts(data.get("node")).items()),
    )  # fmt: skip


def _target(record: dict[str, Any]) -> str | None:
    parts = [record.get(name) for name in ("module", "bucket", "hardware")]
    target = "/".join(part for part in parts if isinstance(part, str))
    return target if served.is_target(target) else None


def _answered(data: dict[str, Any]) -> int:
    value = data.get("answered", 0)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        raise MessageError(f"answered: must be a whole number from 0 to {_MAX_COUNT}")
    return value


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
        target=_target(record),
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
