"""Reads report.json, which the user's image wrote, without believing anything of it.

What has another type than docs/report.md promises counts as not there; texts lose what could steer a terminal or a
browser; lists and texts have bounds, so that no report can make a page that nobody can open.
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FORMAT_VERSION: Final = 1
MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
"""A report of a range with graph breaks has some 50 KB."""
MAX_RECORDS: Final = 500
MAX_TEXT: Final = 2000
LARGEST: Final = 1e18
"""No measurement is beyond it (an exabyte, thirty thousand million years), and plots are drawn of what is not."""


class ReportError(ValueError):
    """The file is no report.json that this version can read; the message says why."""


@dataclass(frozen=True)
class Record:
    """One JSON object of the report; every method answers None, or nothing, for what is not there."""

    fields: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        """A text, without control characters; numbers and booleans as they are written in JSON."""
        value = self.fields.get(name)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float):
            return str(value)
        return clean(value) if isinstance(value, str) and value else None

    def number(self, name: str) -> float | None:
        """A finite number, from a decimal string or a JSON number."""
        return number(self.fields.get(name))

    def decimal(self, name: str) -> str | None:
        """A number as it is written in the report; None when it is none."""
        value = self.fields.get(name)
        return str(value).strip() if number(value) is not None and not isinstance(value, bool) else None

    def numbers(self, name: str) -> list[float]:
        """A list of numbers; what is none is left out."""
        value = self.fields.get(name)
        items = value[:MAX_RECORDS] if isinstance(value, list) else []
        return [each for item in items if (each := number(item)) is not None]

    def records(self, name: str) -> list[Record]:
        """A list of objects."""
        value = self.fields.get(name)
        items = value[:MAX_RECORDS] if isinstance(value, list) else []
        return [Record(item) for item in items if isinstance(item, dict)]

    def record(self, name: str) -> Record:
        """An object; an empty one when it is not there."""
        value = self.fields.get(name)
        return Record(value if isinstance(value, dict) else {})

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.fields.get(name)
        items = value[:MAX_RECORDS] if isinstance(value, list) else []
        return [clean(item) for item in items if isinstance(item, str)]

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Fields that hold a text or a number, by name; objects are told as their JSON."""
        for name in sorted(self.fields)[:MAX_RECORDS]:
            value = self.fields[name]
            text = clean(json.dumps(value, sort_keys=True)) if isinstance(value, dict | list) else self.text(name)
            if text is not None:
                yield clean(name), text


class Report(Record):
    """A whole report."""

    @classmethod
    def parse(cls, data: bytes) -> Report:
        """Read report.json. Raises ReportError."""
        if len(data) > MAX_REPORT_BYTES:
            raise ReportError(f"the report has {len(data)} bytes, more than {MAX_REPORT_BYTES}")
        try:
            value = json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ReportError(f"the report is no JSON: {error}") from None
        version = value.get("formatVersion") if isinstance(value, dict) else None
        if version != FORMAT_VERSION:
            raise ReportError(
                f"the report has formatVersion {version!r}, this version of Preheat reads {FORMAT_VERSION}"
            )
        return cls(value)


def number(value: object) -> float | None:
    """A number from a decimal string or a JSON number, finite and no larger than `LARGEST`, else None."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        result = float(value) if len(str(value)) <= 64 else math.nan
    except (ValueError, OverflowError):
        return None
    if not abs(result) <= LARGEST:
        return None
    # Numbers so small that one divided by them is infinite are nothing to a plot.
    return result if abs(result) >= sys.float_info.min else 0.0


def clean(text: str) -> str:
    """The text with a mark in place of what is no printable character, cut to a bearable length."""
    kept = "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text[: MAX_TEXT + 1]
    )
    return f"{kept[:MAX_TEXT]} …" if len(kept) > MAX_TEXT else kept
