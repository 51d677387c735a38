"""The store in a folder: for use without a cluster and without a server, on a disk or a share.

Keys are paths below the folder, laid out as in a bucket, so either can be copied into the other. A file appears under
its key whole or not at all: it is written elsewhere in the folder, brought to disk, and linked or renamed. Writers need
no lock to add objects; only replacing one takes a lock, which the system gives back when its holder dies.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import time
import uuid
from typing import TYPE_CHECKING, BinaryIO, Final

from preheat_operator.store.errors import (
    InternalError,
    NoSpaceError,
    StoreDeniedError,
    StoreError,
    StoreUnreachableError,
)
from preheat_operator.store.interface import ObjectInfo, Versioned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK_BYTES: Final = 256 * 1024
STALE_SECONDS: Final = 24 * 3600
"""Age after which a file that was being written counts as left by a writer that was killed."""
_INCOMING: Final = ".incoming"
_LOCK: Final = ".lock"
_OURS = re.compile(r"[0-9a-f]{32}")
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a system answers for want of room."""
# The second line: something else lies where a folder or a file should be.
_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS}
    | {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
_MISSING = (FileNotFoundError, NotADirectoryError)


class DirectoryStore:
    """`Objects` in a folder. It is made by the first write, never by a read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def head(self, key: str) -> ObjectInfo | None:
        """Return the size of an object, None when there is none. A file system keeps no checksums: readers hash."""
        with _translated("head", key):
            try:
                found = self._path(key).stat()
            except _MISSING:
                return None
            return ObjectInfo(size=found.st_size, sha256=None)

    def get(self, key: str, *, limit: int) -> bytes | None:
        """Return a small object whole, None when there is none; of a larger one the first `limit` + 1 bytes."""
        found = self.get_versioned(key, limit=limit)
        return None if found is None else found.data

    def get_versioned(self, key: str, *, limit: int) -> Versioned | None:
        """Return what `get` does; the version is the hash of what was read."""
        with _translated("get", key), self._open(key) as source:
            if source is None:
                return None
            data = b"".join(_chunks(source, limit + 1))
        return Versioned(data=data, version=hashlib.sha256(data).hexdigest())

    @contextlib.contextmanager
    def chunks(self, key: str) -> Iterator[Iterator[bytes] | None]:
        """Open an object as a stream of chunks; None when there is none."""
        with contextlib.ExitStack() as stack:
            with _translated("get", key):
                source = stack.enter_context(self._open(key))
            yield None if source is None else _translated_chunks(source, key)

    def put(self, key: str, data: bytes, *, sha256: str, only_if_absent: bool) -> bool:
        """Write an object whole or not at all. False when it was there and `only_if_absent`."""
        with _translated("put", key), self._written(key, data, sha256) as (incoming, path):
            if not only_if_absent:
                incoming.replace(path)
                return True
            try:
                path.hardlink_to(incoming)
            except OSError as error:
                # A link that leads nowhere is no object: whoever reads finds none, so it must not keep one away either.
                leads_nowhere = error.errno == errno.EEXIST and not path.exists()
                if error.errno == errno.EEXIST and not leads_nowhere:
                    return False
                if not leads_nowhere and error.errno not in _NO_LINKS:
                    raise
                with self._locked():
                    if path.exists():
                        return False
                    incoming.replace(path)
            return True

    def replace(self, key: str, data: bytes, *, sha256: str, version: str) -> bool:
        """Write over an object whose contents still have the hash `version`; False when they have not."""
        with (
            _translated("put", key),
            self._written(key, data, sha256) as (incoming, path),
            self._locked(),
            self._open(key) as source,
        ):
            if source is None or hashlib.sha256(b"".join(_chunks(source))).hexdigest() != version:
                return False
            incoming.replace(path)
            return True

    def _path(self, key: str) -> Path:
        segments = key.split("/")
        if any(segment in ("", ".", "..") or segment.startswith(".") for segment in segments):
            raise InternalError(f"{key!r} is no key")
        return self._root.joinpath(*segments)

    @contextlib.contextmanager
    def _open(self, key: str) -> Iterator[BinaryIO | None]:
        try:
            # Non-blocking: a pipe nobody writes to must not hang.
            descriptor = os.open(self._path(key), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except _MISSING:
            yield None
            return
        with os.fdopen(descriptor, "rb", buffering=0) as source:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise StoreDeniedError(f"get {key}: is no plain file")
            yield source

    @contextlib.contextmanager
    def _written(self, key: str, data: bytes, sha256: str) -> Iterator[tuple[Path, Path]]:
        """A file on disk with the object's contents, to be put in place at the second path."""
        path = self._path(key)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise InternalError(f"put {key}: the bytes are not those of their hash")
        folder = self._root / _INCOMING
        folder.mkdir(parents=True, exist_ok=True)
        self._sweep(folder)
        incoming = folder / uuid.uuid4().hex
        try:
            with incoming.open("xb") as target:
                target.write(data)
                target.flush()
                os.fsync(target.fileno())
            path.parent.mkdir(parents=True, exist_ok=True)
            yield incoming, path
            _sync_folder(path.parent)
        finally:
            incoming.unlink(missing_ok=True)

    def _sweep(self, folder: Path) -> None:
        """Remove what writers that were killed left behind; once in the life of a store object."""
        if self._swept:
            return
        self._swept = True
        for left in folder.iterdir():
            if not _OURS.fullmatch(left.name):
                continue
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > STALE_SECONDS:
                    left.unlink()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _chunks(source: BinaryIO, most: int | None = None) -> Iterator[bytes]:
    left = most
    while chunk := source.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        yield chunk
        left = None if left is None else left - len(chunk)


def _translated_chunks(source: BinaryIO, key: str) -> Iterator[bytes]:
    with _translated("get", key):
        yield from _chunks(source)


def _sync_folder(folder: Path) -> None:
    # Some network file systems cannot; a name lost in a power cut is then sent again.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def _translated(operation: str, key: str) -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        said = f"{operation} {key}: {errno.errorcode.get(error.errno or 0, type(error).__name__)}"
        if error.errno in FULL:
            raise NoSpaceError(f"{said}: the disk of the store is full") from error
        if error.errno in _REFUSED:
            raise StoreDeniedError(f"{said}: the store's folder cannot be used so, or not by this user") from error
        raise StoreUnreachableError(said) from error
