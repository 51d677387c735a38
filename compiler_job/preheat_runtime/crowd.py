"""Shares the processors among calls that are answered at the same time.

Why it exists: each call runs on as many threads as torch has, so a server that answers four at once on two processors has eight
there. Compiled code waits for all threads of its call at the end of each of its loops, and more often than eager: kept because it is
1.2 times as fast when asked one by one, bert gave four clients 0.96 of eager's answers. With a thread for each call it gives them
1.4 times as many (docs/measured/load.md).
"""

from __future__ import annotations

import functools
import os
import threading
from typing import TYPE_CHECKING, Any, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .threads import Threads

T = TypeVar("T")
#: What one call counts for in the running mean of how many there are at once: the last few dozen decide.
WEIGHT = 1 / 16
#: That mean comes near the number of clients that keep asking, from below: from here on it is that number.
NEAR = 0.25


def share(own: int, processors: int, together: float) -> int:
    """Threads for one of about `together` calls, of the `own` that it would have: never more, and at least 1.

    Where all fit beside each other, as in a server that was given few threads for each call, that is `own`.
    """
    return max(1, min(own, processors // max(1, int(together + NEAR))))


class Crowd:
    """The calls that are being answered in this process. Thread-safe: it only counts, and one more or less is no matter."""

    def __init__(self, find: Callable[[], Threads | None], count: Callable[[], int]) -> None:
        """Both are asked when calls first are many: what sets their threads, None where nothing can, and the processors."""
        self._find = find
        self._count = functools.lru_cache(maxsize=1)(count)
        self._running: set[int] = set()
        self._usual = 1.0

    def answer(self, call: Callable[..., T], *arguments: Any) -> T:
        """`call(*arguments)`, on its share of the processors where calls keep coming while others run.

        A call that comes alone has all of them, and so has one in the beginning of a crowd: what runs beside it may be at its end.
        Answers of different numbers of threads may differ by rounding, so under `torch.use_deterministic_algorithms` none is shared.
        """
        thread = threading.get_ident()
        if thread in self._running:
            return call(*arguments)  # of a module inside one that is being answered
        self._running.add(thread)
        try:
            together = len(self._running)
            self._usual += (together - self._usual) * WEIGHT
            if together < 2 or self._usual < 2 - NEAR or torch.are_deterministic_algorithms_enabled():
                return call(*arguments)
            setting = self._find()
            if setting is None:
                return call(*arguments)
            own = setting.get()
            mine = share(own, self._count(), min(together, self._usual))
            return call(*arguments) if mine == own else _on(mine, own, setting, call, arguments)
        finally:
            self._running.discard(thread)

    def forked(self) -> None:
        """What other threads were answering is not in this process."""
        self._running.clear()


def _on(mine: int, own: int, setting: Threads, call: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    setting.set_openmp(mine)
    mkl = setting.set_mkl(mine) if setting.set_mkl is not None else 0
    try:
        return call(*arguments)
    finally:
        if setting.get() == mine:  # else the module's own code has set another
            setting.set_openmp(own)
            if setting.set_mkl is not None:
                setting.set_mkl(mkl)


def _find() -> Threads | None:
    # Not with the first answer, which imports nothing that it does not need.
    from . import threads

    return threads.find()


def _count() -> int:
    from .processors import processors

    return processors()


CROWD = Crowd(_find, _count)
os.register_at_fork(after_in_child=CROWD.forked)
