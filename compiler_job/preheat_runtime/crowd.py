"""Shares the processors among calls that are answered at the same time.

Why it exists: each call runs on as many threads as torch has, so a server that answers four at once on two processors has eight
there. Compiled code waits for all threads of its call at the end of each of its loops, and more often than eager: kept because it is
1.2 times as fast when asked one by one, bert gave four clients 0.97 of eager's answers. With a thread for each call it gives them
1.4 to 1.9 times as many, by the machine (docs/measured/load.md).
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .outside import let_through

if TYPE_CHECKING:
    from collections.abc import Callable

    from .threads import Threads

T = TypeVar("T")
#: What one call counts for in the running mean of how many there are at once: the last few dozen decide.
WEIGHT = 1 / 16
#: That mean comes near the number of clients that keep asking, from below: from here on it is that number.
NEAR = 0.25
#: Seconds of a processor that a call's own thread takes at least, to be counted: shorter ones are hardly ever parallel, and in a server of
#: many threads they are mostly waiting for the interpreter's lock.
SHORT = 0.0002


def share(own: int, processors: int, together: float) -> int:
    """Threads for one of about `together` calls, of the `own` that it would have: never more, and at least 1.

    Where all fit beside each other, as in a server that was given few threads for each call, that is `own`.
    """
    return max(1, min(own, processors // max(1, int(together + NEAR))))


class Crowd:
    """The calls of compiled code that run in this process. Thread-safe: it only counts, and one more or less is no matter."""

    def __init__(self, find: Callable[[], Threads | None], count: Callable[[], int]) -> None:
        """Both are asked when calls first are many: what sets their threads, None where nothing can, and the processors."""
        self._find = find
        self._count = functools.lru_cache(maxsize=1)(count)
        self._running: set[int] = set()
        self._usual = 1.0

    def run(self, lanes: int, call: Callable[..., T], *arguments: Any) -> T:
        """`call(*arguments)`, on its share of the processors where calls keep coming while others run.

        `call` is compiled code: no Python runs in it, which would see the share and could keep it. Of the same `call`, `lanes` run at once
        and more wait. One that comes alone has all processors, and so has one in the beginning of a crowd: what runs beside it may be at
        its end. Sums of another number of threads may be rounded otherwise, so under `torch.use_deterministic_algorithms` none is shared.
        """
        thread = threading.get_ident()
        # Between any two calls a signal's handler may raise: whatever is set below is set back, whichever call was the last.
        try:
            self._running.add(thread)
            together = len(self._running)
            self._usual += (together - self._usual) * WEIGHT
            crowded = together > 1 and self._usual >= 2 - NEAR and not torch.are_deterministic_algorithms_enabled()
            shared = self._shared(min(together, self._usual, lanes)) if crowded else None
            return call(*arguments) if shared is None else _on(*shared, call, arguments)
        finally:
            self._running.discard(thread)

    def _shared(self, together: float) -> tuple[int, int, Threads] | None:
        """The share of one of so many calls, what it would have without, and what sets it; None where it is to have all."""
        try:
            setting = self._find()
            if setting is None or setting.bound:
                return None
            own = setting.get()
            mine = share(own, self._count(), together)
        except Exception as error:  # out of file descriptors, say, for what is imported only now
            let_through(error)
            return None
        return (mine, own, setting) if mine < own else None

    def forked(self) -> None:
        """What other threads ran is not in this process; and it may have been given other processors."""
        self._running.clear()
        self._count.cache_clear()


def _on(mine: int, own: int, setting: Threads, call: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    mkl = 0
    try:
        mkl = setting.set(mine)
        return call(*arguments)
    finally:
        try:
            if setting.set_mkl is not None:
                setting.set_mkl(mkl)
        finally:
            setting.set_openmp(own)


def _find() -> Threads | None:
    # Not with the first answer, which imports nothing that it does not need.
    from . import threads

    return threads.find()


def _count() -> int:
    from .processors import processors

    return processors()


CROWD = Crowd(_find, _count)
os.register_at_fork(after_in_child=CROWD.forked)
