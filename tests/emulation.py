"""Plays older CPUs, ones that this machine is not.

Why it exists: code that uses an instruction too many is right on the machine that built it and dies elsewhere, so no
test on the builder alone can see it. qemu's user mode executes every instruction of a process and knows only those of
the CPU that it plays. It passes the host's /proc/cpuinfo on, which is why the runtime must not trust that alone.
"""

from __future__ import annotations

import shutil

from lab import debian

#: Has all of X86_64_V3 and nothing of AVX-512, VAES or whatever the builder has beyond that.
V3_ONLY = "Haswell-noTSX"
#: Has AVX and neither AVX2 nor FMA, so code of X86_64_V3 cannot run there.
BEFORE_V3 = "SandyBridge"


def install() -> None:
    """Make sure that there is qemu. Call it before several threads ask for commands."""
    debian.ensure({"qemu-user": "plays an older CPU, on which packages must run"})


def command(cpu: str | None) -> list[str]:
    """What to put before a command so that it runs on `cpu`; None is this machine's own."""
    if cpu is None:
        return []
    emulator = shutil.which("qemu-x86_64")
    assert emulator is not None, "call emulation.install() first"
    return [emulator, "-cpu", cpu]
