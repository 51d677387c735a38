"""On how many threads runs what one thread of Python asks of torch and of compiled code.

Why it exists: torch.set_num_threads is for the whole process and forgets what torch has prepared. OpenMP and MKL each count for the
thread that asks, so a call that shall leave room for others can be given fewer while all others keep theirs.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .outside import let_through
from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

#: `looked`, once the thread has its count.
_THREAD = threading.local()


@dataclass(frozen=True, kw_only=True)
class Threads:
    """Of the calling thread. Call `get` before anything is set: a new thread's first look gives it torch's own count."""

    get: Callable[[], int]
    """`own`, which may raise RuntimeError."""
    set_openmp: Callable[[int], object]
    bound: bool
    """Whether OpenMP binds threads to processors: it gives the few threads of each caller the same ones, the first."""
    set_mkl: Callable[[int], int] | None
    """MKL's own, and returns what it was; 0 is none, when it does as OpenMP. It has one once the user has called `torch.set_num_threads`."""

    def set(self, count: int) -> int:
        """Set both; returns what MKL had."""
        self.set_openmp(count)
        return self.set_mkl(count) if self.set_mkl is not None else 0


def own() -> int:
    """torch's count for the calling thread.

    A process that is forked after `torch.set_num_threads` sets up its own pool at the first look of its first new thread, without a lock
    (ATen/ParallelOpenMP.cpp and caffe2's pthreadpool, torch 2.13 to 2.15), and to another new thread that looks meanwhile there is none.
    `torch.get_num_threads` passes no error on: it would end the process. So a thread's first look is one that raises RuntimeError.
    """
    if not hasattr(_THREAD, "looked"):
        torch.__config__.parallel_info()
        _THREAD.looked = True
    return int(torch.get_num_threads())


@functools.lru_cache(maxsize=1)
def find() -> Threads | None:
    """Those of the libraries that this process uses; None without OpenMP, and where torch does not obey what is set.

    Raises RuntimeError where `own` does; then nothing is remembered.
    """
    try:
        # Not CDLL, which gives the interpreter's lock away and has to wait for it at each call.
        library = ctypes.PyDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        # Of the whole process: what was loaded before torch, such as Intel's, is in use instead of torch's own.
        everything = ctypes.PyDLL(None)
        set_openmp, binding = everything.omp_set_num_threads, everything.omp_get_proc_bind
    except (OSError, AttributeError) as error:
        let_through(error)
        return None
    set_openmp.restype = None
    if not _obeys(set_openmp):
        return None
    return Threads(
        get=own,
        set_openmp=set_openmp,
        bound=binding() != 0,
        set_mkl=getattr(library, "MKL_Set_Num_Threads_Local", None),
    )


def _obeys(set_openmp: Callable[[int], object]) -> bool:
    """Whether it is the one that torch asks; the calling thread keeps its number."""
    before = own()
    try:
        set_openmp(before + 1)
        return own() == before + 1
    finally:
        set_openmp(before)
