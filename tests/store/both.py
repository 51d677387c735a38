"""A store in a folder or on S3, for tests that must hold of both."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.kit import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_operator.cli.stores import StoreLocation
    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys

AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


@dataclass
class Either:
    """A store as `--store` opens it, and a way around it to its objects."""

    location: StoreLocation
    client: Any

    @property
    def opened(self) -> tuple[Objects, Keys]:
        return self.location.open(writing=True)

    def path(self, key: str) -> Path:
        assert self.location.folder is not None
        return self.location.folder / key

    def write(self, key: str, data: bytes) -> None:
        if self.client is not None:
            self.client.put_object(Bucket=BUCKET, Key=key, Body=data)
        else:
            self.path(key).write_bytes(data)

    def delete(self, key: str) -> None:
        if self.client is not None:
            self.client.delete_object(Bucket=BUCKET, Key=key)
        else:
            self.path(key).unlink()

    def keys_below(self, prefix: str) -> list[str]:
        if self.client is not None:
            return sorted(
                o["Key"] for o in self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
            )
        root = self.path("")
        return sorted(
            key
            for path in root.rglob("*")
            if path.is_file() and (key := str(path.relative_to(root))).startswith(prefix)
        )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put(store: Objects, key: str, data: bytes, *, only_if_absent: bool = False) -> bool:
    return store.put(key, data, sha256=sha256(data), only_if_absent=only_if_absent)
