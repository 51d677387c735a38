"""Tells what a verdict rests on beside the request: the user's code, the packages, Python, and Preheat itself.

Why it exists: a compile that goes on where it was stopped takes over the verdicts it finds. In a pod nothing can have
changed meanwhile; on a person's machine a model is mended, a package upgraded, and the old verdict would be of code that
is not there any more. What the factory reads beside code (weights, configuration, variables) is not looked at.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from preheat_compiler.faults import is_library

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Where a target's process writes what it imported, below its work folder.
FILE = "sources.json"
_OURS = Path(__file__).resolve().parent.parent
_PACKAGES = ("preheat_compiler", "preheat_runtime")


def imported() -> dict[str, str]:
    """The files that modules of this process came from, but for those of libraries, each with the SHA-256 of its content."""
    files = map(_file, list(sys.modules.values()))
    own = {file for file in files if isinstance(file, str) and not is_library(file) and not _is_ours(file)}
    return {file: digest for file in sorted(own) if (digest := _digest(file)) is not None}


def unchanged(files: Mapping[str, str]) -> bool:
    """Whether each file has still the content that `imported` found."""
    return all(_digest(file) == digest for file, digest in files.items())


def around(path: Iterable[str] | None = None) -> str:
    """A hash of the Python, of the packages that are installed on `path` (by default `sys.path`), and of Preheat's own code."""
    digest = hashlib.sha256(f"{sys.version}\n{sys.prefix}\n".encode("utf-8", "backslashreplace"))
    for folder in dict.fromkeys(sys.path if path is None else path):
        for found in sorted(_distributions(folder)):
            digest.update(f"{folder}\n{found}\n".encode("utf-8", "backslashreplace"))
    for package in _PACKAGES:
        for file in sorted((_OURS / package).rglob("*.py")):
            digest.update(f"{file.relative_to(_OURS)} {_digest(file)}\n".encode("utf-8", "backslashreplace"))
    return digest.hexdigest()


def _file(module: object) -> object:
    with suppress(Exception):  # whatever stands in the place of a module
        return getattr(module, "__file__", None)
    return None


def _distributions(folder: str) -> list[str]:
    try:
        entries = [each for each in Path(folder).iterdir() if each.suffix in {".dist-info", ".egg-info", ".egg-link"}]
        # What is installed anew in the same version (a nightly, a build of one's own) has another time.
        return [f"{each.name} {each.stat().st_mtime_ns}" for each in entries]
    except OSError:
        return []


def _is_ours(file: str) -> bool:
    # Part of `around`.
    return file.startswith(f"{_OURS}/")


def _digest(file: str | Path) -> str | None:
    try:
        with Path(file).open("rb") as content:
            digest = hashlib.sha256()
            while part := content.read(1 << 20):
                digest.update(part)
    except (OSError, ValueError):  # ValueError: a null character
        return None
    return digest.hexdigest()
