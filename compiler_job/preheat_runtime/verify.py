"""Holds the first answer of each bound package against eager's, and takes a package that is wrong out of use.

Why it exists: the compile Job proved the package with its own inputs and weights, on its own machine. The pod has others,
and wrong answers are worse than slow ones. `Before` costs the first call an eager answer; `After` costs it a copy of its
inputs and of its answer, and compares on the side: in one thread, of lower priority, that a fork or the end of the process
stops. Whatever goes wrong with a check, the answer stands: all it can do is to drop a package and to say so.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .compare import difference
from .memory import memory_available
from .report import Checked
from .trial import Modes, NotRepeatable, Stopped, run, twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .bind import BoundPackage, ModuleState
    from .compare import Difference
    from .regions import RegionalPackage
    from .report import Reporter
    from .revision import Candidate

#: Bytes of a call's inputs and answer that are kept for a check on the side; a larger call is not checked.
MAX_KEPT_BYTES = 32 * 1024 * 1024
#: So many checks of one package in a process, void ones included, and no more: some models get new weights all the time.
MAX_CHECKS = 16
#: Seconds that a fork or the end of the process waits for the one operator that a check is in.
_PATIENCE = 5.0
_NICE = 10
#: What any process with torch in it holds, of the peak that an eager process had in the compile Job.
_TORCH_BYTES = 128 * 1024 * 1024


class _Void(Exception):
    """The module or its weights changed meanwhile: nothing follows from this check."""


class Verifier:
    """The checks of one process. `wrong` says of each package that is out of use why, in words. Thread-safe."""

    def __init__(self, mode: str, reporter: Reporter) -> None:
        """`mode` is Before, After or Never."""
        self.mode = mode
        self.reporter = reporter
        self.wrong: dict[Candidate, str] = {}
        self._ended: dict[Candidate, int] = {}
        self._lock = threading.Lock()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._paused = False
        self._watching = False

    def check(
        self, candidate: Candidate, package: BoundPackage | RegionalPackage, module: torch.nn.Module, state: ModuleState
    ) -> Check | None:
        """The check of a package that was just bound; None when it needs none."""
        if self.mode == "Never" or candidate in self.wrong:
            return None
        return Check(self, candidate, package, module, state)

    def exhausted(self, candidate: Candidate) -> bool:
        """Whether this package was checked often enough; never one that is wrong, of which calls may still be under way."""
        with self._lock:
            return self._ended.get(candidate, 0) >= MAX_CHECKS and candidate not in self.wrong

    def ended(self, candidate: Candidate) -> None:
        """Count a check, whatever it came to."""
        with self._lock:
            self._ended[candidate] = self._ended.get(candidate, 0) + 1

    def take(self) -> bool:
        """Take the one place on the side; False when it is taken. To be given back by `start` or `give_back`."""
        with self._lock:
            if self._busy or self._paused:
                return False
            self._busy = True
            if not self._watching:
                self._watching = True
                atexit.register(self._pause)
                os.register_at_fork(before=self._pause, after_in_parent=self._go_on, after_in_child=self._enter_child)
        return True

    def give_back(self) -> None:
        """Let the next check have the place."""
        with self._lock:
            self._busy, self._thread = False, None

    def start(self, answered: Answered) -> None:
        """Check on the side."""

        def body() -> None:
            try:
                _be_modest()
                answered.check.settle(answered, stop=lambda: self._paused)
            finally:
                self.give_back()

        with self._lock:
            thread = None if self._paused else threading.Thread(target=body, name="preheat-check", daemon=True)
            self._thread = thread
        if thread is None:
            self.give_back()
        else:
            thread.start()

    def _pause(self) -> None:
        """No thread of ours may be inside torch when the process ends or is copied: it would crash, or hold its locks."""
        self._paused = True
        thread = self._thread
        if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
            thread.join(_PATIENCE)

    def _go_on(self) -> None:
        self._paused = False

    def _enter_child(self) -> None:
        """What was being checked in the parent is checked here when it answers here."""
        self._lock = threading.Lock()
        self._busy, self._thread, self._paused = False, None, False


class Check:
    """The check of one bound package. While it is `due`, `begin` it with each call."""

    def __init__(
        self, verifier: Verifier, candidate: Candidate, package: BoundPackage | RegionalPackage, module: torch.nn.Module,
        state: ModuleState,
    ) -> None:  # fmt: skip
        self.due = True
        self._told_size = False
        self.verifier = verifier
        self.candidate = candidate
        self.package = package
        self._module = module
        self._state = state

    def begin(self, tensors: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Note a call before it is answered; None when it is not to be checked. Never raises."""
        aside = self.verifier.mode == "After"
        size = _bytes(tensors)
        if aside and size > MAX_KEPT_BYTES:
            self.too_large(size)
            return None
        if aside and not self.verifier.take():
            return None
        try:
            if self.verifier.exhausted(self.candidate):
                self.due = False
                raise _Void
            if aside:
                args, kwargs = _kept((args, dict(kwargs)))
            versions = _versions(self._state)
        except Exception as error:  # no memory for a copy, mostly
            if not isinstance(error, _Void):
                self.verifier.reporter.failed("an answer was not checked", error)
            if aside:
                self.verifier.give_back()
            return None
        return Call(self, args, kwargs, Modes.now(), versions, size)

    def too_large(self, size: int) -> None:
        """Say that a call cannot be checked on the side; a smaller one will be."""
        if self._told_size:
            return
        self._told_size = True
        self._say(f"a call's inputs and answer hold {size} bytes, and up to {MAX_KEPT_BYTES} are kept for a check")

    def settle(self, answered: Answered, stop: Any) -> str | None:
        """Compare, drop the package when it is wrong, and say what there is to say. Why it is wrong, or None.

        Never raises an Exception.
        """
        try:
            seen = self._compare(answered, stop)
        except (_Void, Stopped):
            return None  # due again
        except NotRepeatable as error:
            self.due = False
            self._say(str(error))
            return None
        except Exception as error:
            self.due = False
            self.verifier.reporter.failed("an answer was not checked", error)
            return None
        finally:
            self.verifier.ended(self.candidate)
        self.due = False
        allowed = self.candidate.target.allowed_error
        if seen.maximum <= allowed:
            return None
        words = f"its answer differed from eager's by {seen.words(allowed)}, so the package is not used again"
        self.verifier.wrong[self.candidate] = words
        self._say(seen.why or "the numbers differ", error=seen.maximum, allowed=allowed)
        return words

    def _compare(self, answered: Answered, stop: Any) -> Difference:
        """How far the answer is from eager's. Raises _Void, NotRepeatable or Stopped, and whatever torch raises."""
        self._require_room()
        allowed = self.candidate.target.allowed_error
        with answered.call.modes.entered():
            eager = answered.eager = self._eager(answered.call, stop)
            self._require_unchanged(answered.call)
            seen = difference(answered.answer, eager)
            if seen.maximum <= allowed:
                return seen
            # Numbers of weights do not tell all changes of them. But if the package is wrong, it is still wrong between
            # two answers of eager that are the same.
            call = answered.call
            again = self.package.again(twin(self._module, self._state.tensors.values()), call.args, call.kwargs)
            stayed = difference(self._eager(call, stop), eager).maximum <= allowed
            self._require_unchanged(call)
            if not stayed or difference(again, eager).maximum <= allowed:
                raise _Void
        return seen

    def _eager(self, call: Call, stop: Any) -> Any:
        module = twin(self._module, self._state.tensors.values())
        # What was copied is what was bound.
        self._require_unchanged(call)
        return run(module, call.args, call.kwargs, stop)

    def _require_unchanged(self, call: Call) -> None:
        if torch.nn.modules.module._has_any_global_hook() or _versions(self._state) != call.versions:
            raise _Void
        if not self._state.unchanged():
            raise _Void

    def _require_room(self) -> None:
        """On the side, an eager run must not be what the container is killed for."""
        peak = self.candidate.entry.figures.get("eagerPeakBytes")
        free = memory_available() if self.verifier.mode == "After" and peak is not None else None
        if free is None or peak is None:
            return
        need = float(peak) - _bytes(self._state.tensors.values()) - _TORCH_BYTES
        if free < need:
            self._say(
                f"eager needs up to {need / 2**20:.0f} MiB beside the weights, and {free / 2**20:.0f} MiB are free"
            )
            raise _Void

    def _say(self, reason: str, *, error: float | None = None, allowed: float | None = None) -> None:
        entry = self.candidate.entry
        self.verifier.reporter.checked(
            Checked(
                module=entry.module, bucket=entry.bucket, hardware=entry.hardware, class_name=type(self._module).__qualname__,
                reason=reason, mode=self.verifier.mode, error=error, allowed=allowed,
            )
        )  # fmt: skip


