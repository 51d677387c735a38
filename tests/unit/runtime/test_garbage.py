"""Preparing a first call sets off no search for garbage, and leaves the user's setting as it was."""

import contextlib
import gc
import os
import subprocess
import sys
import threading

import pytest

from preheat_runtime import garbage
from preheat_runtime.garbage import not_collected

#: Collections that begin while the first torch.compile imports our modules, where every second new object could begin one.
IMPORT = """
import gc, torch
from preheat_runtime import garbage, hook
found = []
gc.callbacks.append(lambda phase, info: found.append(phase))
gc.set_threshold(1, 1, 1)
serve = hook._serve()
during = len(found)
kept = [[] for _ in range(100)]
print(during, len(found) > during, gc.isenabled(), serve.__name__)
"""


def test_importing_our_modules_begins_none():
    done = subprocess.run(
        [sys.executable, "-c", IMPORT],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    during, after, enabled, name = done.stdout.split()
    assert int(during) < 30, "a few before and after the import itself"
    assert (after, enabled, name) == ("True", "True", "preheat_runtime.serve")


def begins():
    """Whether new objects begin a collection."""
    found = []

    def seen(phase, _):
        found.append(phase)

    gc.callbacks.append(seen)
    try:
        kept = [[] for _ in range(100_000)]
    finally:
        gc.callbacks.remove(seen)
    return len(kept) == 100_000 and bool(found)


@pytest.fixture(autouse=True)
def _as_before():
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    yield
    (gc.enable if enabled else gc.disable)()
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_setting_is_as_before(enabled):
    (gc.enable if enabled else gc.disable)()
    thresholds = gc.get_threshold()
    assert begins() is enabled
    with not_collected():
        assert not begins()
        with not_collected():
            assert not begins()
        assert not begins()
    assert begins() is enabled
    with contextlib.suppress(KeyError), not_collected():
        raise KeyError
    assert begins() is enabled
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize(
    ("others", "begins_then"),
    [
        (gc.disable, False),
        (lambda: gc.set_threshold(0), False),
        (lambda: gc.set_threshold(1234, 5, 6), True),
    ],
    ids=["off", "off by the number", "another number"],
)
def test_what_another_thread_sets_meanwhile_holds(others, begins_then):
    begun, go = threading.Event(), threading.Event()

    def prepare():
        with not_collected():
            begun.set()
            go.wait(60)

    thread = threading.Thread(target=prepare)
    thread.start()
    try:
        assert begun.wait(60)
        others()
        then = gc.isenabled(), gc.get_threshold()[1:]
    finally:
        go.set()
        thread.join(60)
    assert (gc.isenabled(), gc.get_threshold()[1:]) == then
    assert begins() is begins_then


class TimeIsUp(Exception):
    pass


@pytest.mark.parametrize("when", range(6))
def test_a_signal_that_strikes_between_two_of_its_calls_leaves_nothing_behind(monkeypatch, when):
    """As a handler that raises: after one of the calls of gc, whichever."""
    usual = gc.get_threshold()
    calls = iter(range(100))

    class Struck:
        def __getattr__(self, name):
            real = getattr(gc, name)

            def call(*args):
                result = real(*args)
                if next(calls) == when:
                    raise TimeIsUp
                return result

            return call

    monkeypatch.setattr(garbage, "gc", Struck())
    with contextlib.suppress(TimeIsUp), not_collected():
        pass
    assert gc.get_threshold() == usual
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_that_is_forked_meanwhile_collects_unless_it_is_inside_itself():
    begun, go = threading.Event(), threading.Event()

    def prepare():
        with not_collected():
            begun.set()
            go.wait(60)

    def in_a_child():
        child = os.fork()
        if child == 0:
            os._exit(begins())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with not_collected():
        assert in_a_child() == 0
    thread = threading.Thread(target=prepare)
    thread.start()
    try:
        assert begun.wait(60)
        assert not begins()
        assert in_a_child() == 1, "nobody is there who would set it back"
        assert not begins()
    finally:
        go.set()
        thread.join(60)
    assert begins()
