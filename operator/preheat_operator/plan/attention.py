"""Whether an event about a labelled pod is worth a look at its namespace, or its model: most are not, and there are many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.plan.breaker import STUCK_REASONS
from preheat_operator.plan.objects import read_pod
from preheat_operator.plan.watched import has_news

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_SEEN: Final = 256
# By these labels controllers tell pods of one template from those of another.
_TEMPLATES: Final = ("pod-template-hash", "rollouts-pod-template-hash", "controller-revision-hash")


@dataclass
class SeenPods:
    """What of a model's pods was seen before: only another image, digest or controller is worth a look at the model."""

    _seen: dict[tuple[str, str], set[tuple[str, ...]]] = field(default_factory=dict)

    def news(self, namespace: str, raw: Mapping[str, Any]) -> str | None:
        """Name of the model whose pod has something that was not seen before; None when the event tells nothing new."""
        pod = read_pod(dict(raw))
        model = pod.labels.get(names.LABEL_MODEL)
        if not model or pod.finished or pod.deleting:
            return None
        here: set[tuple[str, ...]] = {(pod.owner_uid, *(pod.labels.get(label, "") for label in _TEMPLATES))}
        if pod.phase == "Running":
            here |= {(pod.images.get(container, ""), image_id) for container, image_id in pod.image_ids.items()}
        seen = self._seen.setdefault((namespace, model), set())
        if here <= seen:
            return None
        # Tags that move for years must not fill the memory.
        if len(seen) > _MAX_SEEN:
            seen.clear()
        seen |= here
        return model

    def forget(self, namespace: str, model: str) -> None:
        """The model is gone."""
        self._seen.pop((namespace, model), None)


_MAX_PODS: Final = 20_000


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


class Told:
    """What each pod said last: an event that tells nothing new is not worth a look at its model. A hint, lost with the process."""

    def __init__(self, *, most: int = _MAX_PODS) -> None:
        self._most = most
        self._said: dict[str, tuple[object, ...]] = {}

    def news(self, raw: Mapping[str, Any], *, gone: bool = False) -> str:
        """The model whose status may change by what this pod says or came to; empty for none. `gone`: it was deleted."""
        pod = read_pod(dict(raw))
        before = self._said.pop(pod.uid, None)
        if not has_news(pod):
            return ""
        now = (
            pod.annotations.get(names.ANNOTATION_MANIFEST),
            pod.annotations.get(names.ANNOTATION_SERVED),
            pod.deleting or pod.finished,
            pod.containers[pod.serves].ends,
        )
        if not gone:
            self._said[pod.uid] = now
            while len(self._said) > self._most:
                del self._said[next(iter(self._said))]
        return pod.labels.get(names.LABEL_MODEL, "") if gone or now != before else ""
