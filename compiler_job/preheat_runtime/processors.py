"""How many processors this container may use.

Why it exists: in a pod `os.cpu_count()` is the node's, and who starts 64 threads under a quota of two processors is throttled, and as
a compiler runs out of memory.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .cgroup import CGROUP, text

if TYPE_CHECKING:
    from pathlib import Path


def processors(cgroup: Path = CGROUP) -> int:
    """Processors this process may use, at least 1: its affinity, bounded by the cgroup's quota (v2, v1), rounded up.

    That is its first thread's affinity, whichever thread asks: one that has bound itself to a processor speaks for itself alone.
    """
    available = len(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return max(1, min(available, -(-quota[0] // quota[1]))) if quota else max(1, available)


def _quota(cgroup: Path) -> tuple[int, int] | None:
    words = text(cgroup / "cpu.max").split()
    if not words:
        words = [text(cgroup / "cpu" / f"cpu.cfs_{part}_us").strip() for part in ("quota", "period")]
    if len(words) != 2 or not all(word.isdecimal() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]), int(words[1])
