"""Lets so many calls into one container of compiled code at the same time as it has runners, and no more.

Why it exists: a container in which more calls are than it has runners makes them wait by itself, and up to torch 2.14 it forgets to wake
them when the call that they wait for ends with an error (an index out of range): they, and all behind them, hang for ever. And in a
forked child the runners that other threads held are held for good. So who has to wait does it here.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
#: Seconds until somebody who waits looks once more whether there is room.
AGAIN = 1.0


class Lanes:
    """At most `count` calls at once; first come, first served. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._count = count
        # Who is inside, in the order of coming: the first `count` of them run, and the others wait for a lock of their own.
        self._inside: dict[int, threading.Lock | None] = {}
        #: Whether this is a forked child, and calls of other threads, which are not in it, ran in the process that forked.
        self.lost = False
        _all.add(self)

    def run(self, call: Callable[..., T], *arguments: Any) -> T:
        """`call(*arguments)`, once there is room for it."""
        inside, thread = self._inside, threading.get_ident()
        if thread in inside:  # a signal's handler calls between two lines of its own thread's call, which has room
            return call(*arguments)
        # Between any two lines it may raise, too: whoever came in goes out again.
        try:
            inside[thread] = None
            if len(inside) > self._count:
                self._wait(thread)
            return call(*arguments)
        finally:
            inside.pop(thread, None)
            if len(inside) >= self._count:
                self._wake()

    def _wait(self, thread: int) -> None:
        turn = threading.Lock()
        turn.acquire()
        self._inside[thread] = turn
        # Looked at after the lock is there to be released: whoever leaves later releases it, unless a handler raises before.
        while thread in list(self._inside)[self._count :]:
            turn.acquire(timeout=AGAIN)

    def _wake(self) -> None:
        for turn in list(self._inside.values())[: self._count]:
            if turn is not None and turn.locked():
                with contextlib.suppress(RuntimeError):  # another thread that left was faster
                    turn.release()

    def forked(self) -> None:
        """No other thread is in this process, and what those ran does not end here."""
        own = threading.get_ident()
        others = [thread for thread in self._inside if thread != own]
        self.lost = self.lost or bool(others)
        for thread in others:
            del self._inside[thread]


def _enter_child() -> None:
    for lanes in list(_all):
        lanes.forked()


_all: weakref.WeakSet[Lanes] = weakref.WeakSet()
os.register_at_fork(after_in_child=_enter_child)
