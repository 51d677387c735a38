"""Which digests of an image the pods that serve a model really run.

A tag can be moved, and then two pods of one workload run different code under one name. Only the kubelet knows, and
says so in a pod's status once its container has started.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from preheat_operator.api import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.plan.objects import PodView

_PULLED = re.compile(r"@(sha256:[0-9a-f]{64})$")


def digest_of_image(text: str) -> str | None:
    """The digest in an image's name or in a container's imageID, None where there is none.

    The imageID of an image that was never pulled (loaded into the node by hand) is no registry's digest, and says nothing.
    """
    found = _PULLED.search(text)
    return found.group(1) if found else None


def pinned(image: str, digest: str) -> str:
    """The image by its digest, in the same repository."""
    name, _, _ = image.partition("@")
    head, slash, last = name.rpartition("/")
    return f"{head}{slash}{last.partition(':')[0]}@{digest}"


def running_digests(pods: Sequence[PodView], *, image: str, container: str | None) -> tuple[str, ...]:
    """Digests that running pods of this image have, that of the newest pod first. `container`: the served one's name."""
    found: dict[str, None] = {}
    for pod in sorted(pods, key=lambda p: (p.created_at, p.name), reverse=True):
        served = pod.annotations.get(names.ANNOTATION_CONTAINER) or container or pod.first_container
        seen = digest_of_image(pod.image_ids.get(served, ""))
        if pod.phase == "Running" and not pod.deleting and pod.images.get(served) == image and seen is not None:
            found.setdefault(seen)
    return tuple(found)
