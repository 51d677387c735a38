"""Brings the files of a revision into a folder nobody looks at yet, every byte verified.

Memory stays flat whatever the size: stored pieces go to disk (small ones stay in memory) while they are hashed, and
only a piece that is what its name says is given to the decoder. The finished file is then read back and hashed as a
whole, so what is verified is what a process will map, not what passed by on the network.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, Final

from preheat_operator.store import pieces
from preheat_operator.store.errors import (
    DeadlineExceededError,
    NoSpaceError,
    PieceCorruptError,
    PieceMissingError,
    StoreUnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys
    from preheat_runtime.manifest import File, Piece, Target

WORKERS: Final = 4
"""Pieces under way at once; measured: more brings nothing on two cores, and each costs about 4 MiB."""
ATTEMPTS: Final = 3
"""Of one piece whose stream is cut, which botocore does not retry."""
IN_MEMORY_BYTES: Final = 1024 * 1024
SPARE_BYTES: Final = 32 * 1024 * 1024
"""Free space that must be left after the fetch: a full volume gets the whole pod evicted."""


@dataclass(frozen=True)
class Deadline:
    """A point of the monotonic clock after which work is given up."""

    at: float
    clock: Callable[[], float] = time.monotonic

    def check(self) -> None:
        """Raise DeadlineExceededError when time is over."""
        if self.clock() >= self.at:
            raise DeadlineExceededError("the deadline (PREHEAT_FETCH_TIMEOUT_SECONDS) passed before all was here")


def fetch_targets(
    store: Objects, keys: Keys, targets: Sequence[Target], into: Path, *, deadline: Deadline, workers: int = WORKERS
) -> int:
    """Write the files of `targets` below the empty folder `into`, at their paths in a revision; returns their bytes.

    Raises a StoreError that says what is wrong; what lies in `into` then is good for nothing.
    """
    files = [(into / target.folder / file.path, file) for target in targets for file in target.files]
    _require_space(into, files)
    try:
        for path, file in files:
            _create(path, file.size, below=into)
        jobs = [(path, offset, piece) for path, file in files for offset, piece in _offsets(file)]
        # The largest first: the last one to start decides when all is here.
        jobs.sort(key=lambda job: -job[2].stored_size)
        stop = threading.Event()
        spool = into.parent
        _run(
            workers,
            (_Task(store, keys, path, offset, piece, spool, deadline, stop).run for path, offset, piece in jobs),
            stop,
        )
        _run(workers, (partial(verify_file, path, file, deadline) for path, file in files), stop)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise NoSpaceError(f"the volume is full: {errno.errorcode[error.errno]}") from error
        raise
    return sum(file.size for _, file in files)


def verify_file(path: Path, file: File, deadline: Deadline) -> None:
    """Raise PieceCorruptError unless the file on disk is the one the manifest describes."""
    hasher = hashlib.sha256()
    size = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        while chunk := source.read(pieces.CHUNK_BYTES):
            deadline.check()
            hasher.update(chunk)
            size += len(chunk)
    if size != file.size or hasher.hexdigest() != file.sha256:
        raise PieceCorruptError(f"{file.path}: its pieces do not make the file the manifest describes")


@dataclass(frozen=True)
class _Task:
    """One piece on its way into one file."""

    store: Objects
    keys: Keys
    path: Path
    offset: int
    piece: Piece
    spool: Path
    deadline: Deadline
    stop: threading.Event

    def run(self) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._once()
            except StoreUnreachableError:
                if attempt == ATTEMPTS:
                    raise
                self.stop.wait(0.2 * attempt)
        return None

    def _once(self) -> None:
        with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(self.spool)) as stored:
            with self.store.chunks(self.keys.blob(self.piece.sha256)) as chunks:
                if chunks is None:
                    raise PieceMissingError(f"the store lacks the blob {self.piece.sha256} of {self.path.name}")
                pieces.verify_stored(self.piece, self._watched(chunks), stored.write)
            stored.seek(0)
            with _open_at(self.path, self.offset) as target:
                pieces.decode(self.piece, stored, target.write)

    def _watched(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.deadline.check()
            if self.stop.is_set():
                raise DeadlineExceededError("given up: another piece failed")
            yield chunk


def _run(workers: int, tasks: Iterable[Callable[[], None]], stop: threading.Event) -> None:
    """Run the tasks; the first failure stops the others and is raised."""
    with ThreadPoolExecutor(workers, thread_name_prefix="fetch") as pool:
        futures = [pool.submit(task) for task in tasks]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        failed = [future for future in done if future.exception() is not None]
        if failed:
            stop.set()
            pool.shutdown(cancel_futures=True)
            failed[0].result()


def _require_space(folder: Path, files: Sequence[tuple[Path, File]]) -> None:
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    need = sum(file.size for _, file in files) + SPARE_BYTES
    if free < need:
        raise NoSpaceError(f"the volume has {free} bytes free, the artifacts need {need}")


def _create(path: Path, size: int, *, below: Path) -> None:
    for parent in reversed(path.relative_to(below).parents[:-1]):
        folder = below / parent
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    mode = 0o755 if path.name.endswith(".so") else 0o644
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        os.fchmod(descriptor, mode)
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def _open_at(path: Path, offset: int) -> BinaryIO:
    target = os.fdopen(os.open(path, os.O_WRONLY | os.O_NOFOLLOW), "wb")
    target.seek(offset)
    return target


def _offsets(file: File) -> Iterator[tuple[int, Piece]]:
    offset = 0
    for piece in file.pieces:
        yield offset, piece
        offset += piece.size
