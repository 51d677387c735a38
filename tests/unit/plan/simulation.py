"""A cluster made of dictionaries: keeps what a plan makes, and lets Jobs end as a test wants.

It does what the API server, the Job controller and garbage collection do, as far as plans can see it.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.conditions import REASONS_OF_CONDITION, ConditionReason, ConditionType
from preheat_operator.plan.indexnotes import IndexNotes
from preheat_operator.plan.installation import Installation
from preheat_operator.plan.learned import is_read, learned
from preheat_operator.plan.model import plan_model
from preheat_operator.plan.objects import PodView, read_job, read_pod
from preheat_operator.plan.observed import ModelPlan, Observed

INSTALLATION = Installation(
    image="example.org/preheat:1", image_pull_policy="IfNotPresent", cluster_id="c", store_endpoint="http://s3",
    store_bucket="models", store_region="r", priority_class="preheat-compile",
)  # fmt: skip
START = datetime(2026, 1, 1, tzinfo=UTC)
UID = "11111111-2222-3333-4444-555555555555"
#: What a target's line of the publisher's termination message says.
KEPT = "main|one|Kept|Faster|1.7500|0.1200|1900000"
REJECTED = "main|one|Rejected|SpeedupBelowMinimum|0.9000|0.1200|"
FAILED = "main|one|Failed|CompileFailed|||"


def complaint(reason: str) -> str:
    """The termination message of a container that gives up."""
    return json.dumps({"v": 1, "reason": reason, "message": "words"})


def digest(character: str) -> str:
    return "sha256:" + character * 64


def spec(*, hardware: tuple[str, ...] = ("cpu",), buckets: tuple[str, ...] = ("one",), **more: Any) -> dict[str, Any]:
    args = [{"tensor": {"shape": [1, 3], "dtype": "float32"}}]
    return {
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "vision"},
        "torch": {
            "factory": "model:load",
            "modules": [{"name": "main", "path": "", "buckets": [{"name": b, "args": args} for b in buckets]}],
        },
        "hardware": [{"name": name} for name in hardware],
        **more,
    }


def deployment(image: str, **pod: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "server", "image": image}], **pod}}}}


@dataclass
class Simulation:
    """One CompiledModel and its Jobs."""

    body: dict[str, Any] = field(default_factory=spec)
    workload: dict[str, Any] | None = field(default_factory=lambda: deployment("registry/vision:1"))
    now: datetime = START
    generation: int = 1
    status: dict[str, Any] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    serving_pods: list[dict[str, Any]] = field(default_factory=list)
    labelled: list[dict[str, Any]] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    served: list[PodView] = field(default_factory=list)
    taken: frozenset[str] = frozenset()
    refused: dict[str, str] = field(default_factory=dict)
    notes: IndexNotes = field(default_factory=IndexNotes)
    made: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    @property
    def model(self) -> CompiledModel:
        return CompiledModel.model_validate(
            {
                "metadata": {
                    "name": "vision",
                    "namespace": "prod",
                    "uid": UID,
                    "generation": self.generation,
                    "annotations": self.annotations,
                },
                "spec": self.body,
                "status": self.status,
            }
        )

    def observe(self) -> Observed:
        return Observed(
            model=self.model,
            workload=self.workload,
            jobs=[read_job(j) for j in self.jobs.values()],
            pods=[read_pod(p) for p in self.pods.values()],
            serving_pods=[*(read_pod(p) for p in (*self.serving_pods, *self.labelled)), *self.served],
            learned=self.learned,
            notes=self.notes,
            taken=self.taken,
            refused=self.refused,
            now=self.now,
        )

    @property
    def learned(self) -> tuple[dict[str, Any], ...]:
        reference = self.model.spec.workload_ref
        if reference is None or is_read(reference):
            return ()
        paths = {r.image: r.python_path for r in self.model.status.revisions}
        return learned(self.labelled, reference=reference, image_paths=paths)

    def pass_once(self) -> ModelPlan:
        """Plan and carry out, as the reconciler does; checks what must hold of every plan."""
        plan = plan_model(self.observe(), INSTALLATION)
        again = plan_model(self.observe(), INSTALLATION)
        assert plan == again, "planning is a function of what is observed"
        for job in plan.create:
            name = job["metadata"]["name"]
            assert name not in self.jobs, "never two Jobs for one target"
            assert name not in self.taken
            self._start(job)
        active = [(j["metadata"]["labels"]["preheat.dev/revision"], j["metadata"]["labels"]["preheat.dev/hardware"])
                  for j in self.jobs.values() if not j["status"].get("conditions")]  # fmt: skip
        assert len(active) == len(set(active)), "never two Jobs at work on one profile"
        if plan.status is not None:
            self.status = json.loads(json.dumps(plan.status.to_api()))
            for condition in plan.status.conditions:
                allowed = REASONS_OF_CONDITION[ConditionType(condition.type), condition.status]
                assert ConditionReason(condition.reason) in allowed
            assert [c.type for c in plan.status.conditions] == ["Ready", "Progressing", "Degraded"]
        for view in plan.stop:
            self.jobs.pop(view.name)
            self.pods = {k: p for k, p in self.pods.items() if p["metadata"]["ownerReferences"][0]["uid"] != view.uid}
        for pod in plan.release:
            if pod.name in self.pods:
                self.pods[pod.name]["metadata"]["finalizers"] = []
        return plan

    def settle(self) -> ModelPlan:
        """Pass until nothing changes any more; there must be such a point."""
        for _ in range(20):
            before = (self.status, set(self.jobs))
            plan = self.pass_once()
            if (self.status, set(self.jobs)) == before and not plan.create and not plan.stop:
                last = self.pass_once()
                assert last.create == last.stop == last.announcements == ()
                return last
        raise AssertionError("the plans never come to rest")

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def open_jobs(self) -> list[dict[str, Any]]:
        return [j for j in self.jobs.values() if not j["status"].get("conditions")]

    def end(
        self,
        job: dict[str, Any],
        *,
        ok: bool,
        ends: dict[str, tuple[int, str, str]],
        reason: str = "",
        pods: bool = True,
    ) -> None:
        """End a Job; `ends` gives exit code, reason and message of containers."""
        kind = "Complete" if ok else "Failed"
        condition = {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": self.now.isoformat()}
        job["status"]["conditions"] = [condition]
        for pod in list(self.pods.values()):
            if pod["metadata"]["ownerReferences"][0]["uid"] != job["metadata"]["uid"]:
                continue
            if not pods:
                self.pods.pop(pod["metadata"]["name"])
            pod["status"] = {
                "phase": "Succeeded" if ok else "Failed",
                "containerStatuses": [
                    {"name": n, "state": {"terminated": {"exitCode": c, "reason": r, "message": m, "startedAt": "x"}}}
                    for n, (c, r, m) in ends.items()
                ],
            }

    def publish(self, job: dict[str, Any], manifest: str, *targets: str, words: object = None) -> None:
        document = {"v": 1, "digest": manifest, "pythonPath": None, "targets": list(targets)}
        message = json.dumps(document | ({"words": words} if words is not None else {}))
        self.end(job, ok=True, ends={"publish": (0, "Completed", message)})

    def serve(self, name: str, image: str, image_id: str, **status: Any) -> None:
        """A labelled pod that runs; the newest so far."""
        created = (START + timedelta(seconds=next(self._numbers))).isoformat()
        self.serving_pods.append(
            {
                "metadata": {"name": name, "namespace": "prod", "uid": name, "creationTimestamp": created,
                             "labels": {"preheat.dev/model": "vision"}},
                "spec": {"containers": [{"name": "server", "image": image}]},
                "status": {"phase": "Running", "containerStatuses": [{"name": "server", "imageID": image_id}], **status},
            }
        )  # fmt: skip

    def make_ready(self, manifest: str, *targets: str, carried: int = 0) -> dict[str, Any]:
        """Let the open Job publish; it."""
        self.settle()
        (job,) = self.open_jobs()
        kept = targets or ("main|one|Kept|Faster|1.7500|0.1200|1900000",)
        message = json.dumps({"v": 1, "digest": manifest, "pythonPath": None, "targets": kept, "carried": carried})
        self.end(job, ok=True, ends={"publish": (0, "Completed", message)})
        self.settle()
        return job

    @property
    def causes(self) -> list[str]:
        """Of the recorded revisions, newest first."""
        return [r["cause"] for r in self.status["revisions"]]

    def condition(self, kind: str) -> tuple[str, str]:
        for condition in self.status["conditions"]:
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        raise AssertionError(kind)

    def _start(self, job: dict[str, Any]) -> None:
        uid = f"00000000-0000-0000-0000-{next(self._numbers):012d}"
        made = json.loads(json.dumps(job))
        made["metadata"] |= {"uid": uid, "creationTimestamp": self.now.isoformat()}
        made["status"] = {}
        self.jobs[made["metadata"]["name"]] = made
        self.made.append(made)
        name = f"{made['metadata']['name']}-{uid[-3:]}"
        self.pods[name] = {
            "metadata": {
                "name": name, "namespace": "prod", "uid": "p" + uid, "labels": made["metadata"]["labels"],
                "finalizers": ["preheat.dev/result"], "creationTimestamp": self.now.isoformat(),
                "ownerReferences": [{"kind": "Job", "uid": uid, "controller": True}],
            },
            "status": {"phase": "Running", "containerStatuses": [{"name": "toolkit", "state": {"running": {}}}]},
        }  # fmt: skip
