"""How many processes of this container the kernel killed for memory.

Why it exists: a SIGKILL alone does not say that memory was the cause.
"""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def memory_kills(cgroup: Path = _CGROUP) -> int | None:
    """How many processes of this container the kernel killed for memory so far; None where that cannot be read."""
    for path in (cgroup / "memory.events", cgroup / "memory" / "memory.oom_control"):
        for line in _text(path).splitlines():
            word, _, count = line.partition(" ")
            if word == "oom_kill" and count.isdecimal():
                return int(count)
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
