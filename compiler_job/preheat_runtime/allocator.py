"""Lets the process keep the memory that one call frees for the next.

Why it exists: glibc gives the top of its heap back to the kernel once it is larger than a threshold, and compiled code frees its
intermediate results in an order that leaves them there. Each call then has the kernel clear the same pages again: for resnet18 5,000
page faults a call, 9 ms of 23, which made it slower than eager. What is kept is what the call before needed, so the most that
a process ever holds is the same.
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
#: Larger ones than this glibc always takes from the kernel: the most it allows, and the most it comes to by itself.
LARGEST_IN_HEAP = 32 << 20
KEPT = 1 << 30
_OF_THE_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


def users_own(environ: Mapping[str, str]) -> bool:
    """Whether the pod's owner has told glibc what to do."""
    return any(name in environ for name in _OF_THE_USER) or "glibc.malloc." in environ.get("GLIBC_TUNABLES", "")


@functools.lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """From now on, for the whole process; False where that is not ours to say. With another allocator it changes nothing."""
    if users_own(os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    # Either of them ends glibc's own adjusting, so it is both or none.
    return mallopt is not None and bool(mallopt(M_MMAP_THRESHOLD, LARGEST_IN_HEAP) and mallopt(M_TRIM_THRESHOLD, KEPT))
