"""How the commands print: text for people, JSON for programs. Nothing a store holds may steer a terminal.

Nor may a result that nobody takes change what a command found: what cannot be written is remembered, and `ended` says so
once the exit code is known.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

from preheat_operator.cli import exits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preheat_runtime.manifest import Target

_UNITS = ("B", "kB", "MB", "GB", "TB")


class _Results:
    """Standard output; `lost` is what it answered when it could not take a result any more."""

    lost: OSError | None = None

    def write(self, text: str) -> None:
        if self.lost is None:
            self._guarded(lambda: sys.stdout.write(text))

    def flush(self) -> bool:
        if self.lost is None:
            self._guarded(lambda: sys.stdout.flush())
        return self.lost is None

    def _guarded(self, act: Callable[[], object]) -> None:
        if sys.stdout is None:  # it was closed before we were started
            self.lost = OSError(errno.EBADF, os.strerror(errno.EBADF))
            return
        try:
            act()
        except OSError as error:
            self.lost = error
            _discard(sys.stdout)


_results = _Results()


def begin() -> None:
    """Nothing is lost yet. Words that the output's encoding lacks are written as escapes rather than not at all."""
    _results.lost = None
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def ended(code: int) -> int:
    """The exit code of a command that has found out `code`, once its result is where it should be.

    A reader that has gone away has seen enough. A result that found no room is not taken for one that was written.
    """
    if _results.flush() or _results.lost is None or _results.lost.errno in (errno.EPIPE, errno.EBADF):
        return code
    say(f"standard output: {_results.lost.strerror or _results.lost}")
    return code or exits.REFUSED


def say(text: str) -> None:
    """One line on standard error: what is going on, or wrong."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"preheat: {printable(text)}\n")
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def write(text: str) -> None:
    """A result, on standard output."""
    _results.write(printable(text) + "\n")


def write_json(value: Any) -> None:
    """A result for programs, on standard output."""
    _results.write(json.dumps(value, indent=2) + "\n")


def delivered() -> bool:
    """Whether all that was written has been taken."""
    return _results.flush()


def _discard(stream: TextIO) -> None:
    """Let what the stream still holds go nowhere: Python would try again at its end, and change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    finally:
        os.close(nowhere)


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
