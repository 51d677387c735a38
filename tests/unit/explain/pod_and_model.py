"""A pod, its CompiledModel and what is in its logs, each as it is when all is well, and what is said of them."""

from __future__ import annotations

import copy
import json
from typing import Any

from preheat_operator.explain.decide import Explanation, explain
from preheat_operator.explain.gathered import Gathered

IMAGE = "registry/vision:1.4"
DIGEST = "sha256:" + "a" * 64
TORCH = "main/one/cpu: torch 2.15.0+cu132 in the pod, artifact has 2.14.1"


def pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    command: list[str] | None = None,
    fetch: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    node: str = "n1",
) -> dict[str, Any]:
    given = {"PREHEAT_DIR": "/opt/preheat"} | (env or {})
    return {
        "metadata": {
            "name": "web-1",
            "namespace": "prod",
            "labels": {"preheat.dev/model": "vision"} if labels is None else labels,
            "annotations": {"preheat.dev/injected": "yes", "preheat.dev/manifest": DIGEST}
            if annotations is None
            else annotations,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "proxy", "image": "proxy:1"},
                {
                    "name": "server", "image": IMAGE, "command": command or ["python3", "serve.py"],
                    "env": [{"name": name, "value": value} for name, value in given.items()],
                },
            ],
        },
        "status": {
            "initContainerStatuses": [{"name": "preheat-fetch", "state": fetch or {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [{"name": "server", "state": server or {"running": {}}}],
        },
    }  # fmt: skip


def model(*, ready: str = "True", reason: str = "RevisionReady", message: str = "", **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
    given: dict[str, Any] = {
        "conditions": [condition],
        "revisions": [{"name": "vision-1", "image": IMAGE, "state": "Ready", "manifest": DIGEST}],
    }
    return {"status": given | status}


def log(*records: dict[str, Any], other: str = "INFO: Started server process [1]\n") -> str:
    base = {"logger": "preheat", "event": "preheat", "when": "first-answer", "pid": 1}
    return other + "".join(json.dumps(base | record) + "\n" for record in records)


def receipt(outcome: str = "Fetched", reason: str = "", message: str = "") -> str:
    line = {"component": "preheat-fetch", "outcome": outcome, "reason": reason, "message": message}
    return json.dumps(line) + "\n"


HOT = {"outcome": "hot", "reason": "package", "reasonClass": "Package", "module": "main", "bucket": "one", "hardware": "cpu",
       "firstAnswerSeconds": 0.11, "bytes": 190000}  # fmt: skip


def cold(reason: str, **more: Any) -> dict[str, Any]:
    return {"outcome": "cold", "reason": reason, **more}


def why(document: dict[str, Any] | None = None, **gathered: Any) -> Explanation:
    given: dict[str, Any] = {"model": model(), "fetch_log": receipt(), "serving_log": ""} | gathered
    before = copy.deepcopy(document or pod())
    found = Gathered(pod=before, **given)
    said = explain(found)
    assert said == explain(found), "it is a function"
    assert said.why
    assert said.remedy
    return said


def no(words: str) -> dict[str, Any]:
    return pod(annotations={"preheat.dev/injected": f"no: {words}", "preheat.dev/manifest": "none"})


NOTHING = no(f"nothing is ready for image {IMAGE}")
COMPILING = model(
    ready="False", reason="Compiling", message="1 of 1 targets are compiling",
    revisions=[{"image": IMAGE, "state": "Compiling"}],
)  # fmt: skip
COMPILING["status"]["conditions"].append({"type": "Progressing", "status": "True", "reason": "Compiling"})
