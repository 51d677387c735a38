"""Revisions as `preheat run` keeps them: one folder each, laid out as `/opt/preheat` in a pod.

A folder is made elsewhere and renamed, and never changed afterwards, since processes may run from it. It is used again
only after every byte was verified again, by the code of the init container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from preheat_operator import fetch
from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.private import PRIVATE, is_private
from preheat_operator.containers import sources
from preheat_operator.containers.receipt import FETCHED, Receipt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from preheat_operator.cli.stores import StoreLocation

STALE_SECONDS: Final = 24 * 3600
"""Age after which an unfinished folder counts as left by a run that was killed."""
_PRIVATE: Final = ".preheat-incoming-"
_ATTEMPTS: Final = 3


class NotBroughtError(Exception):
    """The fetch ended without a revision; the message is its reason and words."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A revision on this machine, and the folder that its processes may write to."""

    root: Path
    work: Path

    @property
    def site(self) -> Path:
        """What goes on PYTHONPATH."""
        return self.root / "site"


def default_cache(environ: Mapping[str, str]) -> Path:
    """Where revisions are kept unless told otherwise. Raises NotBroughtError for a user without a home."""
    base = environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "preheat" / "revisions"
    except RuntimeError:
        raise NotBroughtError("this user has no home to keep artifacts in: --cache names a folder") from None


def prepare(cache: Path, digest: str, location: StoreLocation, *, seconds: float) -> Folder:
    """The verified revision of `digest` below `cache`, brought from the store when it is not there.

    Raises NotBroughtError, StoreError, or OSError when the cache cannot be written.
    """
    from preheat_operator.containers.fit import Machine
    from preheat_operator.containers.revision import reusable
    from preheat_operator.store.fetching import Deadline

    started = time.monotonic()
    if os.pathsep in str(cache.absolute()):
        # PYTHONPATH knows no way to write such a name, and Python would silently find nothing there.
        raise NotBroughtError(
            f"PYTHONPATH cannot name {cache.absolute()}, for the {os.pathsep!r} in it: --cache names another"
        )
    # Code that is loaded later lies here: nobody else may write to it.
    cache.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    if not is_private(cache):
        raise NotBroughtError(f"others can write to the cache {cache}, so nothing is loaded from it: name another")
    runtime = tree_hash(sources.package_folder(sources.RUNTIME))
    key = f"{digest.removeprefix('sha256:')[:32]}-{runtime[:16]}"
    folder = Folder(root=cache.absolute() / key, work=cache.absolute() / f"{key}.work")
    folder.work.mkdir(mode=PRIVATE, exist_ok=True)
    deadline = started + seconds

    def whole() -> bool:
        return (
            _site_is_whole(folder, runtime)
            and reusable(folder.root / "revision", digest, Machine.here(), Deadline(deadline)) is not None
        )

    if not whole():
        _bring(folder.root, digest, location, whole, started=started, deadline=deadline)
    return folder


def tree_hash(folder: Path) -> str:
    """A hash over names and contents of the files below a folder, byte code left out."""
    hasher = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        data = path.read_bytes()
        hasher.update(f"{path.relative_to(folder).as_posix()}\0{len(data)}\0".encode())
        hasher.update(data)
    return hasher.hexdigest()


def _site_is_whole(folder: Folder, runtime: str) -> bool:
    points = [path.read_text() for path in folder.site.glob(f"{sources.RUNTIME}-*.dist-info/entry_points.txt")]
    return points == [sources.ENTRY_POINTS] and tree_hash(folder.site / sources.RUNTIME) == runtime


def _bring(
    root: Path, digest: str, location: StoreLocation, whole: Callable[[], bool], *, started: float, deadline: float
) -> None:
    cache = root.parent
    _sweep(cache)
    incoming = cache / f"{_PRIVATE}{uuid.uuid4().hex}"
    incoming.mkdir(mode=PRIVATE)
    try:
        answer = fetch.fetch(incoming, digest, location.open, deadline)
        if answer.stopped:
            raise CommandError("told to stop", code=exits.SIGNALLED + signal.SIGTERM)
        if answer.outcome != FETCHED:
            remedy = "; --timeout gives it longer" if answer.reason == "DeadlineExceeded" else ""
            raise NotBroughtError(f"{answer.reason}: {answer.message}{remedy}")
        Receipt(
            outcome=answer.outcome, reason=answer.reason, message=answer.message, manifest=digest, bytes=answer.bytes,
            seconds=time.monotonic() - started,
        ).write(incoming)  # fmt: skip
        (incoming / ".attempt").unlink(missing_ok=True)
        _put_in_place(incoming, root, whole)
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def _put_in_place(incoming: Path, root: Path, whole: Callable[[], bool]) -> None:
    """Rename, unless another run was faster; what is there and damaged makes room."""
    for _ in range(_ATTEMPTS):
        try:
            incoming.rename(root)
        except OSError:
            if not root.is_dir():
                raise
        else:
            return
        if whole():
            return
        # Processes that run from it keep what they have open.
        damaged = root.with_name(f"{_PRIVATE}{uuid.uuid4().hex}")
        with contextlib.suppress(FileNotFoundError):
            root.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    raise NotBroughtError(f"Internal: {root} keeps being replaced")


def _sweep(cache: Path) -> None:
    for left in cache.glob(f"{_PRIVATE}*"):
        try:
            old = time.time() - left.stat().st_mtime > STALE_SECONDS
        except FileNotFoundError:
            continue
        if old:
            shutil.rmtree(left, ignore_errors=True)
