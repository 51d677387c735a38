"""Whether an event about a labelled pod is worth a look at its namespace, or its model: most are not, and there are many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_operator.api import names
from preheat_operator.plan.breaker import STUCK_REASONS
from preheat_operator.plan.objects import read_pod
from preheat_operator.plan.watched import has_news

if TYPE_CHECKING:
    from collections.abc import Mapping


def needs_attention(raw: Mapping[str, Any]) -> bool:
    """Whether the pod lacks the word on its injection, or what was added to it keeps it from starting."""
    pod = read_pod(dict(raw))
    if pod.deleting or pod.finished:
        return False
    fetch = pod.containers.get(names.CONTAINER_FETCH)
    return names.ANNOTATION_INJECTED not in pod.annotations or (
        fetch is not None and fetch.waiting_reason in STUCK_REASONS
    )


def tells_of_its_model(raw: Mapping[str, Any]) -> str:
    """The model whose status may change by what this pod says or came to; empty for none."""
    pod = read_pod(dict(raw))
    return pod.labels.get(names.LABEL_MODEL, "") if has_news(pod) else ""
