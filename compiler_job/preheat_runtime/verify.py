"""Which answers of packages are held against eager's, and when: the part of it that is in the way of an answer.

Why it exists: the compile Job proved the package with its own inputs and weights, on its own machine. The pod has others,
and wrong answers are worse than slow ones. `Before` costs the first call an eager answer; `After` costs it a copy of its
inputs and of its answer, and compares on the side: in one thread, of lower priority, that a fork or the end of the process
stops. Whatever goes wrong with a check, the answer stands. The comparison itself, and what it imports, is in `examine`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .locks import ForkLock
from .outside import let_through
from .records import dataclass
from .replaced import replaced
from .report import Checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .bind import BoundPackage, ModuleState
    from .regions import RegionalPackage
    from .report import Reporter
    from .revision import Candidate

#: Bytes of a call's inputs and answer that are kept for a check on the side; a larger call is not checked.
MAX_KEPT_BYTES = 32 * 1024 * 1024
#: So many checks of one package in a process, void ones included, and no more: some models get new weights all the time.
MAX_CHECKS = 16
#: Seconds from an answer to its check on the side.
DELAY_SECONDS = 0.1
#: Seconds that a fork or the end of the process waits for the one operator that a check is in.
_PATIENCE = 5.0
_NICE = 10


class Place:
    """The one place on the side, for who holds it; free again when nobody does, whatever kept that one from giving it back."""


class Verifier:
    """The checks of one process. `wrong` says of each package that is out of use why, in words. Thread-safe."""

    def __init__(self, mode: str, reporter: Reporter) -> None:
        """`mode` is Before, After or Never."""
        self.mode = mode
        self.reporter = reporter
        self.wrong: dict[Candidate, str] = {}
        self._ended: dict[Candidate, int] = {}
        self._lock = ForkLock()
        self._place: Callable[[], Place | None] = _nothing
        self._thread: Callable[[], threading.Thread | None] = _nothing
        self._stop = threading.Event()
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

    def take(self) -> Place | None:
        """The one place on the side; None when it is taken."""
        with self._lock:
            if self._place() is not None or self._stop.is_set():
                return None
            place = Place()
            self._place = weakref.ref(place)
            if not self._watching:
                self._watching = True
                atexit.register(self._pause)
                os.register_at_fork(before=self._pause, after_in_parent=self._go_on, after_in_child=self._enter_child)
        return place

    def start(self, call: Call, answer: Any) -> None:
        """Check on the side."""
        stop = self._stop

        def body() -> None:
            try:
                # Not at once: the interpreter's lock belongs to who has just been answered.
                if not stop.wait(DELAY_SECONDS):
                    _be_modest()
                    call.settle(answer, stop.is_set)
            finally:
                call.forget()

        # In a forked child, operators of two threads that are the first of both may raise (threads.own says why). So the caller's thread,
        # which may have run nothing but the package, looks at torch's threads before the check's does.
        try:
            torch.__config__.parallel_info()
        except RuntimeError as error:
            let_through(error)
        with self._lock:
            thread = None if stop.is_set() else threading.Thread(target=body, name="preheat-check", daemon=True)
            self._thread = _nothing if thread is None else weakref.ref(thread)  # which threading holds while it runs
        if thread is None:
            call.forget()
        else:
            thread.start()

    def _pause(self) -> None:
        """No thread of ours may be inside torch when the process ends or is copied: it would crash, or hold its locks."""
        self._stop.set()
        thread = self._thread()
        if thread is not None and thread is not threading.current_thread() and thread.ident is not None:
            thread.join(_PATIENCE)

    def _go_on(self) -> None:
        self._stop.clear()

    def _enter_child(self) -> None:
        """What was being checked in the parent is checked here when it answers here."""
        self._place, self._thread, self._stop = _nothing, _nothing, threading.Event()


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
        self.module = module
        self.state = state

    def begin(self, tensors: Sequence[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call | None:
        """Note a call before it is answered; None when it is not to be checked. Raises nothing of its own."""
        aside = self.verifier.mode == "After"
        size = _bytes(tensors)
        if aside and size > MAX_KEPT_BYTES:
            self.too_large(size)
            return None
        place = self.verifier.take() if aside else None
        if aside and place is None:
            return None
        try:
            if self.verifier.exhausted(self.candidate):
                self.due = False
                return None
            if aside:
                args, kwargs = kept((args, dict(kwargs)))
            return Call(self, args, kwargs, size, place)
        except Exception as error:  # no memory for a copy, mostly
            let_through(error)
            self.verifier.reporter.failed("an answer was not checked", error)
            return None

    def too_large(self, size: int) -> None:
        """Say that a call cannot be checked on the side; a smaller one will be."""
        if self._told_size:
            return
        self._told_size = True
        self.say(f"a call's inputs and answer hold {size} bytes, and up to {MAX_KEPT_BYTES} are kept for a check")

    def say(self, reason: str, *, error: float | None = None, allowed: float | None = None) -> None:
        """Report that the package is wrong (with `error`), or why its answer could not be compared."""
        entry = self.candidate.entry
        self.verifier.reporter.checked(
            Checked(
                module=entry.module, bucket=entry.bucket, hardware=entry.hardware, class_name=type(self.module).__qualname__,
                reason=reason, mode=self.verifier.mode, error=error, allowed=allowed,
            )
        )  # fmt: skip


class Call:
    """A call that is to be checked: what it was given, and what was so at that moment."""

    def __init__(
        self, check: Check, args: tuple[Any, ...], kwargs: Mapping[str, Any], size: int, place: Place | None
    ) -> None:  # fmt: skip
        """`args` and `kwargs` are the user's own, or copies; `size` is their bytes. `place`: on the side."""
        self.check = check
        self._place = place
        self.args = args
        self.kwargs = kwargs
        self.modes = Modes.now()
        self.versions = versions(check.state)
        self._size = size

    def compared(self, answer: Any) -> tuple[Any, str | None]:
        """What to return for the package's answer, and why it is not the package's own. Raises nothing of its own."""
        verifier = self.check.verifier
        if verifier.mode == "Before":
            why, eager = self.settle(answer, lambda: False)
            return (answer, None) if why is None else (eager, why)
        try:
            size = self._size + _bytes(pytree.tree_leaves(answer))
            if size > MAX_KEPT_BYTES:
                self.check.too_large(size)
            else:
                verifier.start(self, kept(answer))
                return answer, None
        except Exception as error:  # no memory for a copy, no further thread
            let_through(error)  # and the thread may be running: it has the place, or nobody
            verifier.reporter.failed("an answer was not checked", error)
        self.forget()
        return answer, None

    def settle(self, answer: Any, stop: Callable[[], bool]) -> tuple[str | None, Any]:
        """Compare; why the package is wrong, and eager's answer then. Raises nothing of its own."""
        try:
            from .examine import settle

            found = settle(self, answer, stop)
        except Exception as error:
            let_through(error)
            self.check.due = False
            self.check.verifier.reporter.failed("an answer was not checked", error)
            found = None, None
        self.check.verifier.ended(self.check.candidate)
        return found

    def forget(self) -> None:
        """Give the place back, as there was no answer, or it is compared."""
        self._place = None


