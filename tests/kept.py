"""What compiling made for a test, kept outside the checkout by everything that it came from.

Why it exists: most of what the tests of compiling take is compiling, again and again from the same code, model and machine.
What came of it is looked at by every run; it is made anew when an input changes, when a test that used it fails, and by
`make soak` (PREHEAT_FRESH=1), which looks whether it still comes out so. It never lies where it was made, in the run that
made it neither: a test that holds there alone would fail in the next run, and not before.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from lab.paths import REPOSITORY, cache_root, key_of, tree_key

if TYPE_CHECKING:
    from collections.abc import Callable

#: Where a made folder, what its maker said, and all that the key was made of lie, below an entry.
_FILES, _SAID, _FROM = "files", "said", "from"
#: Entries beyond this number go, the longest unused first; each is some megabytes.
_MOST = 100
_STALE_SECONDS = 24 * 3600.0
#: Variables that change what is compiled, by what their names begin with; places of this checkout or session are none.
_PREFIXES = ("TORCH", "PREHEAT_", "OMP_", "MKL_", "CUDA_", "PYTHON")
_NO_INPUTS = (
    "PREHEAT_CACHE",
    "PREHEAT_FRESH",
    "PREHEAT_LAB",
    "PYTHONPATH",
    "TORCHINDUCTOR_CACHE_DIR",
    "OMP_WAIT_POLICY",
)
#: Variables that tests themselves set for a compile.
_SET_BY_TESTS = ("CXX",)

#: Of this session: what is kept if its tests pass, and what was used.
_offered: dict[Path, Path] = {}
_used: set[Path] = set()


def made(folder: Path, make: Callable[[Path], str], *what: str, inputs: tuple[str, ...] = ("compiler_job",)) -> str:
    """Fill `folder` by `make`, or with what that made before of the same; returns what `make` returned.

    `make` is called with the folder to fill: one beside `folder` that has what was in it, and takes its place afterwards.
    `what` tells this one from others; `inputs` are the files and folders of the checkout that it comes from, beside
    Python, its packages, the compiler, the CPU and the environment.
    """
    if os.environ.get("PREHEAT_FRESH") == "1":
        return _make_beside(folder, make)
    parts = [tree_key(REPOSITORY, inputs), _surroundings(), *(f"\0{each}" for each in what)]
    entry = _root() / key_of(*parts)
    if (entry / _SAID).exists():
        _used.add(entry)
        entry.touch()
        shutil.copytree(entry / _FILES, folder, dirs_exist_ok=True, symlinks=True)
        return (entry / _SAID).read_text()
    said = _make_beside(folder, make)
    _no_place_of_this_checkout(folder, said)
    pending = _root() / f".new-{os.getpid()}-{len(_offered)}"
    shutil.rmtree(pending, ignore_errors=True)
    shutil.copytree(folder, pending / _FILES, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    (pending / _FROM).write_text("\n".join(parts))
    (pending / _SAID).write_text(said)
    _offered[entry] = pending
    return said


def _make_beside(folder: Path, make: Callable[[Path], str]) -> str:
    place = folder.with_name(f"{folder.name}-made")
    if folder.exists():
        folder.rename(place)
    else:
        place.mkdir(parents=True)
    try:
        return make(place)
    finally:
        place.rename(folder)


def _no_place_of_this_checkout(folder: Path, said: str) -> None:
    """What tells where the checkout lies is another in the next one, so a test of it would fail there alone."""
    documents = [*folder.rglob("*.json"), *folder.rglob("termination")]
    texts = {"what it said": said} | {str(each): each.read_text() for each in documents}
    if found := [name for name, text in texts.items() if str(REPOSITORY) in text]:
        msg = f"{', '.join(found)}: names {REPOSITORY}; keep the checkout's place out of what is made"
        raise AssertionError(msg)


def settle(*, passed: bool) -> None:
    """At a session's end: keep what it made when its tests passed, else forget all that they looked at."""
    for entry, pending in _offered.items():
        if passed:
            with suppress(OSError):  # another worker was quicker
                pending.rename(entry)
        shutil.rmtree(pending, ignore_errors=True)
    for entry in () if passed else _used:
        shutil.rmtree(entry, ignore_errors=True)
    if _offered:
        _make_room()
    _offered.clear()
    _used.clear()


def _make_room() -> None:
    now = time.time()
    entries = sorted(_root().iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    stale = [each for each in entries if each.name.startswith(".") and now - each.stat().st_mtime > _STALE_SECONDS]
    for each in [*stale, *[each for each in entries if not each.name.startswith(".")][_MOST:]]:
        shutil.rmtree(each, ignore_errors=True)


def _root() -> Path:
    root = cache_root() / "made"
    root.mkdir(exist_ok=True)
    return root


def _surroundings() -> str:
    """All but the checkout that an outcome depends on."""
    return repr((_machine(), _environment(), [os.environ.get(name) for name in _SET_BY_TESTS]))


@cache
def _environment() -> list[str]:
    """The variables that this process was started with: libraries set further ones, in whatever order they are imported."""
    started = Path("/proc/self/environ").read_text(encoding="utf-8", errors="replace").split("\0")
    return sorted(each for each in started if each.startswith(_PREFIXES) and not each.startswith(_NO_INPUTS))


@cache
def _machine() -> str:
    # Not all that `sys.path` leads to: tests put folders of their own there.
    installed = metadata.distributions(path=[sysconfig.get_path("purelib")])
    packages = sorted(f"{each.name} {each.version}" for each in installed)
    cpu = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))}
    compiler = shutil.which("g++")
    version = (
        subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout if compiler else ""
    )
    return repr((sys.version, platform.platform(), os.cpu_count(), packages, sorted(cpu), version))
