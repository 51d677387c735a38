"""Where compile Jobs get their pod template from: the workload that serves the model, or the template written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preheat_operator.api.conditions import ConditionReason
from preheat_operator.plan.running import pinned

if TYPE_CHECKING:
    from preheat_operator.api.spec import CompiledModelSpec


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The pod template whose pods serve the model, and the container in it that does.

    `claims` are the names of volumes a StatefulSet makes for each replica: a compile pod gets empty ones instead.
    `digest` is that of the image to compile in, None where the image's name decides.
    """

    template: dict[str, Any]
    container: dict[str, Any]
    claims: frozenset[str] = field(default_factory=frozenset)
    digest: str | None = None

    @property
    def image(self) -> str:
        """The image as the workload writes it."""
        return str(self.container.get("image", ""))

    @property
    def compile_image(self) -> str:
        """The image to compile in: by digest where that is known, so that no retry meets another one.

        What must not be pulled (the workload says Never) may be there under its name alone.
        """
        if self.digest is None or self.container.get("imagePullPolicy") == "Never" or "@" in self.image:
            return self.image
        return pinned(self.image, self.digest)


@dataclass(frozen=True, kw_only=True)
class NotServing:
    """Why there is nothing to compile from, as a condition says it."""

    reason: ConditionReason
    message: str


def serving(*, spec: CompiledModelSpec, workload: dict[str, Any] | None) -> Serving | NotServing:
    """What serves the model. `workload` is the raw object that `spec.workloadRef` names, None when it is not there.

    Of a kind whose template is learned it is what stands for it: see `learned`.
    """
    reference = spec.workload_ref
    if reference is None:
        template, container, claims = spec.template or {}, None, frozenset[str]()
        source = "spec.template"
    elif workload is None:
        return NotServing(
            reason=ConditionReason.WORKLOAD_NOT_FOUND,
            message=f"{reference.kind} {reference.name!r} of spec.workloadRef is not in this namespace: create it, or "
            "correct the name",
        )
    else:
        body = workload.get("spec") or {}
        template, container = body.get("template") or {}, reference.container
        claims = frozenset(
            str((claim.get("metadata") or {}).get("name", "")) for claim in body.get("volumeClaimTemplates") or ()
        )
        source = f"{reference.kind} {reference.name!r}"
    containers = [c for c in (template.get("spec") or {}).get("containers") or () if isinstance(c, dict)]
    chosen = next((c for c in containers if container in (None, c.get("name"))), None)
    if chosen is None or not chosen.get("image"):
        found = ", ".join(str(c.get("name")) for c in containers) or "none"
        wanted = f"no container {container!r}" if container else "no container with an image"
        return NotServing(
            reason=ConditionReason.CONTAINER_NOT_FOUND,
            message=f"{source} has {wanted} (it has: {found}): correct spec.workloadRef.container",
        )
    return Serving(template=template, container=chosen, claims=claims)
