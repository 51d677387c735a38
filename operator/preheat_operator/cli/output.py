"""How the commands print: text for people, JSON for programs. Nothing a store holds may steer a terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_runtime.manifest import Target

_UNITS = ("B", "kB", "MB", "GB", "TB")


def say(text: str) -> None:
    """One line on standard error: what is going on, or wrong."""
    sys.stderr.write(f"preheat: {printable(text)}\n")
    sys.stderr.flush()


def write(text: str) -> None:
    """A result, on standard output."""
    sys.stdout.write(printable(text) + "\n")


def write_json(value: Any) -> None:
    """A result for programs, on standard output."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def printable(text: str) -> str:
    """The text without what could steer a terminal; line ends and tabs stay."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\N{REPLACEMENT CHARACTER}" for each in text)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines with aligned columns; the last column may be of any width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)] if rows else []
    return ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]


def size(text: str | int) -> str:
    """A number of bytes for people; empty for an empty text."""
    if text == "":
        return ""
    number = float(text)
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"


def speedup(target: Target) -> str:
    """A target's speedup for people; empty when nothing was timed."""
    figure = target.figures.get("speedup", "")
    return f"{float(figure):.2f} x eager" if figure else ""


def name(target: Target) -> str:
    """A target by module, bucket and hardware profile."""
    return "/".join(target.key)
