"""Ends the tuning of kernels in time.

Why it exists: with MaxAutotune torch compiles and times up to dozens of kernels for each matrix product, and has no
bound for all of them together: a large model could use up the time of its Job and of all the targets behind it, and end
with nothing. When the time is over, what has been tuned stays, and the rest gets torch's own kernels.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from preheat_compiler.progress import say
from preheat_compiler.report import decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from preheat_compiler.report import Report


class Tuning:
    """Decides what may still be tuned. `is_extern` tells torch's own kernels from those that would be tried."""

    def __init__(self, seconds: float, is_extern: Callable[[Any], bool], clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._is_extern = is_extern
        self._clock = clock
        self._began: float | None = None
        self._asked = 0.0
        self.tuned = 0
        self.untuned = 0

    def choices(self, choices: Sequence[Any]) -> list[Any]:
        """Called by Inductor with what it could try for one operation; returns what it shall try."""
        self._asked = self._clock()
        if len(choices) < 2:
            return list(choices)
        if self._began is None:
            self._began = self._asked
        if self._asked - self._began < self._seconds:
            self.tuned += 1
            return list(choices)
        self.untuned += 1
        return [each for each in choices if self._is_extern(each)][:1] or list(choices[:1])

    @property
    def seconds(self) -> float:
        """From the first operation that was to be tuned to the last that was asked about."""
        return 0.0 if self._began is None else self._asked - self._began


@contextmanager
def tuned_within(seconds: float, report: Report) -> Iterator[None]:
    """Inside, Inductor begins to tune no operation later than `seconds` after the first; notes what became of it.

    A torch without the place to ask at tunes as long as it likes: a Job's own time limit holds all the same.
    """
    asked = _asked_at()
    if asked is None:
        yield
        return
    places, is_extern = asked
    tuning = Tuning(seconds, is_extern, time.monotonic)
    places.append(tuning.choices)
    try:
        yield
    finally:
        places[:] = [each for each in places if each != tuning.choices]
        if tuning.tuned or tuning.untuned:
            report.note(
                "tuning", tuned=str(tuning.tuned), untuned=str(tuning.untuned), seconds=decimal(tuning.seconds, 3)
            )
        if tuning.untuned:
            say(
                f"autotuneTimeoutSeconds ({seconds:.0f}) were over: {tuning.tuned} operations were tuned, "
                f"{tuning.untuned} have torch's own kernels"
            )


def _asked_at() -> tuple[list[Callable[[Sequence[Any]], list[Any]]], Callable[[Any], bool]] | None:
    """Inductor's list of functions that it hands all choices of an operation through, and what is torch's own."""
    try:
        from torch._inductor import select_algorithm
    except ImportError:
        return None
    cache = getattr(select_algorithm, "get_algorithm_selector_cache", lambda: None)()
    places = getattr(cache, "preprocessing_fns", None)
    extern = getattr(select_algorithm, "ExternKernelCaller", None)
    if not isinstance(places, list) or not isinstance(extern, type):
        return None
    return places, lambda choice: isinstance(choice, extern)
