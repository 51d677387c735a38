"""The pointer from a CompiledModel's name to its newest manifests: how a revision is found where no cluster tells.

Pods are told their digest through the Kubernetes API and never look here: whoever can write to the store can change a
pointer, and so decides what `preheat run NAME` loads. It is written last, in one piece, and only over the version it
was made from, so that of two publishers none undoes the other's entry.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.store.errors import ManifestCorruptError, StoreUnreachableError
from preheat_operator.store.manifests import read_document
from preheat_runtime import manifest as format_

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

MAX_ENTRIES: Final = 64
"""Pairs of image and hardware profile that are remembered; the oldest go first. Their manifests stay."""
MAX_POINTER_BYTES: Final = 256 * 1024
ATTEMPTS: Final = 20
"""At taking the place of a version that others keep replacing."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The newest manifest for one image and hardware profile."""

    image: str
    hardware: str
    revision: str
    digest: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this entry."""
        return {"image": self.image, "hardware": self.hardware, "revision": self.revision, "digest": self.digest}


def read_pointer(store: Objects, keys: Keys, name: str) -> tuple[Entry, ...]:
    """Return the entries of a name, newest first; none when there is no pointer.

    Raises ManifestCorruptError for a pointer that is none, UnknownFormatError for one of another version.
    """
    key = keys.name(name)
    data = store.get(key, limit=MAX_POINTER_BYTES)
    return () if data is None else _parse(data, key)


def update_pointer(
    store: Objects, keys: Keys, name: str, change: Callable[[Sequence[Entry]], Sequence[Entry]]
) -> tuple[Entry, ...]:
    """Replace the entries of a name by what `change` makes of them; it is called again when others were faster.

    `change` may publish what its entries name: they become visible after it returned. Raises what it raises, and
    StoreError; a pointer that cannot be read is not written over.
    """
    key = keys.name(name)
    for _ in range(ATTEMPTS):
        found = store.get_versioned(key, limit=MAX_POINTER_BYTES)
        entries = tuple(change(_parse(found.data, key) if found is not None else ()))[:MAX_ENTRIES]
        data = _dump(entries)
        sha256 = hashlib.sha256(data).hexdigest()
        if found is None:
            done = store.put(key, data, sha256=sha256, only_if_absent=True)
        else:
            done = found.data == data or store.replace(key, data, sha256=sha256, version=found.version)
        if done:
            return entries
    raise StoreUnreachableError(f"put {key}: others kept replacing it")


def with_newest(entries: Sequence[Entry], newest: Sequence[Entry]) -> tuple[Entry, ...]:
    """`newest` in front, in place of former entries of the same image and hardware profile."""
    replaced = {(entry.image, entry.hardware) for entry in newest}
    return (*newest, *(entry for entry in entries if (entry.image, entry.hardware) not in replaced))


def _dump(entries: Sequence[Entry]) -> bytes:
    return format_.canonical_json(
        {"formatVersion": format_.FORMAT_VERSION, "newest": [entry.to_json() for entry in entries]}
    )


def _parse(data: bytes, key: str) -> tuple[Entry, ...]:
    items = read_document(data, key).get("newest")
    if not isinstance(items, list):
        raise ManifestCorruptError(f"{key}: newest must be a list")
    return tuple(_entry(item, f"{key}: newest[{i}]") for i, item in enumerate(items))


def _entry(item: object, at: str) -> Entry:
    fields = ("image", "hardware", "revision", "digest")
    if not isinstance(item, dict) or set(item) != set(fields) or not all(isinstance(item[f], str) for f in fields):
        raise ManifestCorruptError(f"{at}: must be an object of the texts {', '.join(fields)}")
    if not format_.is_digest(item["digest"]):
        raise ManifestCorruptError(f"{at}.digest: is none")
    return Entry(**item)
