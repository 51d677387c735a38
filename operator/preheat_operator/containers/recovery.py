"""Finds what a former Job published when its message to the controller was lost.

The index in the store says which manifest that was, and it can be written by whoever may write to the tenant's prefix.
So it only hints: the manifest must have the digest, be of this very revision, answer every target of the request, and
be whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.store.errors import ManifestCorruptError, ManifestMissingError
from preheat_operator.store.manifests import read_index, read_manifest

if TYPE_CHECKING:
    from preheat_operator.containers.request import JobRequest
    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys
    from preheat_runtime.manifest import Manifest


def recover(store: Objects, keys: Keys, *, job_uid: str, request: JobRequest) -> Manifest | None:
    """Return the manifest a Job published for this request, None when the index knows of none.

    Raises StoreError when there is one that cannot be used, naming why.
    """
    digest = read_index(store, keys.job(job_uid))
    if digest is None:
        return None
    _, manifest = read_manifest(store, keys, digest)
    if manifest.identity != request.identity:
        raise ManifestCorruptError(f"the manifest of Job {job_uid} is of another revision: {manifest.revision}")
    answered = {target.key for target in manifest.targets}
    missing = [pair for pair in request.targets if (*pair, request.hardware) not in answered]
    if missing:
        raise ManifestMissingError(f"the manifest of Job {job_uid} has no target {'/'.join(missing[0])}")
    return manifest
