"""On how many threads runs what one thread of Python asks of torch and of compiled code.

Why it exists: torch.set_num_threads is for the whole process and forgets what torch has prepared. OpenMP and MKL each count for the
thread that asks, so a call that shall leave room for others can be given fewer while all others keep theirs.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Of the calling thread. Call `get` before anything is set: a new thread's first look gives it torch's own count."""

    get: Callable[[], int]
    set_openmp: Callable[[int], object]
    set_mkl: Callable[[int], int] | None
    """MKL's own, and returns what it was; 0 is none, when it does as OpenMP. It has one once the user has called `torch.set_num_threads`."""


@functools.lru_cache(maxsize=1)
def find() -> Threads | None:
    """Those of the libraries that torch is linked with; None where it uses no OpenMP."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        set_openmp = library.omp_set_num_threads
    except (OSError, AttributeError):
        return None
    set_openmp.restype = None
    return Threads(
        get=torch.get_num_threads,
        set_openmp=set_openmp,
        set_mkl=getattr(library, "MKL_Set_Num_Threads_Local", None),
    )
