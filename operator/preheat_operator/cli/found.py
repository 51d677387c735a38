"""Finds what `inspect` and `diff` are asked about: a manifest by digest, by a model's name, or in a file.

A word is a digest when it looks like one, a file when it holds a `/` or ends with `.json`, else a name. What comes
from a store is verified against its digest; a file is taken as it is, but read as strictly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.store.keys import is_model_name
from preheat_operator.store.manifests import read_manifest
from preheat_operator.store.pointers import Entry, read_pointer
from preheat_operator.store.reading import read_file
from preheat_runtime.manifest import (
    MAX_MANIFEST_BYTES,
    Manifest,
    ManifestError,
    Target,
    digest_of,
    is_digest,
    load_json,
)

if TYPE_CHECKING:
    from preheat_operator.cli.stores import StoreLocation

REPORT: Final = "report.json"
MAX_REPORT_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Found:
    """A manifest and where it is from; `newest` are all entries of the name it was found by."""

    digest: str
    manifest: Manifest
    store: StoreLocation | None = None
    folder: Path | None = None
    newest: tuple[Entry, ...] = field(default=())

    def report(self, target: Target) -> dict[str, Any] | None:
        """A target's report.json, from beside the manifest's file or from the store; None when it has none here.

        Raises StoreError.
        """
        if self.folder is not None:
            path = self.folder / target.folder / REPORT
            if path.is_file():
                return read_report(path)
        file = next((file for file in target.files if file.path == REPORT), None)
        if file is None or self.store is None:
            return None
        return _report(read_file(*self.store.open(), file, limit=MAX_REPORT_BYTES), f"{REPORT} of {target.folder}")


def find(what: str, location: StoreLocation | None) -> Found:
    """The manifest that `what` names. Raises CommandError or StoreError."""
    if is_digest(what):
        return _stored(what, _required(location, what))
    if is_file(what):
        return _in_file(Path(what), location)
    if not is_model_name(what):
        raise CommandError(f"{what!r} is no digest (sha256:…), no name of a CompiledModel, and no path of a file")
    store = _required(location, what)
    newest = read_pointer(*store.open(), what)
    if not newest:
        raise CommandError(
            f"nothing was compiled of {what} in {store} (tenant {store.tenant})", code=exits.MISSING
        )  # fmt: skip
    return _stored(newest[0].digest, store, newest)


def is_file(what: str) -> bool:
    """Whether the word is taken for a path."""
    return "/" in what or what.endswith(".json")


def read_report(path: Path) -> dict[str, Any]:
    """The report.json at `path`. Raises CommandError."""
    return _report(_read(path, MAX_REPORT_BYTES), str(path))


def _report(data: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{what}: is not JSON: {error}", code=exits.MISSING) from None
    if not isinstance(value, dict) or value.get("formatVersion") != 1 or "requestKey" not in value:
        raise CommandError(f"{what}: is no report.json of this version of Preheat", code=exits.MISSING)
    return value


def _in_file(path: Path, location: StoreLocation | None) -> Found:
    data = _read(path, MAX_MANIFEST_BYTES)
    try:
        return Found(digest=digest_of(data), manifest=Manifest.parse(data), store=location, folder=path.parent)
    except ManifestError as error:
        raise CommandError(f"{path}: is no manifest: {error}", code=exits.MISSING) from None


def is_report(path: Path) -> bool:
    """Whether the file is a report rather than a manifest; a file that is neither is said to be no manifest."""
    try:
        value = load_json(_read(path, MAX_REPORT_BYTES))
    except ManifestError:
        return False
    return isinstance(value, dict) and "requestKey" in value and "targets" not in value


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror or error}", code=exits.MISSING) from None
    if len(data) > limit:
        raise CommandError(f"{path}: is larger than {limit} bytes", code=exits.MISSING)
    return data


def _stored(digest: str, location: StoreLocation, newest: tuple[Entry, ...] = ()) -> Found:
    _, manifest = read_manifest(*location.open(), digest)
    return Found(digest=digest, manifest=manifest, store=location, newest=newest)


def _required(location: StoreLocation | None, what: str) -> StoreLocation:
    if location is None:
        raise CommandError(f"--store: is needed to find {what}")
    return location
