"""The work queue: one worker a key, no wake-up lost, failures tried again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from preheat_operator.cluster.queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def running(
    queue: WorkQueue[str], handler: Callable[[str], Awaitable[float | None]], workers: int = 4
) -> AsyncIterator[None]:
    task = asyncio.create_task(queue.run(handler, workers=workers))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for is not ours to set an event on
            await asyncio.sleep(0.005)


async def test_many_wake_ups_are_one_piece_of_work() -> None:
    queue: WorkQueue[str] = WorkQueue()
    done: list[str] = []

    async def handler(key: str) -> None:
        done.append(key)

    for _ in range(100):
        queue.add("a")
    queue.add("b", delay=0.05)
    queue.add("b", delay=1000)
    assert len(queue) == 2
    async with running(queue, handler):
        await until(lambda: len(done) == 2)
    assert done == ["a", "b"]
    assert len(queue) == 0


async def test_a_wake_up_during_the_work_is_worked_on_afterwards_and_never_beside_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    at_work, most, done = 0, 0, 0
    go = asyncio.Event()

    async def handler(key: str) -> None:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        await go.wait()
        at_work -= 1
        done += 1

    queue.add("a")
    async with running(queue, handler):
        await until(lambda: at_work == 1)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(0.05)
        assert at_work == 1
        go.set()
        await until(lambda: done == 2)
        await asyncio.sleep(0.05)
    assert (done, most) == (2, 1)


async def test_keys_are_worked_on_side_by_side_up_to_the_limit() -> None:
    queue: WorkQueue[str] = WorkQueue()
    at_work: set[str] = set()
    most = 0
    done: list[str] = []

    async def handler(key: str) -> None:
        nonlocal most
        at_work.add(key)
        most = max(most, len(at_work))
        await asyncio.sleep(0.01)
        at_work.remove(key)
        done.append(key)

    for number in range(9):
        queue.add(str(number))
    async with running(queue, handler, workers=3):
        await until(lambda: len(done) == 9)
    assert most == 3


async def test_a_failure_is_tried_again_and_others_do_not_wait_for_it() -> None:
    queue: WorkQueue[str] = WorkQueue()
    calls: list[str] = []

    async def handler(key: str) -> None:
        calls.append(key)
        if key == "bad" and calls.count("bad") == 1:
            raise RuntimeError("once")

    queue.add("bad")
    queue.add("good")
    async with running(queue, handler, workers=1):
        await until(lambda: calls.count("bad") == 2)
    assert calls == ["bad", "good", "bad"]


async def test_the_handler_decides_when_to_look_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    calls = 0

    async def handler(key: str) -> float | None:
        nonlocal calls
        calls += 1
        return 0.01 if calls < 3 else None

    queue.add("a")
    async with running(queue, handler):
        await until(lambda: calls == 3)
        await asyncio.sleep(0.05)
    assert calls == 3
