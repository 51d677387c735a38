"""What is made once is made by one thread, also where Python's own caches have no lock; neither a fork nor a time limit holds
anybody up."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from preheat_runtime import locks
from preheat_runtime.locks import ForkLock, once, once_property
from together import THREADS, at_once

if TYPE_CHECKING:
    from collections.abc import Callable


class Slow:
    """Something that takes a while, so that all threads come while the first is at it."""

    def __init__(self) -> None:
        self.runs = 0
        self.wait = threading.Event()

    def __call__(self, _: object = None) -> object:
        self.runs += 1
        self.wait.wait(0.2)
        return object()


def of_a_function(make: Slow) -> Callable[[], object]:
    return once(make)


def of_an_object(make: Slow) -> Callable[[], object]:
    class Holder:
        made = once_property(make)

    holder = Holder()
    return lambda: holder.made


KINDS = pytest.mark.parametrize("kind", [of_a_function, of_an_object])


@KINDS
def test_threads_that_come_at_once_get_one_object_that_one_of_them_made(
    kind: Callable[[Slow], Callable[[], object]],
) -> None:
    slow = Slow()
    got = at_once(kind(slow))
    assert len(got) == THREADS
    assert len(set(map(id, got))) == 1
    assert slow.runs == 1


@KINDS
def test_what_fails_is_tried_again(kind: Callable[[Slow], Callable[[], object]]) -> None:
    class Failing(Slow):
        def __call__(self, _: object = None) -> object:
            self.runs += 1
            if self.runs == 1:
                raise OSError("not now")
            return None

    failing = Failing()
    call = kind(failing)
    with pytest.raises(OSError, match="not now"):
        call()
    assert call() is None
    assert call() is None
    assert failing.runs == 2, "None is something too"


def test_each_object_has_its_own_and_the_function_can_be_run_anew() -> None:
    class Holder:
        @once_property
        def made(self) -> object:
            """Made."""
            return object()

    first, second = Holder(), Holder()
    assert first.made is first.made
    assert first.made is not second.made
    assert first.__dict__["made"] is first.made, "later looks go past us"
    assert Holder.made.__doc__ == "Made."
    function = once(object)
    before = function()
    function.cache_clear()
    assert function() is not before


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@KINDS
def test_a_child_that_was_forked_meanwhile_makes_its_own(kind: Callable[[Slow], Callable[[], object]]) -> None:
    parent, begun, go = os.getpid(), threading.Event(), threading.Event()

    class Held(Slow):
        def __call__(self, _: object = None) -> object:
            self.runs += 1
            if os.getpid() == parent:
                begun.set()
                go.wait(60)
            return "made"

    held = Held()
    call = kind(held)
    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(60)
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)  # pytest's own would go on with the tests in here
        signal.alarm(20)  # it would wait for a thread that is not there
        os._exit(0 if call() == "made" and held.runs == 2 else 1)
    try:
        assert os.waitpid(child, 0)[1] == 0
    finally:
        go.set()
        thread.join(60)
    assert call() == "made"
    assert held.runs == 1


class TimeIsUp(Exception):
    """What some task queues raise in a thread of theirs from another one."""


def under_a_lock(make: Callable[[], object]) -> Callable[[], object]:
    lock = ForkLock()

    def call() -> object:
        with lock:
            return make()

    return call


@pytest.mark.skipif(sys.version_info[:2] == (3, 14), reason="CPython's own `with` has the gap there: gh-148874")
@pytest.mark.parametrize("kind", [of_a_function, of_an_object, under_a_lock])
def test_a_thread_whose_time_is_up_while_it_waits_leaves_no_lock_behind(
    kind: Callable[[Callable[..., object]], Callable[[], object]],
) -> None:
    begun, go = threading.Event(), threading.Event()
    got: dict[str, object] = {}

    def make(_: object = None) -> object:
        if not begun.is_set():
            begun.set()
            go.wait(60)
            raise OSError("not now")  # so that the next has to take the lock as well
        return "made"

    call = kind(make)  # type: ignore[arg-type]

    def ask(name: str) -> None:
        try:
            got[name] = call()
        except Exception as error:
            got[name] = type(error)

    def started(name: str) -> threading.Thread:
        thread = threading.Thread(target=ask, args=(name,), daemon=True)
        thread.start()
        return thread

    first = started("first")
    assert begun.wait(60)
    waiting = started("waiting")
    time.sleep(0.3)  # by now it waits for the lock
    raised = ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(waiting.ident or 0), ctypes.py_object(TimeIsUp))
    assert raised == 1
    go.set()
    first.join(60)
    waiting.join(60)
    started("later").join(20)
    assert got == {"first": OSError, "waiting": TimeIsUp, "later": "made"}


def test_nothing_is_remembered_by_what_has_no_lock_or_one_that_holds_a_child() -> None:
    """`functools.cached_property` is the one or the other, by the version of Python."""
    folder = Path(locks.__file__).parent
    decorated = re.compile(r"^\s*@(functools\.)?cached_property\b", re.MULTILINE)
    assert [path.name for path in sorted(folder.glob("*.py")) if decorated.search(path.read_text())] == []
