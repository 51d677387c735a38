"""Makes one manifest of several hardware profiles' results: a pod is given one digest, whatever node it lands on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.store.errors import InternalError, ManifestCorruptError
from preheat_runtime.manifest import Manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.containers.request import JobRequest
    from preheat_runtime.manifest import Target


def merge(*, request: JobRequest, own: Manifest | None, parts: Sequence[Manifest]) -> Manifest:
    """Return the manifest of the request's revision. Of one target in several, `own` wins, then the later part.

    Raises ManifestCorruptError for a part of another revision, InternalError when the parts disagree about the image's
    PYTHONPATH (the tag was moved between the Jobs) or there is nothing to merge.
    """
    manifests = [*parts, *([own] if own is not None else [])]
    if not manifests:
        raise InternalError("nothing to publish: the request has no targets and PREHEAT_PARTS is empty")
    for manifest in manifests:
        if manifest.identity != request.identity:
            raise ManifestCorruptError(f"a part is of another revision: {manifest.revision} of {manifest.image}")
    paths = {manifest.image_python_path for manifest in manifests}
    if len(paths) != 1:
        raise InternalError("the hardware profiles saw different PYTHONPATHs: the image's tag was moved between them")
    targets: dict[tuple[str, str, str], Target] = {}
    for manifest in manifests:
        targets.update((target.key, target) for target in manifest.targets)
    return Manifest(
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        revision=request.revision,
        image=request.image,
        image_python_path=paths.pop(),
        targets=tuple(targets[key] for key in sorted(targets)),
    )
