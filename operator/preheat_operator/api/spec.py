"""What a user asks for: the spec of a CompiledModel, with every bound and rule the API server enforces.

What is compiled is in `torch.py`, what its modules are called with in `inputs.py`, where in `hardware.py`, and which
weights are loaded in `weights.py`.
"""

from typing import Any, Final

from pydantic import ConfigDict, Field

from preheat_operator.api.base import PRESERVE_UNKNOWN, ApiModel, list_map, rule, rules
from preheat_operator.api.enums import (
    OnMiss,
    OnReject,
    Restart,
    ServiceAccountToken,
    Suspend,
    Verify,
    WhenMissing,
)
from preheat_operator.api.fields import DECIMAL, EXPONENT
from preheat_operator.api.hardware import Hardware
from preheat_operator.api.index import WAIT_TIMEOUT_SECONDS
from preheat_operator.api.torch import Torch
from preheat_operator.api.weights import Weights

MAX_HARDWARE: Final = 8
MAX_TARGETS: Final = 128


class WorkloadRef(ApiModel):
    """A workload of this namespace whose pods serve the model; compile Jobs are made from its pod template.

    That of a Deployment or StatefulSet is read; that of any other kind is learned from its labelled pods.
    """

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.apiVersion != 'apps/v1' || self.kind in ['Deployment', 'StatefulSet', 'ReplicaSet', 'DaemonSet']",
                "of apps/v1, kind must be Deployment, StatefulSet, ReplicaSet or DaemonSet; for another kind, set its "
                "apiVersion",
            ),
            rule(
                "!(self.kind in ['Deployment', 'StatefulSet']) || self.apiVersion == 'apps/v1'",
                "apiVersion of a Deployment or StatefulSet must be apps/v1",
            ),
        )
    )

    api_version: str = Field(
        default="apps/v1",
        min_length=1,
        max_length=253,
        description="API group and version of the workload. Default: apps/v1.",
    )
    kind: str = Field(
        min_length=1,
        max_length=63,
        description="Deployment, StatefulSet, or any other kind, such as Rollout: then the template is learned from the "
        "newest labelled pods whose name, or whose controller's, begins with the workload's.",
    )
    name: str = Field(min_length=1, max_length=253, description="Name of the workload, in this namespace.")
    container: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="Container that serves the model. Default: the first container.",
    )


class KeepIf(ApiModel):
    """The conditions an artifact must meet to be given to pods; a target that fails one is Rejected and runs eager."""

    min_speedup: str = Field(
        default="1.05",
        max_length=32,
        json_schema_extra=rules(
            rule(f"self.matches('^{DECIMAL}$')", 'must be a decimal number in quotes, such as "1.05"')
        ),
        description='Least ratio of eager\'s median time to the compiled one\'s. Default: "1.05". "0" keeps every '
        "artifact that answers right.",
    )
    max_error: str | None = Field(
        default=None,
        max_length=32,
        json_schema_extra=rules(
            rule(
                f"self.matches('^{DECIMAL}{EXPONENT}$')",
                'must be a decimal number in quotes, such as "1e-3"',
            )
        ),
        description="Largest difference from eager's answer, relative to its size. Default: by dtype.",
    )
    max_graph_breaks: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Most graph breaks. A package has none; compiler caches may. Default: any number.",
    )
    max_recompiles: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Most compiles after a module's first call, at the least, the greatest and a typical size. A package needs none. "
        "Default: any number.",
    )
    max_memory_growth: str | None = Field(
        default=None,
        max_length=32,
        json_schema_extra=rules(
            rule(f"self.matches('^{DECIMAL}$')", 'must be a decimal number in quotes, such as "1.2"'),
            rule(
                f"!self.matches('^{DECIMAL}$') || self.matches('[1-9]')",
                "must be greater than 0; leave it out to keep artifacts whatever memory they take",
            ),
        ),
        description='Largest ratio of the compiled peak memory to eager\'s, such as "1.2". Default: any.',
    )


class Serving(ApiModel):
    """What pods do with what was compiled, from their next start on; nothing is compiled anew for a change of it."""

    on_miss: OnMiss = Field(
        default=OnMiss.COMPILE,
        description="A call that no artifact answers: torch.compile, as without Preheat; eager; or an error at the call. "
        "A pod that started as it is, since nothing was ready for its image, has no Preheat in it: there it is always "
        "torch.compile. Default: Compile.",
    )
    on_reject: OnReject = Field(
        default=OnReject.EAGER,
        description="A call whose target is Rejected, or whose package was found wrong in the pod: eager, or "
        "torch.compile all the same. Default: Eager.",
    )
    verify: Verify = Field(
        default=Verify.AFTER,
        description="The first answer of each package is compared with eager's before it is returned, after it on the "
        "side, or never. A package that answers otherwise is not used again in that process. Default: After.",
    )


