"""Plays a sequence of steps in one namespace: the user who edits, the nodes that run pods, admission, and accidents.

What a step needs may not be there, since what the controller does meanwhile is its own affair: then the step is left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cluster.controller.controlplane import MODEL, World, failed, published, succeeded
from cluster.controller.edits import Inputs, Step
from cluster.controller.history import History, Published, index_lines, is_at_work
from cluster.controller.pods import HOT, WRONG, serving
from cluster.controller.rest import complaints
from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.cli import asked
from preheat_operator.cli.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.controller.watching import Mirror

Raw = dict[str, Any]
#: How long a step waits for a compile pod: the controller may just be starting. It bounds a test's time, and judges nothing.
PATIENCE_SECONDS: Final = 8.0
_LINES: Final = {
    "kept": "Kept|Faster|1.75|0.12|1900000",
    "rejected": "Rejected|SpeedupBelowMinimum|0.9|0.1|5",
    "failed": "Failed|CompileFailed|||",
}
_NO_TORCH: Final = '{"v":1,"reason":"TorchMissing","message":"no module named torch"}'
_CRASH: Final = 139


@dataclass
class Player:
    """One namespace. `inputs` is what its user wrote last."""

    world: World
    mirror: Mirror
    history: History
    inputs: Inputs = field(default_factory=lambda: Inputs(model=False, workload=False))
    _ended: set[str] = field(default_factory=set)
    _count: int = 0

    def play(self, steps: Sequence[Step]) -> None:
        """All steps, one after the other, and an edit that changes nothing: when it was observed, so was all before it."""
        self._edit(Inputs())
        for step in steps:
            if step.edit is not None:
                self._edit(step.edit)
            else:
                getattr(self, f"_{step.name.replace(' ', '_')}")(*[step.detail] * bool(step.detail))
            time.sleep(step.pause)
        if self.inputs.model:
            self.world.model(**_spec(self.inputs), revisionHistoryLimit=4)

    def complaints(self) -> list[str]:
        """What is not yet as it must be in the end."""
        return complaints(self.inputs, self.mirror.seen(self.world.namespace))

    def end_pods(self, how: str = "kept") -> int:
        """Let every compile pod that is there end; how many there were."""
        pods = self._compile_pods()
        for pod in pods:
            self._end(pod, how)
        return len(pods)

    # What a user does.

    def _edit(self, after: Inputs) -> None:
        before, self.inputs = self.inputs, after
        if _workload(after) != _workload(before):
            self._write_workload(after)
        if after.model and (not before.model or _spec(after) != _spec(before)):
            self.world.model(**_spec(after), revisionHistoryLimit=3)
        elif before.model and not after.model:
            self.world.delete_model()

    def _write_workload(self, inputs: Inputs) -> None:
        document = _workload(inputs)
        path = f"/apis/apps/v1/namespaces/{self.world.namespace}/deployments"
        if document is None:
            assert self.world.server.request("DELETE", f"{path}/{MODEL}").status in (200, 404)
            return
        document["metadata"]["namespace"] = self.world.namespace
        self.world.server.apply(document)

    def _asked(self, what: str) -> None:
        """As the command line does it: read, decide, annotate."""
        path = f"/apis/preheat.dev/v1alpha1/namespaces/{self.world.namespace}/compiledmodels/{MODEL}"
        answer = self.world.server.request("GET", path)
        if not answer.ok:
            return
        model = CompiledModel.model_validate(answer.body)
        ready = [r.name for r in model.status.revisions if r.state == "Ready"]
        try:
            annotations, _ = getattr(asked, what)(model, ready[-1] if what == "pin" and ready else None)
        except CommandError:
            return
        self.world.server.request("PATCH", path, {"metadata": {"annotations": annotations}})

    def _delete(self, what: str) -> None:
        """Somebody deletes what is Preheat's."""
        if what == "job":
            jobs = [job for job in self.mirror.all(self.world.namespace, "jobs") if is_at_work(job)]
            paths = [f"/apis/batch/v1/namespaces/{self.world.namespace}/jobs/{j['metadata']['name']}" for j in jobs]
        else:
            paths = [f"{self._pods}/{pod['metadata']['name']}" for pod in self._compile_pods()]
        for path in paths[-1:]:
            body = {"propagationPolicy": "Background"}
            self.world.server.request("DELETE", path, body, content_type="application/json")

    # What nodes do.

    def _compiled(self) -> None:
        """Every compile pod does well, until nothing is left to compile."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._worth_waiting() and (left := deadline - time.monotonic()) > 0:
            self.mirror.wait(lambda: bool(self._compile_pods()) or not self.complaints(), seconds=left)
            if not self.end_pods() and not self.complaints():
                return

    def _job_ends(self, how: str) -> None:
        if self._worth_waiting():
            self.mirror.wait(lambda: bool(self._compile_pods()) or not self.complaints(), seconds=PATIENCE_SECONDS)
        for pod in self._compile_pods()[:1]:
            self._end(pod, how)

    def _worth_waiting(self) -> bool:
        return self.inputs.model and self.inputs.workload and not self.inputs.suspend

    def _compile_pods(self) -> list[Raw]:
        """Pods of Jobs at work that have not ended, as the nodes see them; the oldest first."""
        at_work = {job["metadata"]["uid"] for job in self.mirror.all(self.world.namespace, "jobs") if is_at_work(job)}
        pods = [
            pod for pod in self.mirror.all(self.world.namespace, "pods")
            if pod["metadata"]["uid"] not in self._ended and "deletionTimestamp" not in pod["metadata"]
            and pod["status"].get("phase") == "Pending"
            and any(owner["uid"] in at_work for owner in pod["metadata"].get("ownerReferences", ()))
        ]  # fmt: skip
        return sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def _end(self, pod: Raw, how: str) -> None:
        self._ended.add(pod["metadata"]["uid"])
        answer = self.world.server.request("PATCH", f"{self._pods}/{pod['metadata']['name']}/status",
                                           {"status": self._status(pod, how)})  # fmt: skip
        assert answer.ok or answer.status == 404, answer.message

    def _status(self, pod: Raw, how: str) -> Raw:
        env = {entry["name"]: entry.get("value", "") for entry in pod["spec"]["containers"][0]["env"]}
        request = json.loads(env["PREHEAT_REQUEST"])
        targets = [f"{t['module']}|{t['bucket']}" for t in request["targets"]]
        if how == "message lost":
            return succeeded(pod, "what is this")
        # A Job that merges has nothing to compile.
        if targets and how == "no torch":
            return failed(pod, "compile", 65, _NO_TORCH)
        if targets and how == "out of memory":
            running = json.dumps({"v": 1, "running": targets[0].replace("|", "/"), "done": []})
            return failed(pod, "compile", 137, running, reason="OOMKilled")
        if targets and how in ("killed", "crashed"):
            return failed(pod, "compile", 137 if how == "killed" else 1)
        manifest = "sha256:" + hashlib.sha256(pod["metadata"]["uid"].encode()).hexdigest()
        what = Published(uid=request["uid"], revision=request["revision"], image=request["image"])
        self.history.publishes(manifest, what)
        verdicts = ["kept", "failed"] if how == "mixed" else [how if how in _LINES else "kept"] * 2
        lines = [f"{target}|{_LINES[verdicts[min(i, 1)]]}" for i, target in enumerate(targets)]
        return succeeded(pod, published(manifest, *lines))

    # Pods that serve.

    def _pod(self, how: str) -> None:
        """One comes, is admitted by what the index says, and runs, where it need not wait."""
        self._count += 1
        name = f"serves-{self._count}"
        text = self.mirror.seen(self.world.namespace).index
        manifest = index_lines(text).get(self.inputs.image_name)
        head = next((line.split(" ") for line in text.splitlines() if line.startswith(f"{MODEL} ")), [])
        if manifest is not None and manifest != "none":
            crashed = _CRASH if how == "crashed" else 0
            served = WRONG if how == "wrong" else HOT
            serving(self.world, name, manifest, image=self.inputs.image_name, served=served, crashed=crashed)
        elif manifest is None and head[1:2] == ["Wait"]:
            path = head[5]
            self.world.waiting_pod(self.inputs.image_name, name=name, guess=None if path == "?" else path)

    def _pod_goes(self) -> None:
        there = [p["metadata"]["name"] for p in self.mirror.all(self.world.namespace, "pods")]
        for name in [name for name in there if name.startswith("serves-")][:1]:
            self.world.server.request("DELETE", f"{self._pods}/{name}?gracePeriodSeconds=0")

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.world.namespace}/pods"


def _workload(inputs: Inputs) -> Raw | None:
    """The Deployment; None while there is none."""
    if not inputs.workload:
        return None
    container: Raw = {"name": "server", "image": inputs.image_name, "resources": {"requests": {"cpu": inputs.cpu}}}
    if inputs.args:
        container["args"] = [inputs.args]
    labels = {"app": MODEL, "preheat.dev/model": MODEL, "edited": str(inputs.labels)}
    spec = {
        "replicas": inputs.replicas,
        "selector": {"matchLabels": {"app": MODEL}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": MODEL}, "spec": spec}


def _spec(inputs: Inputs) -> Raw:
    """What `World.model` takes."""
    return {
        "hardware": inputs.hardware,
        "buckets": inputs.buckets,
        "keepIf": {"minSpeedup": inputs.min_speedup},
        "rollout": {"whenMissing": inputs.when_missing, "restart": inputs.restart},
        "weights": {"revision": inputs.weights} if inputs.weights else None,
        "suspend": "Enabled" if inputs.suspend else "Disabled",
    }
