"""Where a model is compiled: the hardware profiles of a CompiledModel's spec, and what compile pods get there."""

from typing import Annotated

from pydantic import Field

from preheat_operator.api.base import ApiModel, atomic_list
from preheat_operator.api.enums import CpuIsa
from preheat_operator.api.fields import IntOrString, Name


class Toleration(ApiModel):
    """A toleration of compile pods, as in a pod's spec."""

    key: str | None = Field(default=None, max_length=316, description="Taint key. Default: every key.")
    operator: str | None = Field(
        default=None, max_length=63, description="How the value is compared, as in a pod. Default: Equal."
    )
    value: str | None = Field(default=None, max_length=253, description="Taint value. Default: empty.")
    effect: str | None = Field(default=None, max_length=63, description="Taint effect. Default: every effect.")
    toleration_seconds: int | None = Field(
        default=None, ge=0, description="Seconds a NoExecute taint is tolerated. Default: for ever."
    )


class Resources(ApiModel):
    """Resource requests and limits of the container that compiles; they replace the workload's."""

    requests: dict[str, IntOrString] | None = Field(
        default=None, max_length=16, description="Quantities requested, by resource name."
    )
    limits: dict[str, IntOrString] | None = Field(
        default=None, max_length=16, description="Quantities allowed, by resource name."
    )


class Hardware(ApiModel):
    """A hardware profile: where one set of artifacts is compiled. What they fit is observed, never assumed."""

    name: Name = Field(description="Name of the profile.")
    node_selector: dict[str, Annotated[str, Field(max_length=63)]] | None = Field(
        default=None,
        max_length=16,
        description="Labels of the nodes that compile, added to the workload's own selector; of a label in both, the one here counts. Default: the workload's own.",
    )
    cpu_isa: CpuIsa = Field(
        default=CpuIsa.X86_64_V3,
        description="Instruction set CPU code is built for; it runs on that class and newer. Default: X86_64_V3 "
        "(AVX2). Native: the compile node's own.",
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        default=None,
        max_length=16,
        json_schema_extra=atomic_list(),
        description="Tolerations added to the workload's own. Default: none.",
    )
    resources: Resources | None = Field(
        default=None, description="Resources of the compiling container. Default: those of the workload's container."
    )
    runtime_class_name: str | None = Field(
        default=None, min_length=1, max_length=253, description="RuntimeClass of compile pods. Default: the workload's."
    )
