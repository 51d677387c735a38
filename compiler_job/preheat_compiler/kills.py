"""How many processes of this container the kernel killed for memory.

Why it exists: a SIGKILL alone does not say that memory was the cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_runtime.cgroup import CGROUP, text

if TYPE_CHECKING:
    from pathlib import Path


def memory_kills(cgroup: Path = CGROUP) -> int | None:
    """How many processes of this container the kernel killed for memory so far; None where that cannot be read."""
    for path in (cgroup / "memory.events", cgroup / "memory" / "memory.oom_control"):
        for line in text(path).splitlines():
            word, _, count = line.partition(" ")
            if word == "oom_kill" and count.isdecimal():
                return int(count)
    return None
