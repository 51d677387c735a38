"""Says how this process was served: one line of JSON on stderr at the first answer, and one at the first use of each bucket.

Why it exists: a pod that starts cold because its torch is one patch release too new looks like any slow pod. The line
names the outcome and the reason in words, so that `kubectl logs` is enough. It never holds weights, and of inputs only
shapes, dtypes, and a number that differs from a compiled one. Where the installation counts how pods are served, the same is
sent there without the words (`sending`).
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .hook import in_words
from .locks import ForkLock, once
from .outside import let_through
from .records import dataclass
from .variables import ENV_LOG, ENV_MODEL, ENV_REPORTS_URL, ENV_WORK_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .sending import Sender
    from .steady import Steady
    from .uncovered import Uncovered

#: A later outcome of the same module is worth a line too; a process that keeps changing is not worth a flood.
MAX_LINES = 20
#: Buckets that have lines beside those, one for the first use of each and one if it is wrong: as many as a model can have.
MAX_BUCKETS = 128
#: What is sent of a line; no words, which only people read.
_SENT = (
    "event", "when", "outcome", "reasonClass", "module", "bucket", "hardware", "bytes", "firstAnswerSeconds",
    "sinceCompileSeconds", "timesTheJobs",
)  # fmt: skip
_UNCOVERED = "preheat-uncovered"
#: Of reasons, those that another torch, Python or machine than the artifact's is.
_ENVIRONMENT = ("TorchDiffers", "PythonDiffers", "CpuDiffers", "GpuDiffers")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How one call was answered. `outcome` is hot, warm, cold, eager or refused; `first_answer_seconds` is the call's time.

    `size` is that of the artifact's files in bytes, where an artifact answered.
    """

    outcome: str
    reason: str
    module: str | None = None
    bucket: str | None = None
    hardware: str | None = None
    class_name: str | None = None
    size: int | None = None
    first_answer_seconds: float | None = None
    since_compile_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What a check of a package's answer had to say: with `error`, it was wrong; without, why it was not checked."""

    module: str
    bucket: str
    hardware: str
    class_name: str
    reason: str
    mode: str
    error: float | None = None
    allowed: float | None = None