@dataclass
class Call:
    """A call that is to be checked: what it was given, and what was so at that moment."""

    check: Check
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    modes: Modes
    versions: tuple[int, ...]
    size: int

    def compared(self, answer: Any) -> tuple[Any, str | None]:
        """What to return for the package's answer, and why it is not the package's own. Never raises an Exception."""
        verifier = self.check.verifier
        if verifier.mode == "Before":
            answered = Answered(self, answer)
            why = self.check.settle(answered, stop=lambda: False)
            return (answer, None) if why is None else (answered.eager, why)
        started = False
        try:
            size = self.size + _bytes(pytree.tree_leaves(answer))
            if size > MAX_KEPT_BYTES:
                self.check.too_large(size)
            else:
                verifier.start(Answered(self, _kept(answer)))
                started = True
        except Exception as error:
            verifier.reporter.failed("an answer was not checked", error)
        finally:
            if not started:
                verifier.give_back()
        return answer, None

    def forget(self) -> None:
        """There was no answer."""
        if self.check.verifier.mode == "After":
            self.check.verifier.give_back()


@dataclass
class Answered:
    """A call with the package's answer, and eager's when there is one."""

    call: Call
    answer: Any
    eager: Any = None

    @property
    def check(self) -> Check:
        """The check it belongs to."""
        return self.call.check


def _kept(values: Any) -> Any:
    """The same with copies of all tensors: their owner may write to them as soon as the call is over."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), values)


def _bytes(values: Any) -> int:
    return sum(each.numel() * each.element_size() for each in values if isinstance(each, torch.Tensor))


def _versions(state: ModuleState) -> tuple[int, ...]:
    """torch's counts of writes to the weights; those made in inference mode have none."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in state.tensors.values())


def _be_modest() -> None:
    """Leave the processors to the threads that serve: for this thread alone, where the system can do that."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICE))
    # OpenMP counts for each thread, and torch sets a new thread's count when it is first asked.
    torch.get_num_threads()
    set_threads = getattr(ctypes.CDLL(None), "omp_set_num_threads", None)
    if set_threads is not None:
        set_threads(1)
