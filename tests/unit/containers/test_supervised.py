"""A child that is watched: its answer, its end, our clock, and a container that is asked to stop at any moment."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from preheat_operator.containers import supervised


def run(function, seconds=20.0):
    return supervised.run(function, deadline=time.monotonic() + seconds)


def test_its_answer():
    assert run(lambda: {"a": 1}).answer == {"a": 1}


def test_its_end_by_a_signal_or_by_a_status():
    assert run(lambda: os.kill(os.getpid(), signal.SIGKILL)).signal == signal.SIGKILL
    assert run(lambda: os._exit(3)).status == 3


def test_our_clock():
    ended = run(lambda: time.sleep(60), seconds=0.2)
    assert (ended.timed_out, ended.stopped, ended.answer) == (True, False, None)


TOLD = """
import os, signal, sys, time
from preheat_operator.containers import supervised
fork = os.fork

def told_at_once():
    # Asked to stop at the worst moment: the child is there, and nobody waits for it yet.
    child = fork()
    if child:
        print(child, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
    return child

os.fork = told_at_once
ended = supervised.run(lambda: time.sleep(60), deadline=time.monotonic() + 60)
assert ended.stopped and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
assert not signal.pthread_sigmask(signal.SIG_BLOCK, ())
"""


def test_asked_to_stop_while_the_child_is_being_made():
    done = subprocess.run([sys.executable, "-c", TOLD], capture_output=True, text=True, check=False, timeout=50)
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{int(done.stdout)}").exists()


@pytest.mark.parametrize("wait", [0.0, 0.05])
def test_the_child_itself_can_be_ended_by_sigterm(wait):
    def work():
        time.sleep(wait)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
        return {}

    assert run(work).signal == signal.SIGTERM
