"""What a person would look at who asks why nothing goes on in a namespace: its pods, Jobs and CompiledModels, in short.

A wait that ends without what it waited for says this; by the time its error is read, all of it may be gone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kit import Kube

_OURS = "preheat.dev/"
#: An index or a report can be long, and is not what tells.
_LONGEST = 600


def of(kube: Kube) -> str:
    """A line for each object; what cannot be read says why instead."""
    lines: list[str] = []
    for kind, words in (("pods", _pod), ("jobs", _job), ("compiledmodels", _model)):
        try:
            lines += [f"{kind}/{each['metadata']['name']}: {json.dumps(words(each))}" for each in kube.list(kind)]
        except (RuntimeError, KeyError) as error:
            lines.append(f"{kind}: {type(error).__name__}: {error}")
    return "\n".join(lines)


def _pod(pod: dict[str, Any]) -> dict[str, Any]:
    status, spec = pod.get("status") or {}, pod["spec"]
    states = {
        each["name"]: each.get("state")
        for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    }
    found = {
        "phase": status.get("phase"),
        "reason": status.get("reason"),
        "message": status.get("message"),
        "going since": pod["metadata"].get("deletionTimestamp"),
        "node": spec.get("nodeName"),
        "gates": [gate["name"] for gate in spec.get("schedulingGates") or ()],
        "image": spec["containers"][0]["image"],
        "not true": {c["type"]: c.get("message") for c in status.get("conditions") or () if c["status"] != "True"},
        "containers": states,
        "says": _said(pod),
    }
    return {key: value for key, value in found.items() if value}


def _job(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job.get("status") or {})


def _model(model: dict[str, Any]) -> dict[str, Any]:
    status = model.get("status") or {}
    conditions = {c["type"]: f"{c['status']} {c['reason']}: {c.get('message')}" for c in status.get("conditions") or ()}
    revisions = [
        {key: r.get(key) for key in ("name", "image", "state", "manifest", "cause")}
        for r in status.get("revisions") or ()
    ]
    return {"generation": model["metadata"].get("generation"), **conditions, "revisions": revisions}


def _said(thing: dict[str, Any]) -> dict[str, str]:
    annotations = thing["metadata"].get("annotations") or {}
    return {key: value[:_LONGEST] for key, value in annotations.items() if key.startswith(_OURS)}
