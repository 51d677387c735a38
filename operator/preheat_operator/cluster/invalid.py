"""A stored CompiledModel that this release cannot read must say so itself: nothing else about it can be decided."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason, ConditionType
from preheat_operator.cluster import resources

if TYPE_CHECKING:
    from datetime import datetime

    from pydantic import ValidationError

    from preheat_operator.cluster.client import Api, Raw

_LOG = logging.getLogger(__name__)


async def report_invalid(api: Api, raw: Raw, error: ValidationError, now: datetime) -> None:
    """Set the conditions to InvalidSpec, naming the first field that cannot be read; the rest of status stays.

    A model that changed since it was read is a conflict (409), as with any status.
    """
    metadata = raw["metadata"]
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    message = f"{field}: {first['msg']}; apply the CompiledModel again as docs/conditions.md says"
    _LOG.warning("CompiledModel %s/%s cannot be read: %s", metadata["namespace"], metadata["name"], message)
    existing = (raw.get("status") or {}).get("conditions") or []
    before = {c.get("type"): c for c in existing if isinstance(c, dict)}
    conditions = []
    for kind, status in ((ConditionType.READY, "False"), (ConditionType.PROGRESSING, "False"),
                         (ConditionType.DEGRADED, "True")):  # fmt: skip
        former = before.get(kind.value) or {}
        same = former.get("status") == status and former.get("lastTransitionTime")
        conditions.append(
            {
                "type": kind.value,
                "status": status,
                "reason": ConditionReason.INVALID_SPEC.value,
                "message": message[:1024],
                "observedGeneration": metadata.get("generation", 0),
                "lastTransitionTime": former["lastTransitionTime"] if same else now.isoformat(),
            }
        )
    if conditions == [before.get(c["type"]) for c in conditions]:
        return
    body: Raw = {
        "apiVersion": names.API_VERSION,
        "kind": names.COMPILED_MODEL,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "resourceVersion": metadata.get("resourceVersion"),
        },
        # A merge patch, not an apply: applying conditions alone would take the rest of the status away.
        "status": {"conditions": conditions},
    }
    path = resources.compiled_models(metadata["namespace"], metadata["name"], "status")
    await api.merge_patch(path, body)
