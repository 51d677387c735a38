"""Runs the risky part of a container's work in a child that may be killed without taking the answer with it.

When memory runs out the kernel ends a process, not a try block. The child asks to be chosen first; the parent, which
imports next to nothing, sees it go and can still say what happened and end with success. It also keeps the deadline
for a child that hangs in a system call.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the child ended. `answer` is what the function returned; else exactly one of the others says why not."""

    answer: dict[str, Any] | None = None
    timed_out: bool = False
    stopped: bool = False
    signal: int = 0
    status: int = 0


class _Stopped(BaseException):
    """The container was asked to stop."""


def run(function: Callable[[], dict[str, Any]], *, deadline: float) -> Ended:
    """Run `function` in a forked child until `deadline` (monotonic seconds); it returns a JSON object.

    Call it while the process has one thread. SIGTERM ends the child and the wait.
    """
    receive, send = os.pipe()
    # Held back until somebody listens: as a container's first process we would not even die of it, and the child live on.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        os.close(receive)
        _child(function, send, mask)
    os.close(send)
    data = b""
    timed_out = stopped = False
    try:
        with _sigterm_raises():
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            while (left := deadline - time.monotonic()) > 0:
                if not select.select([receive], [], [], left)[0]:
                    continue
                if not (chunk := os.read(receive, 65536)):
                    break
                data += chunk
            else:
                timed_out = True
    except _Stopped:
        stopped = True
    os.close(receive)
    if timed_out or stopped:
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if timed_out or stopped:
        return Ended(timed_out=timed_out, stopped=stopped)
    if status == 0 and data:
        return Ended(answer=json.loads(data))
    return Ended(signal=max(-status, 0), status=max(status, 0))


def _child(function: Callable[[], dict[str, Any]], send: int, mask: Iterable[int]) -> None:
    """Never returns: a forked child must not run the parent's way out."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # Read-only in some sandboxes: then the kernel chooses by size, which also means the child.
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(b"1000")
        data = json.dumps(function()).encode()
        while data:
            data = data[os.write(send, data) :]
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise _Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
