"""What a namespace must be like when all is quiet, given what its user wrote last. Pure: it reads objects, and answers complaints.

It is told in its own words, from raw objects: what decides in the controller is not asked.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cluster.controller.history import FINAL, index_lines, is_at_work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.controller.edits import Inputs

Raw = dict[str, Any]
MODEL = "vision"


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What is in a namespace: raw objects. `pods` are all of them; `indices` are none or one."""

    model: Raw | None = None
    workload: Raw | None = None
    jobs: list[Raw] = field(default_factory=list)
    pods: list[Raw] = field(default_factory=list)
    indices: list[Raw] = field(default_factory=list)

    @property
    def index(self) -> str:
        """The index's text, empty for none."""
        return "".join(str(raw.get("models", "")) for raw in self.indices)


def complaints(inputs: Inputs, seen: Seen) -> list[str]:
    """What is not as it must be, in words; empty when all is well."""
    return list(_model(inputs, seen) if inputs.model else _no_model(seen))


def _no_model(seen: Seen) -> Iterator[str]:
    if seen.model is not None:
        yield "the model is still there"
    if seen.jobs or any(_of_a_job(pod) for pod in seen.pods):
        yield "Jobs or compile pods of a model that is gone"
    if seen.index:
        yield f"an index without a model: {seen.index!r}"
    yield from _gates(seen)


def _model(inputs: Inputs, seen: Seen) -> Iterator[str]:
    if seen.model is None:
        yield "the model is not there"
        return
    status = seen.model.get("status") or {}
    if status.get("observedGeneration") != seen.model["metadata"]["generation"]:
        yield "what was written last was not observed"
    at_work = [job["metadata"]["name"] for job in seen.jobs if is_at_work(job)]
    if at_work:
        yield f"Jobs at work: {at_work}"
    ready = _condition(seen.model, "Ready")
    if not inputs.workload:
        if ready != ("False", "WorkloadNotFound"):
            yield f"there is no workload, and Ready is {ready}"
        return
    yield from _newest(inputs, status, ready, seen)
    given = _given(seen.model)
    told = {image: manifest for image, manifest in index_lines(seen.index).items() if manifest != "none"}
    if told != given:
        yield f"the index says {told}, status {given}"
    for revision in status.get("revisions", ()):
        if revision["state"] == "Ready" and _is_bad(revision["manifest"], seen.pods):
            yield f"{revision['name']} is Ready, and its pods are wrong or crash"
    for pod in seen.pods:
        if _of_a_job(pod) and pod["status"].get("phase") in ("Succeeded", "Failed") and _held(pod):
            yield f"the result of {pod['metadata']['name']} is held"
    yield from _gates(seen)


def _newest(inputs: Inputs, status: Raw, ready: tuple[str, str], seen: Seen) -> Iterator[str]:
    if not status.get("revisions"):
        yield "there is no revision"
        return
    newest = status["revisions"][0]
    state = newest["state"]
    if newest["image"] != inputs.image_name:
        yield f"the newest revision is of {newest['image']}, the workload has {inputs.image_name}"
    if (newest.get("weights") or "") != inputs.weights:
        yield f"the newest revision is of weights {newest.get('weights')}, and the spec names {inputs.weights!r}"
    if state not in (*FINAL, "Failed") and not inputs.suspend:
        yield f"{newest['name']} is {state}, and nobody works on it"
    token = seen.model["metadata"].get("annotations", {}).get("preheat.dev/rebuild")  # type: ignore[index]
    if token is not None and status.get("rebuild") != token:
        yield f"rebuild {token} was not heard"
    if state in (*FINAL, "Failed"):
        targets = Counter((t["bucket"], t["hardware"]) for t in status.get("targets", ()))
        expected = Counter((bucket, hardware) for bucket in inputs.buckets for hardware in inputs.hardware)
        # Status has the verdicts of one revision: of one that is wanted again they are in its manifest alone.
        if targets != expected and (targets or state == "Failed"):
            yield f"targets are {sorted(targets)}"
    allowed = _ready(newest, _pinned(seen.model), suspend=inputs.suspend)
    if ready not in allowed:
        yield f"{newest['name']} is {state}, and Ready is {ready}, not {allowed}"
    restart = newest.get("restart") or {}
    if restart.get("state") == "Pending":
        yield "a restart is due, and was not asked"


def _ready(newest: Raw, pinned: Raw | None, *, suspend: bool) -> list[tuple[str, str]]:
    """What the condition may be."""
    if pinned is not None and pinned["image"] == newest["image"] and pinned["name"] != newest["name"]:
        return [("True", "Pinned")]
    if newest["state"] == "TakenBack":
        return [("False", "RevisionTakenBack")]
    if newest["state"] == "Failed":
        return [("False", reason) for reason in ("AllTargetsFailed", "ResultLost", "Internal", "StoreUnreachable")]
    if newest["state"] != "Ready":
        return [("False", "Suspended")] if suspend else []
    kept, rejected = (sum(h.get(word, 0) for h in newest["hardware"]) for word in ("kept", "rejected"))
    if kept:
        return [("True", "RevisionReady")]
    return [("True", "NothingKept")] if rejected else [("False", "AllTargetsFailed")]


def _pinned(model: Raw | None) -> Raw | None:
    name = ((model or {})["metadata"].get("annotations") or {}).get("preheat.dev/pin")
    revisions = ((model or {}).get("status") or {}).get("revisions", ())
    return next((r for r in revisions if r["name"] == name and r["state"] == "Ready"), None)


def _given(model: Raw) -> dict[str, str]:
    """Image to the manifest of its newest ready revision, or of the pinned one."""
    result: dict[str, str] = {}
    for revision in (model.get("status") or {}).get("revisions", ()):
        if revision["state"] == "Ready":
            result.setdefault(revision["image"], revision["manifest"])
    pinned = _pinned(model)
    if pinned is not None:
        result[pinned["image"]] = pinned["manifest"]
    return result


def _is_bad(manifest: str, pods: list[Raw]) -> bool:
    """Whether at least two pods, and a fifth, of those that run with it are wrong or crashed."""
    mine = [p for p in pods if _annotations(p).get("preheat.dev/manifest") == manifest
            and _annotations(p).get("preheat.dev/injected") == "yes" and p["status"].get("phase") == "Running"]  # fmt: skip
    blamed = [p for p in mine if json.loads(_annotations(p).get("preheat.dev/served", "{}")).get("wrong")
              or any(s.get("lastState") for s in p["status"].get("containerStatuses", ()))]  # fmt: skip
    return len(blamed) >= 2 and 5 * len(blamed) >= len(mine)


def _gates(seen: Seen) -> Iterator[str]:
    for pod in seen.pods:
        if "preheat.dev/artifact" in [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]:
            yield f"pod {pod['metadata']['name']} still waits"


def _of_a_job(pod: Raw) -> bool:
    return "preheat.dev/compiledmodel" in pod["metadata"].get("labels", {})


def _held(pod: Raw) -> bool:
    return "preheat.dev/result" in pod["metadata"].get("finalizers", ())


def _condition(raw: Raw, kind: str) -> tuple[str, str]:
    conditions = (raw.get("status") or {}).get("conditions", ())
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == kind), ("", ""))


def _annotations(pod: Raw) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}
