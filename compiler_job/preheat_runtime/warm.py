"""Points torch's own compiler at the cache directory of an artifact.

Why it exists: what does not export as a package still compiles several times faster from Inductor's caches, if the
settings that are part of its keys are as they were in the compile Job. Inductor reads most of them from the environment
when it is imported, which libraries like torchvision do early, so they are set in both places. A cache directory must be
writable, so each pod works on a copy.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import vector
from .allocator import keep_freed_memory
from .environment import CACHE_DIRECTORY, cache_environment, cache_key_tag, isa_environment
from .fingerprint import CPU_CLASSES, NATIVE, needed_isa
from .outside import let_through
from .room import CACHE_VARIABLE, filled, imported, is_torchs_own
from .variables import ENV_WORK_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .revision import Candidate


def prepare(candidates: Sequence[Candidate], environ: Mapping[str, str]) -> str | None:
    """Copy the caches of `candidates` and set the process up to use them; why that is not possible, or None.

    Changes os.environ, torch.compiler.config and what becomes of freed memory for the whole process.
    """
    work = environ.get(ENV_WORK_DIR)
    if not work:
        return f"{ENV_WORK_DIR} is not set, so there is no place for a writable copy of the caches"
    wanted = cache_environment()
    # Natively written code is taken for this CPU's own: Inductor would compile for it what was written for another.
    native = needed_isa(NATIVE)
    candidates = [each for each in candidates if each.fingerprint.cpu_isa in (*CPU_CLASSES, native)]
    if not candidates:
        return "the caches were filled for Native on another CPU"
    isa = candidates[0].fingerprint.cpu_isa
    folders = filled(Path(work))
    used = [CACHE_VARIABLE]
    if any(candidate.fingerprint.device == "cuda" for candidate in candidates):
        used = [*folders]
    held = [name for name in used if name in environ and not is_torchs_own(environ[name])]
    held += [name for name, value in wanted.items() if environ.get(name, value) != value]
    if held:
        return f"the pod sets {', '.join(held)} itself"
    folder = folders[CACHE_VARIABLE]
    try:
        _copy([entry for entry in candidates if entry.fingerprint.cpu_isa == isa], folder)
    except OSError as error:
        let_through(error)
        return f"the caches cannot be copied to {folder}: {error}"
    os.environ.update(wanted)
    os.environ.update({name: str(folders[name]) for name in used})
    _set_imported(imported("torch._inductor.config"))
    settle(isa)
    count_by_thread()
    return None


def settle(isa: str) -> None:
    """Let this process compile as all do that write caches for `isa`, as a fingerprint has it, or find something in them."""
    torch.compiler.config.cache_key_tag = cache_key_tag(isa)
    vector.hold(isa)
    # Not by the environment, which processes that this one starts have too, and their torch's own kernels are slower for it.
    for_class = isa_environment(isa)
    if for_class:
        imported("torch._inductor.config").cpp.march = for_class["TORCHINDUCTOR_CPP_MARCH"]
        if "ATEN_CPU_CAPABILITY" in os.environ:
            torch.backends.cpu.get_cpu_capability()  # at the first look torch settles on its own kernels' instructions
            os.environ["ATEN_CPU_CAPABILITY"] = for_class["ATEN_CPU_CAPABILITY"]
    # One of the settings puts every kernel into a parallel region, where what it throws would end the process.
    from . import autotuners, parallel  # not with a package's answer: see `Fallback`

    parallel.hold()
    autotuners.hold()
    keep_freed_memory()


def _set_imported(config: Any) -> None:
    """Give an Inductor that has read its environment already what it would read now."""
    if config is None:
        return
    config.cpp_cache_precompile_headers = False
    config.cpp.vec_isa_ok = True
    config.cpp.dynamic_threads = True


def _copy(candidates: Sequence[Candidate], folder: Path) -> None:
    """One process of the pod copies; the rename makes the copy visible whole, and the slower ones take the faster's."""
    if folder.is_dir():
        return
    partial = folder.with_name(f".{folder.name}-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    from .relocated import copy_caches  # a process whose answers come from packages copies nothing

    for candidate in candidates:
        copy_caches(candidate.directory / CACHE_DIRECTORY, partial, final=folder)
    try:
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial, ignore_errors=True)
        if not folder.is_dir():
            raise


class _Tally(threading.local):
    """What was compiled in one thread."""

    misses = 0


_of_this_thread = _Tally()
_counted: list[Any] = []


def count_by_thread() -> None:
    """From now on it is known which thread Inductor compiled for; where torch is otherwise than expected, it is not. Never raises.

    torch counts for the whole process, where another thread may be compiling what no cache holds. It gives Inductor one graph
    at a time, in the thread that asked for it and under a lock of its own: what is counted in there is that thread's.
    """
    backend: Any = getattr(torch, "_TorchCompileInductorWrapper", None)
    real = getattr(backend, "__dict__", {}).get("__call__")
    if backend in _counted or real is None or not inspect.isfunction(real):
        return
    _counted.append(backend)

    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = _misses_or_nothing()
        try:
            return real(self, *args, **kwargs)
        finally:
            _of_this_thread.misses += max(0, _misses_or_nothing() - before)

    backend.__call__ = call


def _misses_of_all() -> int:
    # Another thread may be importing it just now: with what is not there yet nothing was compiled.
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    return 0 if counters is None else int(counters["inductor"]["fxgraph_cache_miss"])


def _misses_or_nothing() -> int:
    try:
        return _misses_of_all()
    except Exception:  # inside torch's compile nothing of ours may raise
        return 0


class HitCounter:
    """Whether Inductor found in its cache what it compiled for this thread, between creation and `missed`."""

    def __init__(self) -> None:
        self._before = self._misses()

    @staticmethod
    def _misses() -> int:
        return _of_this_thread.misses if _counted else _misses_of_all()

    def missed(self) -> int:
        """How many graphs had to be compiled."""
        return self._misses() - self._before
