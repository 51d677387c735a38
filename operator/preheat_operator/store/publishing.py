"""Puts a revision into the store so that a manifest, once visible, is complete.

Order is the whole safety: every piece, then the manifest, then the index entries that point at it. Whatever moment the
process is killed at, the store holds loose pieces at worst, and a rerun sends only what is missing. Two publishers of
the same revision write the same bytes under the same names and need no lock.

What is found under a name is not believed for being there: it counts when the server's checksum, or a look at the
bytes, says it is what the name says. A damaged or forged object is written over, so compiling again always heals.
"""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from preheat_operator.store import pieces
from preheat_operator.store.errors import InternalError, PieceMissingError
from preheat_operator.store.manifests import index_entry
from preheat_runtime.manifest import File, Manifest, ManifestError, Piece, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

WORKERS: Final = 4
"""Pieces on their way at once. Each holds up to 16 MiB raw and as much encoded: about 130 MiB at the worst."""


@dataclass(frozen=True)
class PendingFile:
    """A file whose pieces are on their way."""

    path: str
    size: int
    sha256: str
    futures: tuple[Future[Piece], ...]

    def wait(self) -> File:
        """Return the file once all of it is in the store; raises the first StoreError of its pieces."""
        return File(
            path=self.path,
            size=self.size,
            sha256=self.sha256,
            pieces=tuple(future.result() for future in self.futures),
        )


class Publisher:
    """Uploads files, then manifests of them. Use as a context; leaving it waits for, or gives up, what is under way."""

    def __init__(self, store: Objects, keys: Keys, *, workers: int = WORKERS) -> None:
        self._store = store
        self._keys = keys
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="publish")
        self._room = threading.Semaphore(workers)
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        self._stored: set[str] = set()
        self.bytes_sent = 0

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._pool.shutdown(cancel_futures=kind is not None)

    def send_file(self, path: str, read: Callable[[int], bytes]) -> PendingFile:
        """Read a file to its end and send its pieces; returns when the last one is under way.

        `read` is called from this thread only. Raises the error of any piece that failed before.
        """
        hasher = hashlib.sha256()
        size = 0
        futures: list[Future[Piece]] = []
        for data in pieces.split(read):
            hasher.update(data)
            size += len(data)
            self._room.acquire()
            if self._failure is not None:
                self._room.release()
                raise self._failure
            futures.append(self._pool.submit(self._send_piece, data))
            del data
        return PendingFile(path=path, size=size, sha256=hasher.hexdigest(), futures=tuple(futures))

    def publish(self, manifest: Manifest, *, job_uid: str | None) -> str:
        """Write a manifest whose own files were sent before, and the index entries; returns its digest.

        Pieces it has from other manifests are looked up first. Raises PieceMissingError when one is not there, and
        InternalError when the manifest breaks a rule of the format.
        """
        try:
            data = manifest.to_bytes()
        except ManifestError as error:
            raise InternalError(f"the manifest would be refused by its readers: {error}") from error
        self.require_pieces(manifest)
        digest = digest_of(data)
        self._ensure(self._keys.manifest(digest), data, digest.removeprefix("sha256:"))
        entry = index_entry(digest)
        entry_sha256 = hashlib.sha256(entry).hexdigest()
        index = sorted({self._keys.request(target.request_key) for target in manifest.targets if target.request_key})
        list(self._pool.map(lambda key: self._put(key, entry, entry_sha256), index))
        if job_uid is not None:
            self._put(self._keys.job(job_uid), entry, entry_sha256)
        return digest

    def require_pieces(self, manifest: Manifest) -> None:
        """Raise PieceMissingError unless every piece of the manifest is in the store with its size."""
        wanted = {piece.sha256: piece for target in manifest.targets for file in target.files for piece in file.pieces}
        self._each(self._require_piece, (piece for key, piece in wanted.items() if key not in self._stored))

    def _require_piece(self, piece: Piece) -> None:
        info = self._store.head(self._keys.blob(piece.sha256))
        if info is None or info.size != piece.stored_size:
            raise PieceMissingError(f"the store lacks the blob {piece.sha256} that the manifest of a part names")

    def _each(self, check: Callable[[Piece], None], items: Iterable[Piece]) -> None:
        list(self._pool.map(check, items))

    def _send_piece(self, data: bytes) -> Piece:
        try:
            if self._failure is not None:
                raise self._failure
            encoded = pieces.encode(data)
            del data
            self._ensure(self._keys.blob(encoded.piece.sha256), encoded.data, encoded.piece.sha256)
        except BaseException as error:
            self._failure = self._failure or error
            raise
        finally:
            self._room.release()
        with self._lock:
            self._stored.add(encoded.piece.sha256)
        return encoded.piece

    def _ensure(self, key: str, data: bytes, sha256: str) -> None:
        """Make sure the object `key` holds `data`, sending it only when it does not already."""
        for _ in range(2):
            found = self._holds(key, sha256, len(data))
            if found:
                return
            # None there: conditional, so that of two publishers one sends. Something else there: written over.
            if self._put(key, data, sha256, only_if_absent=found is None):
                return
        raise InternalError(f"{key} keeps being replaced by something else")

    def _holds(self, key: str, sha256: str, size: int) -> bool | None:
        """Whether the object is the one of that hash; None when there is no object."""
        info = self._store.head(key)
        if info is None:
            return None
        if info.size != size or info.sha256 is not None:
            return info.size == size and info.sha256 == sha256
        hasher = hashlib.sha256()
        with self._store.chunks(key) as chunks:
            if chunks is None:
                return None
            for chunk in chunks:
                hasher.update(chunk)
        return hasher.hexdigest() == sha256

    def _put(self, key: str, data: bytes, sha256: str, *, only_if_absent: bool = False) -> bool:
        written = self._store.put(key, data, sha256=sha256, only_if_absent=only_if_absent)
        if written:
            with self._lock:
                self.bytes_sent += len(data)
        return written
