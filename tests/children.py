"""How a test's services end when the test process is killed, and has no chance to stop them: with it."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `subprocess.Popen(preexec_fn=…)`. Parent is the thread that makes the process: it must live as long."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
