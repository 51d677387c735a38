"""Whether an event about a labelled pod is worth a look at its namespace, or its model: most are not, and there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.plan.breaker import STUCK_REASONS
from preheat_operator.plan.objects import read_pod
from preheat_operator.plan.watched import has_news

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX_PODS: Final = 20_000


def needs_attention(raw: Mapping[str, Any]) -> bool:
    """Whether the pod lacks the word on its injection, or what was added to it keeps it from starting."""
    pod = read_pod(dict(raw))
    if pod.deleting or pod.finished:
        return False
    fetch = pod.containers.get(names.CONTAINER_FETCH)
    return names.ANNOTATION_INJECTED not in pod.annotations or (
        fetch is not None and fetch.waiting_reason in STUCK_REASONS
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
