"""Threads that do the same thing at the same moment."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
THREADS = 6


def at_once(call: Callable[[], T]) -> list[T | Exception]:
    """What each of THREADS threads got that call at the same moment."""
    barrier = threading.Barrier(THREADS)
    got: list[T | Exception] = []

    def ask() -> None:
        barrier.wait(60)
        try:
            got.append(call())
        except Exception as error:
            got.append(error)

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return got
