"""Lets GPU kernels out of compiler caches look for their tuning, and keep it, in this process's cache folder.

Why it exists: with a graph Inductor pickles its Triton kernels as they are, each with the path of its source and of the file
that says which of its configurations was the fastest: paths of the compile Job. In a pod that file was not found, so the first
call timed all configurations again, and then wrote what it had found to a folder that no pod has: an error in the user's call.
"""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .first_graph import before_first_graph
from .outside import let_through
from .room import imported

if TYPE_CHECKING:
    from collections.abc import Callable

_held: list[bool] = []


def hold() -> None:
    """From the next graph on that torch.compile gives Inductor, kernels out of caches are tuned from and to this process's folder.

    And tuning that cannot be written is lost, and fails no call. Costs nothing after the first time; never raises. Where torch
    works otherwise than expected, that part stays as it is.
    """
    if not _held and before_first_graph(_change):
        _held.append(True)


def _change() -> None:
    import torch._inductor.compile_fx  # as torch itself comes to it: what is changed here is imported with it  # noqa: F401

    bundler: Any = getattr(imported("torch._inductor.triton_bundler"), "TritonBundler", None)
    loads = getattr(bundler, "__dict__", {}).get("load_autotuners")
    if isinstance(loads, classmethod) and _takes(loads.__func__, "cls", "static_autotuners"):
        bundler.load_autotuners = classmethod(_loading(loads.__func__))
    cache: Any = getattr(imported("torch._inductor.runtime.autotune_cache"), "AutotuneCache", None)
    saves: Any = getattr(cache, "__dict__", {}).get("save")
    if _takes(saves, "self"):
        cache.save = _saving(saves)


def _takes(function: Any, *names: str) -> bool:
    return inspect.isfunction(function) and tuple(inspect.signature(function).parameters)[: len(names)] == names


def _loading(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def load_autotuners(cls: Any, static_autotuners: Any, *args: Any, **kwargs: Any) -> Any:
        if static_autotuners:
            try:
                _move(static_autotuners)
            except Exception as error:  # as torch has it, then
                let_through(error)
        return real(cls, static_autotuners, *args, **kwargs)

    return load_autotuners


def _saving(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def save(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return real(self, *args, **kwargs)
        except OSError as error:
            let_through(error)
            # A full disk, say. This process knows the fastest all the same; the next one finds it out again.
            return None

    return save


def _move(static_autotuners: Any) -> None:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = Path(cache_dir())
    for each in static_autotuners:
        kernel = each.kernel
        if kernel.filename is None:
            continue
        source = Path(kernel.filename)
        # In a cache folder Inductor names the folder of a source by two letters of its name.
        if not source.is_absolute() or source.parent.name != source.name[1:3]:
            continue
        here = folder / source.parent.name
        function: Any = getattr(kernel, "fn", None)
        if getattr(function, "file_name", None) == kernel.filename:
            function.file_name = str(here / source.name)
        kernel.filename = str(here / source.name)
        # The hook is a method of what knows the file; there is none where no tuning is kept.
        cache = getattr(kernel.save_cache_hook, "__self__", None)
        kept = getattr(cache, "local_cache", None)
        if cache is not None and kept is not None:
            where, key = kept
            if Path(key).parent == source.parent:
                cache.local_cache = (where, str(here / Path(key).name))
