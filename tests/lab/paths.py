"""Where the lab keeps things: one cache root outside every checkout, each entry keyed by what it was made from.

Why it exists: a key is what makes a second run fast and a changed input safe; both need one place that knows the rules.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "go"

_NOT_INPUTS = {"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".git"}


def cache_root() -> Path:
    """``$PREHEAT_CACHE``, else ``~/.cache/preheat``; made when absent."""
    root = Path(os.environ.get("PREHEAT_CACHE") or Path.home() / ".cache" / "preheat").absolute()
    root.mkdir(parents=True, exist_ok=True)
    return root


def tool(name: str) -> str:
    """The path of a program that the development environment ships (``kubectl``, ``weed``, ``uv``)."""
    # Resolved, since daemons see an empty /tmp, and the environment may be reached through a link there.
    return str(Path(sys.executable).parent.resolve() / name)


def key_of(*parts: bytes | str) -> str:
    """16 hex digits that name these inputs."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode() if isinstance(part, str) else part)
    return digest.hexdigest()[:16]


def files_under(top: Path, inputs: Iterable[str]) -> Iterator[Path]:
    """Every file that ``inputs`` (files or folders, relative to ``top``) name, sorted, without caches of tools."""
    for name in sorted(inputs):
        start = top / name
        if start.is_file():
            yield start
            continue
        if not start.is_dir():
            raise FileNotFoundError(f"{start}: named as an input of a build, but it does not exist")
        for path in sorted(start.rglob("*")):
            if path.is_file() and not _NOT_INPUTS.intersection(path.relative_to(top).parts):
                yield path


def tree_key(top: Path, inputs: Iterable[str], *extra: str) -> str:
    """16 hex digits that name the names, modes and contents of these files, and ``extra``."""
    parts: list[bytes | str] = []
    for path in files_under(top, inputs):
        executable = bool(path.stat().st_mode & 0o100)
        content = path.read_bytes()
        parts += [f"{path.relative_to(top)}\0{executable}\0{len(content)}\0", content]
    return key_of(*parts, *(f"\0{item}" for item in extra))


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Only one process at a time is inside, for each ``path``; the file is made and stays."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
