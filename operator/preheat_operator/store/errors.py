"""What can go wrong with the store, each with the one reason people read and the one decision machines take.

    StoreError
    ├── StoreUnreachableError        network, TLS, 5xx, throttling             retried
    ├── StoreCredentialsMissingError no credentials where they should be
    ├── StoreDeniedError             credentials, bucket or settings refused
    ├── ManifestMissingError         the digest names nothing in the store
    ├── ManifestCorruptError         its bytes are not those of its digest, or break the format
    ├── PieceMissingError            a manifest names a blob that is not there
    ├── PieceCorruptError            a blob, or the file made of blobs, has other bytes than the manifest says
    ├── UnknownFormatError           written by a version of Preheat this one does not know
    ├── NoSpaceError                 the volume is full
    ├── DeadlineExceededError        the time given was over
    └── InternalError                anything else: a fault of Preheat or of what it was given

Messages are composed here from operation, key and error *code*; text a server sent is never repeated, so that nothing
secret and nothing foreign reaches a log, a status or an annotation.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class Retry(enum.Enum):
    """Whether doing the same again can help."""

    LATER = "later"
    NEVER = "never"


class StoreError(Exception):
    """The store, or what it holds, is not as it should be."""

    reason: ClassVar[str] = "Internal"
    retry: ClassVar[Retry] = Retry.NEVER


class StoreUnreachableError(StoreError):
    """No answer, or an answer that says: later."""

    reason = "StoreUnreachable"
    retry = Retry.LATER


class StoreCredentialsMissingError(StoreError):
    """Neither the credentials folder nor web identity gives a key."""

    reason = "StoreCredentialsMissing"


class StoreDeniedError(StoreError):
    """The store answered that these credentials may not, or that there is no such bucket."""

    reason = "StoreDenied"


class ManifestMissingError(StoreError):
    """No manifest with that digest."""

    reason = "ManifestMissing"


class ManifestCorruptError(StoreError):
    """A manifest whose bytes are not what its name says."""

    reason = "ManifestCorrupt"


class PieceMissingError(StoreError):
    """A blob that a manifest names is not there."""

    reason = "PieceMissing"


class PieceCorruptError(StoreError):
    """A blob with other bytes, or of another size, than the manifest says."""

    reason = "PieceCorrupt"


class UnknownFormatError(StoreError):
    """Of a formatVersion this version does not read."""

    reason = "UnknownFormat"


class NoSpaceError(StoreError):
    """The volume cannot hold it."""

    reason = "NoSpace"


class DeadlineExceededError(StoreError):
    """Time was over before the work was done."""

    reason = "DeadlineExceeded"


class InternalError(StoreError):
    """What Preheat itself was given or did is wrong."""

    reason = "Internal"
