"""Brings the revision a pod was given into a hidden folder: the part of `fetch` that talks to the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.containers.fit import Machine, select
from preheat_operator.store import fetching
from preheat_operator.store.client import make_client
from preheat_operator.store.config import StoreConfig
from preheat_operator.store.errors import StoreError
from preheat_operator.store.keys import Keys
from preheat_operator.store.manifests import read_manifest
from preheat_operator.store.objects import ObjectStore
from preheat_runtime.manifest import Manifest, ManifestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from preheat_operator.store.interface import Objects

MANIFEST = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Brought:
    """What came; `reused` when a former attempt had left all of it and every byte was still right."""

    bytes: int
    targets: int
    of_targets: int
    reused: bool


def opened(env: Mapping[str, str]) -> tuple[Objects, Keys]:
    """Return the store that a pod's environment describes. Raises StoreError."""
    config = StoreConfig.from_env(env)
    # One connection more than workers, so that a retry never waits for the pool.
    client = make_client(config, connections=fetching.WORKERS + 1)
    return ObjectStore(client, bucket=config.bucket), Keys(config.tenant)


def bring(
    *,
    digest: str,
    open_store: Callable[[], tuple[Objects, Keys]],
    into: Path,
    present: Path,
    machine: Machine,
    deadline: fetching.Deadline,
) -> Brought:
    """Write the revision of `digest` into the folder `into`, unless the folder `present` is that revision already.

    The store is opened only when it is needed. Raises StoreError; then `into` is good for nothing.
    """
    reused = reusable(present, digest, machine, deadline)
    if reused is not None:
        return reused
    into.mkdir(mode=0o755)
    into.chmod(0o755)
    store, keys = open_store()
    data, manifest = read_manifest(store, keys, digest)
    deadline.check()
    targets = select(manifest.targets, machine)
    size = fetching.fetch_targets(store, keys, targets, into, deadline=deadline)
    path = into / MANIFEST
    path.write_bytes(data)
    path.chmod(0o644)
    return Brought(bytes=size + len(data), targets=len(targets), of_targets=len(manifest.targets), reused=False)


def reusable(present: Path, digest: str, machine: Machine, deadline: fetching.Deadline) -> Brought | None:
    """Check a revision that lies there from before (a restarted pod sandbox); None when it must be brought anew."""
    try:
        data = (present / MANIFEST).read_bytes()
        manifest = Manifest.parse(data, digest=digest)
        targets = select(manifest.targets, machine)
        size = len(data)
        for target in targets:
            for file in target.files:
                fetching.verify_file(present / target.folder / file.path, file, deadline)
                size += file.size
    except FileNotFoundError:
        return None
    except (OSError, ManifestError, StoreError):
        return None
    return Brought(bytes=size, targets=len(targets), of_targets=len(manifest.targets), reused=True)
