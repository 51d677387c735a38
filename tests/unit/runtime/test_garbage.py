"""Preparing a first call sets off no search for garbage, and leaves the user's setting as it was."""

import contextlib
import gc
import os
import subprocess
import sys
import threading

import pytest

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


@pytest.mark.parametrize("enabled", [True, False])
def test_the_setting_is_as_before(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with not_collected():
            assert not gc.isenabled()
        assert gc.isenabled() is enabled
        with contextlib.suppress(KeyError), not_collected():
            raise KeyError
        assert gc.isenabled() is enabled
    finally:
        gc.enable()


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
            os._exit(gc.isenabled())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with not_collected():
        assert in_a_child() == 0
    thread = threading.Thread(target=prepare)
    thread.start()
    try:
        assert begun.wait(60)
        assert not gc.isenabled()
        assert in_a_child() == 1, "nobody is there who would switch it on again"
        assert not gc.isenabled()
    finally:
        go.set()
        thread.join(60)
    assert gc.isenabled()
