"""Locks that a forked child finds open.

Why it exists: servers load a model, answer once to warm up, and fork their workers. A lock that another thread held at
that moment would stay locked in the child for ever, and the child's first call would hang. All locks of this package are
of this kind, and are opened before anything else of ours runs in the child: hooks run in the order in which they were registered.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class ForkLock:
    """As `threading.Lock` in a `with` statement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it: whoever held it is not in this process."""
        self._lock = threading.Lock()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_all)
