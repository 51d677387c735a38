"""Pods that serve, as admission, fetch, the kubelet and the server leave them, since no node is there to run any; and what is told of them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from cluster.controller.controlplane import MODEL

if TYPE_CHECKING:
    from cluster.controller.controlplane import World

WRONG = {"v": 1, "wrong": ["main/one/cpu"], "answers": {"hot/Package": 1}}
HOT = {"v": 1, "answers": {"hot/Package": 1}}


def serving(
    world: World, name: str, manifest: str, *, image: str = "registry/vision:1", served: dict[str, Any] | None = None,
    crashed: int = 0,
) -> None:  # fmt: skip
    """A pod that runs with a revision, as admission, fetch, the kubelet and the server leave it."""
    annotations = {"preheat.dev/injected": "yes", "preheat.dev/manifest": manifest}
    if served is not None:
        annotations["preheat.dev/served"] = json.dumps(served)
    document = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": world.namespace, "labels": {"preheat.dev/model": MODEL}, "annotations": annotations},
        "spec": {
            "initContainers": [{"name": "preheat-fetch", "image": "p"}],
            "containers": [{"name": "server", "image": image, "env": [{"name": "PREHEAT_DIR", "value": "/opt/preheat"}]}],
        },
    }  # fmt: skip
    world.server.apply(document)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    fetched = {"exitCode": 0, "reason": "Completed", "message": '{"v":1,"outcome":"Fetched","reason":""}', "startedAt": now,
               "finishedAt": now}  # fmt: skip
    ended = {"exitCode": crashed, "reason": "Error", "startedAt": now, "finishedAt": now}
    common = {"image": "x", "imageID": "", "ready": True, "restartCount": int(bool(crashed))}
    world.set_pod_status(
        document,
        {
            "phase": "Running",
            "initContainerStatuses": [{**common, "name": "preheat-fetch", "state": {"terminated": fetched}}],
            "containerStatuses": [
                {
                    **common, "name": "server", "state": {"running": {"startedAt": now}},
                    "lastState": {"terminated": ended} if crashed else {},
                }
            ],
        },
    )  # fmt: skip


def events(world: World, reason: str) -> list[str]:
    """Messages of the Events about the model that have this reason."""
    path = (
        f"/api/v1/namespaces/{world.namespace}/events?fieldSelector=involvedObject.kind=CompiledModel,reason={reason}"
    )
    return [event["message"] for event in world.server.request("GET", path).body["items"]]
