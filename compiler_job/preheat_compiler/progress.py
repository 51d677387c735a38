"""Tells people and the controller how far a compile Job is.

Why it exists: a killed container leaves nothing behind but its termination message, so that message is written as the
Job goes; and a Job that compiles for an hour in silence looks like one that hangs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from preheat_compiler.verdict import shorten

#: Where Kubernetes reads the termination message from, and how much of it.
TERMINATION_LOG = Path("/dev/termination-log")
TERMINATION_LIMIT = 4096


def say(text: str) -> None:
    """One line on stdout, with the time of day in UTC."""
    print(f"{time.strftime('%H:%M:%S', time.gmtime())} preheat: {text}", flush=True)  # noqa: T201


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
        self._write({"v": 1, "reason": reason, "message": shorten(message)})

    def _write(self, message: dict[str, object]) -> None:
        text = json.dumps(message, separators=(",", ":"))
        if len(text) > TERMINATION_LIMIT and "done" in message:
            # What matters after a kill is which target ran; the names of many finished ones do not fit.
            text = json.dumps({**message, "done": []}, separators=(",", ":"))
        try:
            # In place: the file is a mount of its own, which a rename could not replace.
            self._path.write_text(text, encoding="ascii")
        except OSError as error:
            print(f"preheat: no termination message: {error}", file=sys.stderr)  # noqa: T201
