"""Tells people and the controller how far a compile Job is.

Why it exists: a killed container leaves nothing behind but its termination message, so that message is written as the
Job goes; and a Job that compiles for an hour in silence looks like one that hangs.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from preheat_compiler.verdict import shorten
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from typing import TextIO

#: Where Kubernetes reads the termination message from, and how much of it.
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_LIMIT = 4096


def say(text: str) -> None:
    """One line on stdout, with the time of day in UTC, and without secrets. Never raises: nothing depends on who reads it."""
    _write_line(sys.stdout, f"{time.strftime('%H:%M:%S', time.gmtime())} preheat: {redact(text)}")


def complain(text: str) -> None:
    """One line on stderr, likewise."""
    _write_line(sys.stderr, f"preheat: {redact(text)}")


def _write_line(stream: TextIO | None, line: str) -> None:
    if stream is None:  # closed before we were started
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        # The stream's own way with what it cannot hold is to raise; it is the user's code's, too, and stays as in a pod.
        stream.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        stream.flush()
    except (OSError, ValueError):
        # Its reader is gone. What was not written would be tried again at the end, and make that a failure.
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


class Termination:
    """The container's termination message; the last one written is what the controller reads."""

    def __init__(self, path: Path = TERMINATION_LOG) -> None:
        self._path = path

    def running(self, target: str | None, done: list[str]) -> None:
        """`target` is being compiled (None: nothing any more), `done` have a verdict."""
        message: dict[str, object] = {"v": 1}
        if target is not None:
            message["running"] = target
        self._write({**message, "done": done})

    def fault(self, reason: str, message: str) -> None:
        """The whole Job ends without verdicts."""
        self._write({"v": 1, "reason": reason, "message": shorten(redact(message))})

    def _write(self, message: dict[str, object]) -> None:
        text = json.dumps(message, separators=(",", ":"))
        if len(text) > TERMINATION_LIMIT and "done" in message:
            # What matters after a kill is which target ran; the names of many finished ones do not fit.
            text = json.dumps({**message, "done": []}, separators=(",", ":"))
        try:
            # In place: the file is a mount of its own, which a rename could not replace.
            self._path.write_text(text, encoding="ascii")
        except OSError as error:
            complain(f"no termination message: {error}")