class Rollout(ApiModel):
    """What pods do while nothing is ready for their image, and whether the workload is restarted."""

    when_missing: WhenMissing = Field(
        default=WhenMissing.AUTO,
        description="A pod whose image has no ready revision: Cold starts as it is. Wait is not scheduled until one is "
        "ready, cannot become so, or waitTimeoutSeconds are over; old pods serve on. Fail does not start. Auto is Wait for "
        "pods of a Deployment that rolls with surge, once the model has had a ready revision, else Cold. The pod annotation "
        "preheat.dev/when-missing (Cold, Wait or Fail) overrides it. Default: Auto.",
    )
    wait_timeout_seconds: int = Field(
        default=WAIT_TIMEOUT_SECONDS,
        ge=1,
        le=86400,
        description="Seconds, from its creation, that a pod waits at most; then it starts cold. Keep it below 0.8 of the "
        "Deployment's progressDeadlineSeconds. Default: 480.",
    )
    restart: Restart = Field(
        default=Restart.NEVER,
        description="Rollout: when a revision becomes ready that the workload's own template did not ask for (the "
        "CompiledModel was changed, not the image), the workload is restarted once, as by kubectl rollout restart, so that "
        "running pods get it too. Default: Never.",
    )


class Compile(ApiModel):
    """How compile Jobs run."""

    timeout_seconds: int = Field(
        default=3600,
        ge=60,
        le=172800,
        description="Seconds that container compile of a Job may take, at each attempt; waiting for a node, pulling images and "
        "publishing are not counted. Default: 3600.",
    )
    service_account_token: ServiceAccountToken = Field(
        default=ServiceAccountToken.NONE,
        description="Whether the compiling container sees the workload's service account token. Default: None.",
    )
    schedule_timeout_seconds: int = Field(
        default=300,
        ge=1,
        le=86400,
        description="Seconds a compile pod may wait for a node before the verdict is NoCapacity. Default: 300.",
    )


def _pod_template() -> dict[str, Any]:
    """Schema of a pod template: only what Preheat reads is typed; the rest is checked by a dry run of the Job."""
    container = {
        "type": "object",
        PRESERVE_UNKNOWN: True,
        "required": ["name", "image"],
        "properties": {
            "name": {"type": "string", "description": "Name of the container."},
            "image": {"type": "string", "minLength": 1, "description": "Image of the container."},
        },
    }
    return {
        "type": "object",
        "required": ["spec"],
        PRESERVE_UNKNOWN: True,
        "properties": {
            "spec": {
                "type": "object",
                "description": "Spec of the pods that serve the model.",
                "required": ["containers"],
                PRESERVE_UNKNOWN: True,
                "properties": {
                    "containers": {
                        "type": "array",
                        "minItems": 1,
                        "description": "Containers; the first one serves the model.",
                        "items": container,
                    }
                },
            }
        },
    }


class CompiledModelSpec(ApiModel):
    """What is compiled, for which inputs and hardware, and what is kept."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.workloadRef) != has(self.template)",
                "set exactly one of workloadRef (compile what a workload runs) and template (a pod "
                "template written out)",
            ),
            rule(
                "!has(self.rollout) || !has(self.rollout.restart) || self.rollout.restart != 'Rollout' || "
                "(has(self.workloadRef) && self.workloadRef.kind in ['Deployment', 'StatefulSet'])",
                "rollout.restart: Rollout needs a workloadRef of kind Deployment or StatefulSet, which is restarted: set it, "
                "or restart: Never",
            ),
            rule(
                f"self.torch.modules.map(m, size(m.buckets)).sum() * size(self.hardware) <= {MAX_TARGETS}",
                f"torch.modules[].buckets times hardware must be at most {MAX_TARGETS} targets: remove some, or split "
                "the CompiledModel",
            ),
        )
    )

    workload_ref: WorkloadRef | None = Field(
        default=None, description="Workload whose pods serve the model. Exactly one of workloadRef and template."
    )
    template: dict[str, Any] | None = Field(
        default=None,
        json_schema_extra=_pod_template(),
        description="A PodTemplateSpec written out, for pods that no workload makes. Exactly one of "
        "workloadRef and template.",
    )
    torch: Torch = Field(description="What is compiled.")
    hardware: tuple[Hardware, ...] = Field(
        min_length=1,
        max_length=MAX_HARDWARE,
        json_schema_extra=list_map("name"),
        description="Hardware profiles it is compiled on; 1 to 8.",
    )
    weights: Weights | None = Field(
        default=None,
        description="Which weights the image loads, where they can change without it. Default: they are part of the image.",
    )
    keep_if: KeepIf = Field(
        default=KeepIf(), description="What an artifact must meet to be kept. Default: minSpeedup 1.05."
    )
    compile: Compile = Field(default=Compile(), description="How compile Jobs run. Default: see its fields.")
    serving: Serving = Field(
        default=Serving(),
        description="What pods do with what was compiled. Takes effect at a pod's next start. Default: see its fields.",
    )
    rollout: Rollout = Field(
        default=Rollout(),
        description="What pods do while nothing is ready for their image. Default: see its fields.",
    )
    revision_history_limit: int = Field(
        default=5,
        ge=1,
        le=20,
        description="Revisions that stay available to pods of older images, the newest included. Default: 5.",
    )
    suspend: Suspend = Field(
        default=Suspend.DISABLED,
        description="Enabled: no compile Job is started, and one that runs is stopped; what is ready stays in use. Default: Disabled.",
    )
