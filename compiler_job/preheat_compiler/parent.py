"""Ends a process when the one that started it is gone, however that ended.

Why it exists: whoever is told to stop ends what it started, but who is killed cannot, and a compile that nobody waits for
would go on for an hour, in a folder that the next one uses. Linux tells a process of its parent's end; elsewhere nothing
is done. Standard library only: it runs before anything else of ours.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_told: list[int] = []


def end_with(parent: int, number: int) -> None:
    """From now on this process gets signal `number` when its parent ends; at once, where `parent` is gone already.

    Its parent is, to Linux, the thread that started it: have it started by a thread that lives as long as its process.
    """
    _told[:] = [number]
    again()
    try:
        os.kill(parent, 0)
    except ProcessLookupError:
        os.kill(os.getpid(), number)
    except OSError:  # another user's by now
        pass


def again() -> None:
    """Ask once more, where that was asked before: Linux forgets it of a process that becomes another user."""
    if not _told or sys.platform != "linux":
        return
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, *map(ctypes.c_ulong, (_told[0], 0, 0, 0)))


def take(arguments: list[str]) -> list[str]:
    """`arguments` without a leading `--parent PID`, whose end is then this process's, too."""
    if arguments[:1] != ["--parent"]:
        return arguments
    end_with(int(arguments[1]), signal.SIGKILL)
    return arguments[2:]
