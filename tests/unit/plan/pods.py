"""Pods that run with a revision, as the API server shows them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from preheat_operator.api.served import Served
from preheat_operator.plan.objects import PodView, read_pod
from unit.plan.simulation import START, digest

FETCHED = '{"v": 1, "outcome": "Fetched", "reason": ""}'
MANIFEST = digest("a")
HOUR = int(START.timestamp() // 3600)
WRONG = Served(wrong=("main/one/cpu",), answers={"hot/Package": 1})
HOT = Served(answers={"hot/Package": 1})


def ended(code: int, reason: str = "Error", *, before_seconds: float = 60) -> dict[str, Any]:
    at = (START - timedelta(seconds=before_seconds)).isoformat()
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at}}


def raw_pod(
    name: str = "a", *, served: Served | str | None = None, manifest: str = MANIFEST, state: dict[str, Any] | None = None,
    last: dict[str, Any] | None = None, fetch: str = FETCHED, fetch_code: int = 0, phase: str = "Running", node: str = "n1",
    injected: str = "yes", **metadata: Any,
) -> dict[str, Any]:  # fmt: skip
    """A labelled pod whose container runs (or is in `state`, and was in `last`)."""
    text = served.render() if isinstance(served, Served) else served
    annotations = {"preheat.dev/manifest": manifest, "preheat.dev/injected": injected}
    server = {
        "name": "server",
        "state": {"running": {"startedAt": "x"}} if state is None else state,
        "lastState": last or {},
    }
    fetched = {"terminated": {"exitCode": fetch_code, "reason": "Completed", "message": fetch, "startedAt": "x"}}
    return {
        "metadata": {
            "name": name, "namespace": "prod", "uid": f"uid-{name}", "labels": {"preheat.dev/model": "vision"},
            "annotations": annotations if text is None else annotations | {"preheat.dev/served": text}, **metadata,
        },
        "spec": {
            "nodeName": node,
            "initContainers": [{"name": "preheat-fetch", "image": "p"}],
            "containers": [{"name": "sidecar", "image": "s"}, {"name": "server", "image": "registry/vision:1",
                            "env": [{"name": "PREHEAT_DIR", "value": "/opt/preheat"}]}],
        },
        "status": {
            "phase": phase,
            "initContainerStatuses": [{"name": "preheat-fetch", "state": fetched}],
            "containerStatuses": [{"name": "sidecar", "state": {"running": {}}, "lastState": ended(139)}, server],
        },
    }  # fmt: skip


def pod(name: str = "a", **more: Any) -> PodView:
    return read_pod(json.loads(json.dumps(raw_pod(name, **more))))
