"""Starts the driver's further processes, each in a group of its own, and ends them as a whole.

Why it exists: a compile starts compilers and worker pools. When its time is over, or the pod is told to stop, nothing
of it may live on beside the next target; and how a process ended (its own code, a signal, our clock) is what tells
"out of memory" from "crashed" from "too slow".
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_compiler.kills import memory_kills

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Folders below a target's work folder that only compiling needs, by the variables that name them to its process.
SCRATCH = {"TMPDIR": "tmp", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
#: What a target's process ends with when the disk is too full for its verdict.
EXIT_DISK_FULL = 75


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: `code` as subprocess has it (negative: a signal), `seconds` it took.

    `for_memory` is whether the kernel killed a process of this container for memory meanwhile, None if unknown.
    """

    code: int
    seconds: float
    timed_out: bool
    for_memory: bool | None

    @property
    def killed(self) -> bool:
        """By SIGKILL, whoever sent it."""
        return self.code == -signal.SIGKILL

    @property
    def out_of_memory(self) -> bool:
        """Killed for memory; also where the kernel does not say for what."""
        return self.killed and self.for_memory is not False

    @property
    def how(self) -> str:
        """In words, for messages."""
        if self.timed_out:
            return f"was ended after {self.seconds:.0f} s"
        if self.code >= 0:
            return f"exited with code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = f"signal {-self.code}"
        return f"was killed by {name}"


def run(
    launcher: Path, role: str, arguments: list[str], *, seconds: float, environment: Mapping[str, str],
    output: Path | None = None, own_group: bool = True,
) -> Ended:  # fmt: skip
    """Run the launcher in `role` for at most `seconds`; none of its group is left on return.

    Its output goes to this process's own, or to the file `output`. Without `own_group` it stays in this process's
    group, so that whoever ends us ends it too; then only the process itself is ended here. Where we are killed, it ends
    as well, if the thread that calls this is the main one.
    """
    kills = memory_kills()
    begin = time.monotonic()
    with output.open("wb") if output is not None else nullcontext() as sink:
        process = subprocess.Popen(
            [sys.executable, str(launcher), role, "--parent", str(os.getpid()), *arguments],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT if sink is not None else None,
            start_new_session=own_group,
        )
        timed_out = False
        try:
            process.wait(timeout=max(seconds, 0.001))
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            _end(process, own_group=own_group)
    now = memory_kills()
    return Ended(
        code=process.returncode,
        seconds=time.monotonic() - begin,
        timed_out=timed_out,
        for_memory=None if kills is None or now is None else now > kills,
    )


def _end(process: subprocess.Popen[bytes], *, own_group: bool) -> None:
    if own_group:
        # Also when the leader has ended: its compilers and worker pools may live on.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()
