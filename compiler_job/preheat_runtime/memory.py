"""How much memory this container may still take.

Why it exists: what runs beside the user's own work, in the compile Job and in the pod, must not be what the container is
killed for.
"""

from __future__ import annotations

from pathlib import Path

from .cgroup import CGROUP, text

#: Limit, use and statistics of a control group, and which of the statistics is given back when memory is short (v2, v1).
_FILES = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)


def memory_available(cgroup: Path = CGROUP, meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """Bytes this container may still take, by its limit and by what the node has left; None where neither is known."""
    known = []
    for limit, used, statistics, cached in _FILES:
        words = text(cgroup / limit).strip(), text(cgroup / used).strip()
        if all(word.isdecimal() for word in words):
            # Files that were read count as used until somebody needs the room.
            known.append(float(words[0]) - float(words[1]) + _number(cgroup / statistics, cached))
    if available := _number(meminfo, "MemAvailable:"):
        known.append(available * 1024)
    return max(min(known), 0.0) if known else None


def _number(path: Path, name: str) -> float:
    """The number beside `name`; 0 where there is none."""
    for line in text(path).splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return float(words[1])
    return 0.0
