"""Finds torch's compiler a place to work in, where the pod's own folder for temporary files is none.

Why it exists: Inductor writes what it compiles below that folder, and loads it from there. A pod whose root is read-only may
have no such folder, and from one that is mounted `noexec` nothing can be loaded: torch.compile then raises at the first call.
Preheat's own volume can be written and may hold programs, so what no package answers is compiled there.
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .outside import let_through
from .variables import ENV_WORK_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

CACHE_VARIABLE: Final = "TORCHINDUCTOR_CACHE_DIR"
#: Of Triton, which compiles for GPUs.
_TRITON_VARIABLE: Final = "TRITON_CACHE_DIR"
_OURS, _TEMPORARY, _TRITONS = "compiled", "tmp", "triton"

NO_ROOM: Final = "torch's compiler has no place to work in"


def find(environ: Mapping[str, str], *, triton: bool = False) -> str | None:
    """Set the process up so that torch can compile; why there is no place for it, in words, or None.

    Where torch's own place will not do, sets TORCHINDUCTOR_CACHE_DIR, unless the user has, and where there is no folder for
    temporary files at all, TMPDIR; for the whole process. `triton`: it compiles for a GPU, so TRITON_CACHE_DIR as well.
    Never raises.
    """
    against = _find(environ)
    if against is None and triton:
        _find_for_triton(environ)
    return against


def _find(environ: Mapping[str, str]) -> str | None:
    temporary = _temporary()
    against = "there is no folder for temporary files" if temporary is None else unusable(temporary)
    if against is None:
        return None
    work = environ.get(ENV_WORK_DIR)
    ours = _made(Path(work)) if work else f"{ENV_WORK_DIR} is not set"
    named = CACHE_VARIABLE in environ and not _is_free_to_choose(environ[CACHE_VARIABLE])
    if not work or ours is not None:
        return None if named and temporary is not None else f"{NO_ROOM}: {against}; {ours}"
    if not named:
        os.environ[CACHE_VARIABLE] = str(Path(work, _OURS))
    if temporary is None:
        os.environ["TMPDIR"] = tempfile.tempdir = str(Path(work, _TEMPORARY))
    return None


def _find_for_triton(environ: Mapping[str, str]) -> None:
    """torch gives Triton a place beside its own, but at its first kernel: what Triton builds for itself before lies below HOME."""
    home = Path(environ.get("TRITON_HOME") or os.path.expanduser("~"), ".triton", "cache")  # noqa: PTH111 (raises without one)
    work = environ.get(ENV_WORK_DIR)
    if _TRITON_VARIABLE in environ or not work:
        return
    there = next((each for each in (home, *home.parents) if each.exists()), home)
    if unusable(there) is not None and _made(Path(work)) is None:
        os.environ[_TRITON_VARIABLE] = str(Path(work, _OURS, _TRITONS))


def _made(work: Path) -> str | None:
    """Why Preheat's own volume will not do, or None."""
    against = unusable(work)
    if against is None:
        try:
            (work / _TEMPORARY).mkdir(exist_ok=True)
        except OSError as error:
            let_through(error)
            return f"{work}: {error.strerror}"
    return against


def is_torchs_own(folder: str) -> bool:
    """Whether nobody asked for this cache folder: it is Preheat's own, or Inductor's default.

    Inductor, once imported, writes its default into the environment at the first look, and at the first kernel for a GPU
    Triton's, a folder in its own with the GPU's number. Preheat's own are the one `find` chose and those `warm` fills, which a
    process that a warm one started finds set as well.
    """
    work = os.environ.get(ENV_WORK_DIR)
    places = [Path(work, _OURS), filled(Path(work))[CACHE_VARIABLE]] if work else []
    utils = imported("torch._inductor.runtime.cache_dir_utils")
    if utils is not None and _temporary() is not None:
        places.append(Path(utils.default_cache_dir()))
    path = Path(folder)
    of_triton = path.parent if path.name.isdecimal() else path
    return any(path == place or of_triton == place / _TRITONS for place in places)


def _is_free_to_choose(folder: str) -> bool:
    """Whether another cache folder would do as well: nobody asked for this one, nor has `warm` filled it."""
    work = os.environ.get(ENV_WORK_DIR)
    return is_torchs_own(folder) and not (work and Path(folder) == filled(Path(work))[CACHE_VARIABLE])


def filled(work: Path) -> dict[str, Path]:
    """The folders of the pod's copy of an artifact's caches, by the variables that name them to torch."""
    folder = work / "inductor"
    return {CACHE_VARIABLE: folder, _TRITON_VARIABLE: folder / _TRITONS}


def imported(name: str) -> Any:
    """A module that this process has imported, or None; one that another thread is importing just now, once it is whole."""
    return importlib.import_module(name) if name in sys.modules else None


def unusable(folder: Path) -> str | None:
    """Why what is compiled cannot be written to this folder and loaded from it, in words; None when it can."""
    try:
        flags = os.statvfs(folder).f_flag
    except OSError as error:
        let_through(error)
        return f"{folder}: {error.strerror}"
    if flags & os.ST_NOEXEC:
        return f"{folder} is mounted noexec"
    if flags & os.ST_RDONLY or not os.access(folder, os.W_OK | os.X_OK):
        return f"{folder} cannot be written to"
    return None


def _temporary() -> Path | None:
    """Python's folder for temporary files; None where there is none that can be written to."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None