@dataclass(frozen=True, kw_only=True)
class Modes:
    """What torch keeps for each thread and an answer depends on."""

    grad: bool
    inference: bool
    autocast: bool
    autocast_dtype: torch.dtype

    @classmethod
    def now(cls) -> Modes:
        """This thread's."""
        return cls(
            grad=torch.is_grad_enabled(),
            inference=torch.is_inference_mode_enabled(),
            autocast=torch.is_autocast_enabled("cpu"),
            autocast_dtype=torch.get_autocast_dtype("cpu"),
        )

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, they are this thread's."""
        with (
            torch.inference_mode(self.inference),
            torch.set_grad_enabled(self.grad),
            torch.autocast("cpu", enabled=self.autocast, dtype=self.autocast_dtype, cache_enabled=False),
        ):
            yield


def kept(values: Any) -> Any:
    """The same with copies of all tensors: their owner may write to them as soon as the call is over."""
    return replaced(values, lambda tensor: tensor.detach().clone())


def _nothing() -> None:
    """What a weak reference gives once nothing is there."""


def _bytes(values: Any) -> int:
    return sum(each.numel() * each.element_size() for each in values if isinstance(each, torch.Tensor))


def versions(state: ModuleState) -> tuple[int, ...]:
    """torch's counts of writes to the weights; those made in inference mode have none."""
    return tuple(-1 if tensor.is_inference() else tensor._version for tensor in state.tensors.values())


def _be_modest() -> None:
    """Leave the processors to the threads that serve: for this thread alone, where the system can do that."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, min(19, os.getpriority(os.PRIO_PROCESS, thread) + _NICE))
    from . import threads

    # Where another thread sets up those of a forked child just now, this check takes as many as torch has.
    with contextlib.suppress(RuntimeError):
        if (setting := threads.find()) is not None:
            setting.get()
            setting.set(1)