class Reporter:
    """Writes lines, each distinct one once, and has them sent. Thread-safe; raises nothing of its own (see `outside`)."""

    def __init__(self, environ: Mapping[str, str], *, manifest: str | None) -> None:
        self._model = environ.get(ENV_MODEL)
        self._silent = environ.get(ENV_LOG, "json") == "off"
        work = environ.get(ENV_WORK_DIR)
        self._file = Path(work) / "reports.jsonl" if work else None
        self.manifest = manifest
        self._lock = ForkLock()
        self._begin()
        self._sender = self._sender_for(environ)
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """As new, also in a forked child: it is a process of its own, and reports for itself."""
        #: Calls that an artifact answered, since they were last sent; threads may lose a few, which no lock is worth.
        self.by_artifact = 0
        self._said: set[tuple[str | None, ...]] = set()
        #: Of what was said, the first uses of buckets: by class, module and bucket.
        self._used: set[tuple[str | None, ...]] = set()
        self._checks: set[tuple[str | None, ...]] = set()
        self._pid = os.getpid()
        self._uncovered: Uncovered | None = None

    def _sender_for(self, environ: Mapping[str, str]) -> Sender | None:
        if not environ.get(ENV_REPORTS_URL):
            return None  # and nothing is imported for it
        from .sending import Sender

        return Sender(environ, self._take_counts, self._tell)

    def _take_counts(self) -> dict[str, int]:
        return self._uncovered.take() if self._uncovered is not None else {}

    def _tell(self, records: Sequence[Mapping[str, object]], counts: Mapping[str, int]) -> dict[str, object]:
        """What else is sent with these: of what calls the counts are a part, and what was found where nothing fits."""
        more: dict[str, object] = {}
        if counts and self._uncovered is not None:
            more["answered"], self.by_artifact = self.by_artifact, 0
            more["modules"] = self._uncovered.modules
        why = {record.get("reasonClass") for record in records}.intersection(_ENVIRONMENT)
        if why:
            from .fingerprint import here

            # CUDA is not touched in a process that had no business with it.
            more["node"] = here(gpu="GpuDiffers" in why)
        return more

    @property
    def model(self) -> str | None:
        """Name of the CompiledModel of this pod."""
        return self._model

    def answered(self, answer: Answer) -> None:
        """Report an answer, unless one with the same outcome and reason for the same module and bucket was."""
        key = (answer.class_name, answer.module, answer.bucket, answer.outcome, answer.reason)
        with self._lock:
            first_use = answer.bucket is not None and key[:3] not in self._used
            if key in self._said or (len(self._used) >= MAX_BUCKETS if first_use else self._is_full()):
                return
            when = "first-use" if first_use else "changed"
            if not any(said[0] == answer.class_name for said in self._said):
                when = "first-answer"
            self._said.add(key)
            if first_use:
                self._used.add(key[:3])
        self._write(when, answer)

    def _is_full(self) -> bool:
        """Whether enough was said but for first uses of buckets; the lock is held."""
        return len(self._said) - len(self._used) >= MAX_LINES

    def uncovered(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], module: str | None = None) -> None:
        """Count a call that no bucket of this module is for, by the shapes and dtypes of its tensors."""
        # A tensor whose shape cannot be had (a nested one) is not worth an exception.
        try:
            if self._uncovered is None:
                from .uncovered import Uncovered

                with self._lock:
                    self._uncovered = self._uncovered or Uncovered()
            if self._uncovered.add(args, kwargs, module):
                # Most processes are killed, and say nothing at their end.
                self._emit({"event": _UNCOVERED, "when": "doubled", "calls": self._uncovered.total()})
            if self._sender is not None:
                self._sender.counted()
        except Exception as error:
            let_through(error)

    def steady(self, steady: Steady) -> None:
        """Report how long later answers of a package take, beside what the compile Job measured."""
        self._emit(
            {
                "event": "preheat-steady",
                "module": steady.module,
                "bucket": steady.bucket,
                "hardware": steady.hardware,
                "medianMs": round(steady.median_ms, 4),
                "timesTheJobs": round(steady.times_the_jobs, 3),
            }
        )

    def failed(self, what: str, error: BaseException) -> None:
        """Report a failure inside Preheat, once for each kind; the call itself goes on in torch's own way."""
        key = ("error", what, type(error).__name__)
        with self._lock:
            if key in self._said or self._is_full():
                return
            self._said.add(key)
        self._emit({"event": "preheat-error", "reason": f"{what}: {in_words(error)[:600]}"})

    def checked(self, checked: Checked) -> None:
        """Report a package that was found wrong, or could not be checked; each once."""
        wrong = checked.error is not None
        key = ("check", checked.module, checked.bucket, str(wrong), checked.reason if wrong else None)
        with self._lock:
            # What was not checked, for whatever reason, may not keep back what was found wrong.
            alike = sum(said[3] == key[3] for said in self._checks)
            if key in self._checks or alike >= (MAX_BUCKETS if wrong else MAX_LINES):
                return
            self._checks.add(key)
        self._emit(
            {
                "event": "preheat-mismatch" if wrong else "preheat-unchecked",
                "reason": checked.reason,
                "module": checked.module,
                "bucket": checked.bucket,
                "hardware": checked.hardware,
                "class": checked.class_name,
                "verify": checked.mode,
                **({"error": f"{checked.error:.3g}", "allowed": f"{checked.allowed:.3g}"} if wrong else {}),
            }
        )

    def _at_exit(self) -> None:
        if os.getpid() != self._pid:
            return
        if self._uncovered is not None:
            self._emit({"event": _UNCOVERED, "when": "exit", "calls": self._uncovered.total()})
        if not self._said:
            reason = "torch.compile was called, the model never was"
            self._emit({"event": "preheat", "when": "exit", "outcome": None, "reason": reason})

    def _write(self, when: str, answer: Answer) -> None:
        self._emit(
            {
                "event": "preheat",
                "when": when,
                "outcome": answer.outcome,
                "reason": answer.reason,
                "reasonClass": _class_of(answer.outcome, answer.reason),
                "module": answer.module,
                "bucket": answer.bucket,
                "hardware": answer.hardware,
                "class": answer.class_name,
                "bytes": answer.size,
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
            "manifest": self.manifest,
            **fields,
        }
        line = json.dumps(record) + "\n"
        # Counts are sent by themselves, and at its end a process sends nothing.
        if self._sender is not None and fields["event"] != _UNCOVERED and fields.get("when") != "exit":
            self._sender.send({name: fields[name] for name in _SENT if fields.get(name) is not None})
        if not self._silent:
            _quietly(lambda: sys.stderr.write(line))
        file = self._file
        if file is not None:
            _quietly(lambda: _append(file, line))


@once
def of_this_process() -> Reporter:
    """The one reporter of a process, also where nothing else of Preheat can be had; `session` tells it the manifest."""
    return Reporter(os.environ, manifest=None)


def _class_of(outcome: str, reason: str) -> str:
    if outcome == "hot":
        return "Package"  # before a first answer is given, nothing is imported that is not needed
    from .reasons import class_of

    return class_of(outcome, reason)


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
    except (OSError, ValueError, AttributeError) as error:
        let_through(error)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)
