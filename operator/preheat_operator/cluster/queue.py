"""A work queue of keys: each key is worked on by one worker at a time, and wake-ups during the work are not lost.

Events only say *that* something changed; what is, is read when the work is done. So ten events of one object are one
piece of work, and an event that was missed costs no more than the time to the next look.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    Handler = Callable[["K"], Awaitable[float | None]]

K = TypeVar("K", bound="Hashable")

_LOG = logging.getLogger(__name__)
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 120.0
# A handler makes a few dozen requests of at most 30 s; longer means that something hangs.
_HANDLER_TIMEOUT_SECONDS = 180.0


class WorkQueue(Generic[K]):
    """Keys that are due now or later. Not thread-safe: one event loop uses it."""

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._active: set[K] = set()
        self._failures: dict[K, int] = {}
        self._changed = asyncio.Event()

    def add(self, key: K, *, delay: float = 0.0) -> None:
        """Make a key due in `delay` seconds, unless it is due earlier anyway. While it is worked on: once more after."""
        at = asyncio.get_running_loop().time() + max(0.0, delay)
        if key in self._due and self._due[key] <= at:
            return
        self._due[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        self._changed.set()

    def __len__(self) -> int:
        """How many keys are due, now or later."""
        return len(self._due)

    async def run(self, handler: Handler[K], *, workers: int) -> None:
        """Work on due keys for ever, at most `workers` at once.

        The handler answers after how many seconds to look again (None: not before something happens). When it raises,
        the key is tried again, later and later.
        """
        slots = asyncio.Semaphore(workers)
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                key = await self._next()
                self._active.add(key)
                group.create_task(self._work(key, handler, slots))

    async def _next(self) -> K:
        while True:
            self._changed.clear()
            now = asyncio.get_running_loop().time()
            waiting: list[tuple[float, int, K]] = []
            found: K | None = None
            while self._heap and self._heap[0][0] <= now:
                entry = heapq.heappop(self._heap)
                at, _, key = entry
                if self._due.get(key) != at:
                    continue
                if key in self._active:
                    waiting.append(entry)
                    continue
                del self._due[key]
                found = key
                break
            for entry in waiting:
                heapq.heappush(self._heap, entry)
            if found is not None:
                return found
            ahead = [at for at, _, key in self._heap if key not in self._active]
            try:
                async with asyncio.timeout(max(0.0, min(ahead) - now) if ahead else None):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _work(self, key: K, handler: Handler[K], slots: asyncio.Semaphore) -> None:
        try:
            async with asyncio.timeout(_HANDLER_TIMEOUT_SECONDS):
                again = await handler(key)
        except Exception:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = min(_FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 16), _LONGEST_BACKOFF_SECONDS)
            delay *= random.uniform(0.75, 1.25)  # noqa: S311 - spreads load, hides nothing
            _LOG.exception("%s failed %d times in a row; trying again in %.1f s", key, failures, delay)
            self.add(key, delay=delay)
        else:
            self._failures.pop(key, None)
            if again is not None:
                self.add(key, delay=again)
        finally:
            self._active.discard(key)
            slots.release()
            self._changed.set()
