"""Says how this process was served: one line of JSON on stderr at the first answer.

Why it exists: a pod that starts cold because its torch is one patch release too new looks like any slow pod. The line
names the outcome and the reason in words, so that `kubectl logs` is enough. It never holds inputs or weights.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from .locks import ForkLock
from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A later outcome of the same module is worth a line too; a process that keeps changing is not worth a flood.
MAX_LINES = 20


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How one call was answered. `outcome` is hot, warm, cold or eager; `first_answer_seconds` is the call's time."""

    outcome: str
    reason: str
    module: str | None = None
    bucket: str | None = None
    hardware: str | None = None
    class_name: str | None = None
    first_answer_seconds: float | None = None
    since_compile_seconds: float | None = None


class Reporter:
    """Writes lines, each distinct one once. Thread-safe; never raises."""

    def __init__(self, environ: Mapping[str, str], *, manifest: str | None) -> None:
        self._model = environ.get("PREHEAT_MODEL")
        self._silent = environ.get("PREHEAT_LOG", "json") == "off"
        work = environ.get("PREHEAT_WORK_DIR")
        self._file = Path(work) / "reports.jsonl" if work else None
        self._manifest = manifest
        self._lock = ForkLock()
        self._said: set[tuple[str | None, ...]] = set()
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    def answered(self, answer: Answer) -> None:
        """Report an answer, unless one with the same outcome and reason for the same module and bucket was."""
        key = (answer.class_name, answer.module, answer.bucket, answer.outcome, answer.reason)
        with self._lock:
            self._enter_child()
            if key in self._said or len(self._said) >= MAX_LINES:
                return
            first = not any(said[0] == answer.class_name for said in self._said)
            self._said.add(key)
        self._write("first-answer" if first else "changed", answer)

    def failed(self, what: str, error: BaseException) -> None:
        """Report a failure inside Preheat, once for each kind; the call itself goes on in torch's own way."""
        key = ("error", what, type(error).__name__)
        with self._lock:
            self._enter_child()
            if key in self._said or len(self._said) >= MAX_LINES:
                return
            self._said.add(key)
        self._emit({"event": "preheat-error", "reason": f"{what}: {type(error).__name__}: {str(error)[:500]}"})

    def _enter_child(self) -> None:
        """A forked child is a process of its own, and reports for itself."""
        if os.getpid() != self._pid:
            self._pid = os.getpid()
            self._said.clear()

    def _at_exit(self) -> None:
        if not self._said and os.getpid() == self._pid:
            self._emit(
                {
                    "event": "preheat",
                    "when": "exit",
                    "outcome": None,
                    "reason": "torch.compile was called, the model never was",
                }
            )

    def _write(self, when: str, answer: Answer) -> None:
        self._emit(
            {
                "event": "preheat",
                "when": when,
                "outcome": answer.outcome,
                "reason": answer.reason,
                "module": answer.module,
                "bucket": answer.bucket,
                "hardware": answer.hardware,
                "class": answer.class_name,
                "firstAnswerSeconds": _rounded(answer.first_answer_seconds),
                "sinceCompileSeconds": _rounded(answer.since_compile_seconds),
            }
        )

    def _emit(self, fields: Mapping[str, object]) -> None:
        record = {
            "logger": "preheat",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "pid": os.getpid(),
            "model": self._model,
            "manifest": self._manifest,
            **fields,
        }
        line = json.dumps(record) + "\n"
        if not self._silent:
            _quietly(lambda: sys.stderr.write(line))
        file = self._file
        if file is not None:
            _quietly(lambda: _append(file, line))


def _append(file: Path, line: str) -> None:
    # One write of a short line: processes of one pod do not tear each other's lines.
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _quietly(write: Callable[[], object]) -> None:
    """A closed stderr, a full or read-only disk: the model answers all the same, and there is nobody to tell."""
    try:
        write()
    except (OSError, ValueError, AttributeError):
        return


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
