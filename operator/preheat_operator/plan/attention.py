"""Whether an event about a labelled pod is worth a look at its namespace: most of them are not, and there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_operator.api import names
from preheat_operator.plan.breaker import STUCK_REASONS
from preheat_operator.plan.objects import read_pod

if TYPE_CHECKING:
    from collections.abc import Mapping


def needs_attention(raw: Mapping[str, Any]) -> bool:
    """Whether the pod lacks the word on its injection, waits for us, or cannot start for what was added to it."""
    pod = read_pod(dict(raw))
    if pod.deleting or pod.finished:
        return False
    fetch = pod.containers.get(names.CONTAINER_FETCH)
    return (
        names.ANNOTATION_INJECTED not in pod.annotations
        or pod.gated
        or pod.annotations.get(names.ANNOTATION_MANIFEST) == names.MANIFEST_PENDING
        or (fetch is not None and fetch.waiting_reason in STUCK_REASONS)
    )
