"""Letting a pod that waited go on: its annotations and our gate in one patch.

Used by the controller, by the server for pods whose time is over, and by the uninstall hook. Several may try at once:
a patch changes only the pod and the gate that were seen, so the second one finds nothing to do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import Api, ApiError, Raw

if TYPE_CHECKING:
    from preheat_operator.plan.gates import Opening

_LOG = logging.getLogger(__name__)
_ATTEMPTS: Final = 5
#: Pods that can have a gate, and few others.
UNSCHEDULED: Final = "spec.nodeName=,status.phase=Pending"


async def let_go(api: Api, opening: Opening) -> bool:
    """Give a pod its annotations and take our gate off, no other's; answers whether there was something to do."""
    pod = opening.pod
    path = resources.pods(pod.namespace, pod.name)
    for _ in range(_ATTEMPTS):
        raw = await api.get(path)
        operations = None if raw is None else _operations(raw, opening)
        if operations is None:
            return False
        try:
            await api.json_patch(path, operations)
        except ApiError as error:
            if error.status == 404:
                return False
            # Somebody else changed the pod between our two requests: look again.
            if error.status not in (409, 422):
                raise
            continue
        _LOG.info("pod %s/%s goes on: %s", pod.namespace, pod.name, opening.injected)
        return True
    raise ApiError(status=409, reason="Conflict", message=f"pod {pod.namespace}/{pod.name} keeps changing")


def _operations(raw: Raw, opening: Opening) -> list[Raw] | None:
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    gates = [gate.get("name") for gate in spec.get("schedulingGates") or []]
    if metadata.get("uid") != opening.pod.uid or (opening.pod.gated and names.GATE not in gates):
        return None
    operations: list[Raw] = [{"op": "test", "path": "/metadata/uid", "value": opening.pod.uid}]
    if metadata.get("annotations") is None:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    values = {names.ANNOTATION_MANIFEST: opening.manifest, names.ANNOTATION_INJECTED: opening.injected}
    for name, value in values.items():
        escaped = name.replace("~", "~0").replace("/", "~1")
        operations.append({"op": "add", "path": f"/metadata/annotations/{escaped}", "value": value})
    if names.GATE in gates:
        at = f"/spec/schedulingGates/{gates.index(names.GATE)}"
        operations.append({"op": "test", "path": f"{at}/name", "value": names.GATE})
        operations.append({"op": "remove", "path": at})
    return operations
