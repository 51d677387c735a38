"""The few operations Preheat needs of an object store, whichever one it is.

Publishing, fetching and recovery know this and nothing of S3: so what a compile on a laptop leaves in a folder is
written, verified and read by the same code as what a Job leaves in a bucket. Every method raises a `StoreError` only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


@dataclass(frozen=True, kw_only=True)
class ObjectInfo:
    """What the store says of an object; `sha256` (hexadecimal) only where it keeps checksums."""

    size: int
    sha256: str | None


@dataclass(frozen=True, kw_only=True)
class Versioned:
    """A small object and a mark of its present contents, for `Objects.replace`."""

    data: bytes
    version: str


class Objects(Protocol):
    """One bucket, or what stands for it; safe to share between threads, and with other processes."""

    def head(self, key: str) -> ObjectInfo | None:
        """Return what is known of an object, None when there is none."""

    def get(self, key: str, *, limit: int) -> bytes | None:
        """Return a small object whole, None when there is none; of a larger one the first `limit` + 1 bytes."""

    def get_versioned(self, key: str, *, limit: int) -> Versioned | None:
        """Return what `get` does, with its version."""

    def chunks(self, key: str) -> AbstractContextManager[Iterator[bytes] | None]:
        """Open an object as a stream of chunks; None when there is none."""

    def put(self, key: str, data: bytes, *, sha256: str, only_if_absent: bool) -> bool:
        """Write an object whole or not at all, verified against `sha256` (hexadecimal).

        False when it was there and `only_if_absent`.
        """

    def replace(self, key: str, data: bytes, *, sha256: str, version: str) -> bool:
        """Write over an object that still has that version; False, and nothing is written, when it has not."""
