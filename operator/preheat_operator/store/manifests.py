"""Reads manifests and index entries from the store, believing nothing before it is verified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from preheat_operator.store.errors import ManifestCorruptError, ManifestMissingError, UnknownFormatError
from preheat_runtime import manifest as format_
from preheat_runtime.manifest import Manifest, ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

MAX_INDEX_BYTES: Final = 4096


def read_manifest(store: Objects, keys: Keys, digest: str) -> tuple[bytes, Manifest]:
    """Return a manifest's bytes and contents; the bytes are compared with the digest before they are parsed.

    Raises ManifestMissingError, ManifestCorruptError, UnknownFormatError, or what the store raises.
    """
    data = store.get(keys.manifest(digest), limit=format_.MAX_MANIFEST_BYTES)
    if data is None:
        raise ManifestMissingError(f"the store has no manifest {digest}")
    try:
        return data, Manifest.parse(data, digest=digest)
    except format_.UnknownFormatError as error:
        raise UnknownFormatError(f"manifest {digest}: {error}") from None
    except ManifestError as error:
        raise ManifestCorruptError(f"manifest {digest}: {error}") from None


def read_index(store: Objects, key: str) -> str | None:
    """Return the digest an index entry holds, None when there is no entry. It only hints: verify what it names.

    Raises ManifestCorruptError for an entry that is none, UnknownFormatError for one of another version.
    """
    data = store.get(key, limit=MAX_INDEX_BYTES)
    if data is None:
        return None
    value = read_document(data, key)
    digest = value.get("digest")
    if not isinstance(digest, str) or not format_.is_digest(digest):
        raise ManifestCorruptError(f"{key}: digest is none")
    return digest


def read_document(data: bytes, key: str) -> Mapping[str, Any]:
    """Return the JSON object in a small file of the store. Raises ManifestCorruptError or UnknownFormatError."""
    try:
        value: Mapping[str, Any] = format_.load_json(data)
        format_.check_format_version(value, key)
    except format_.UnknownFormatError as error:
        raise UnknownFormatError(str(error)) from None
    except ManifestError as error:
        raise ManifestCorruptError(f"{key}: {error}") from None
    return value


def index_entry(digest: str) -> bytes:
    """Return the bytes of an index entry."""
    return format_.canonical_json({"formatVersion": format_.FORMAT_VERSION, "digest": digest})
