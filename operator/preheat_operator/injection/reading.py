r"""What is read of a pod and of the index's text before anything is decided; each property is a variable of the policy.

The text is searched exactly as the policy's CEL searches it (`split` at a mark), not parsed: where the two would
differ, the reference must show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from preheat_operator.api import names
from preheat_operator.api.index import WAIT_TIMEOUT_SECONDS
from preheat_operator.injection.additions import FETCH_COMMAND

ASKED: Final = ("Cold", "Wait", "Fail")


@dataclass(frozen=True)
class Reading:
    """A labelled pod beside the text of its namespace's index."""

    pod: dict[str, Any]
    index: str
    gating: bool = True

    @property
    def metadata(self) -> dict[str, Any]:
        """The pod's metadata."""
        return self.pod["metadata"]  # type: ignore[no-any-return]

    @property
    def spec(self) -> dict[str, Any]:
        """The pod's spec."""
        return self.pod["spec"]  # type: ignore[no-any-return]

    @property
    def annotations(self) -> dict[str, str]:
        """The pod's annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def model(self) -> str:
        """Name of the CompiledModel the pod's label asks for."""
        return self.metadata["labels"][names.LABEL_MODEL]  # type: ignore[no-any-return]

    @property
    def containers(self) -> list[dict[str, Any]]:
        """The pod's containers."""
        return self.spec["containers"]  # type: ignore[no-any-return]

    @property
    def init_containers(self) -> list[dict[str, Any]]:
        """The pod's init containers."""
        return self.spec.get("initContainers") or []

    @cached_property
    def known(self) -> bool:
        """Whether the index has the model."""
        return f"\n{self.model} " in self.index

    @cached_property
    def _head(self) -> list[str]:
        if not self.known:
            return ["Cold", "0", "-"]
        return self.index.split(f"\n{self.model} ", 1)[1].split("\n", 1)[0].split(" ")

    @property
    def when_missing(self) -> str:
        """What the model's line says to do; Paused also holds back what is ready."""
        return self._head[0]

    @property
    def missing(self) -> str:
        """What to do when nothing is ready: the pod's own annotation, else the model's line."""
        asked = self.annotations.get(names.ANNOTATION_WHEN_MISSING, "")
        return asked if asked in ASKED else self.when_missing

    @property
    def wait_seconds(self) -> str:
        """How long a pod of this model waits at most; 0 on the line is the default."""
        return str(WAIT_TIMEOUT_SECONDS) if self._head[1] == "0" else self._head[1]

    @property
    def serving(self) -> str | None:
        """The text of `spec.serving` on the model's line; None when it has none."""
        return self._head[3] if len(self._head) > 3 and self._head[3] != "-" else None

    @property
    def guess(self) -> str:
        """What the next image's PYTHONPATH is taken for: `-` unset, `?` not known."""
        return self._head[4] if len(self._head) > 4 else "?"

    @cached_property
    def of_deployment(self) -> bool:
        """Whether the pod is of a ReplicaSet of the model's own Deployment; those are named `<Deployment>-<hash>`."""
        deployment = self._head[5] if len(self._head) > 5 else "-"
        return any(
            owner["kind"] == "ReplicaSet"
            and owner.get("controller", False)
            and owner["name"].startswith(f"{deployment}-")
            and owner["name"].rfind("-") == len(deployment)
            for owner in self.metadata.get("ownerReferences") or []
        )

    @cached_property
    def container(self) -> str:
        """Name of the container that serves: the pod's annotation, else the model's line, else the first."""
        if asked := self.annotations.get(names.ANNOTATION_CONTAINER):
            return asked
        return self.containers[0]["name"] if self._head[2] == "-" else self._head[2]

    @cached_property
    def position(self) -> int:
        """Where that container is among the pod's; -1 when it is not."""
        names_ = [container["name"] for container in self.containers]
        return names_.index(self.container) if self.container in names_ else -1

    @property
    def served(self) -> dict[str, Any]:
        """The container that serves; the first when the named one is missing."""
        return self.containers[max(self.position, 0)]

    @property
    def may_report(self) -> bool:
        """Whether the pod can be given a token; without a service account the API server would refuse the whole pod."""
        return bool(self.spec.get("serviceAccountName"))

    @property
    def image(self) -> str:
        """Image of the container that serves, as the pod writes it."""
        return self.served.get("image", "")  # type: ignore[no-any-return]

    @property
    def env(self) -> list[dict[str, Any]]:
        """Environment of the container that serves."""
        return self.served.get("env") or []

    @cached_property
    def listed(self) -> bool:
        """Whether the index has the image, be it as one that will get nothing."""
        return f"\n{self.model}|{self.image}=" in self.index

    @property
    def ready(self) -> bool:
        """Whether the index has a manifest for the image."""
        return self._line[0] != names.MANIFEST_NONE

    @property
    def waits(self) -> bool:
        """Whether the pod is held back until something is ready."""
        if not self.gating or self.listed or self.keeps:
            return False
        return self.missing == "Wait" or (self.missing == "Auto" and self.of_deployment)

    @property
    def fails(self) -> bool:
        """Whether the pod does not start until something is ready."""
        return not self.ready and not self.keeps and self.missing == "Fail"

    @property
    def plainly(self) -> bool:
        """Whether the pod waits without anything being added: PYTHONPATH cannot even be guessed."""
        sets_it = any(entry["name"] == names.ENV_PYTHONPATH for entry in self.env)
        return self.waits and self.guess == "?" and not sets_it

    @property
    def assumed(self) -> str | None:
        """The guess the pod's environment rests on, as a variable says it; None when it rests on none."""
        sets_it = any(entry["name"] == names.ENV_PYTHONPATH for entry in self.env)
        return self.guess.replace("$(", "$$(") if (self.waits or self.fails) and not sets_it else None

    @cached_property
    def _line(self) -> list[str]:
        if not self.listed:
            return [names.MANIFEST_NONE, "-"]
        return self.index.split(f"\n{self.model}|{self.image}=", 1)[1].split("\n", 1)[0].split(" ")

    @property
    def digest(self) -> str:
        """The manifest's digest for this image."""
        return self._line[0]

    @property
    def image_path(self) -> str:
        """PYTHONPATH set inside the image, with `$(` written as Kubernetes wants it literally; empty when unset.

        Of a pod that waits it is the guess.
        """
        path = self.guess if self.waits or self.fails else self._line[1]
        return "" if path in ("-", "?") else path.replace("$(", "$$(")

    @cached_property
    def already(self) -> bool:
        """Whether the pod was injected by an earlier call: admission may be asked again about the same pod."""
        return any(
            container["name"] == names.CONTAINER_FETCH and container.get("command") == list(FETCH_COMMAND)
            for container in self.init_containers
        )

    @cached_property
    def keeps(self) -> bool:
        """Whether the manifest of that earlier call stands.

        Another webhook may have rewritten the image since (registry mirrors do), so it is not looked up again. But a
        digest the index does not list is never kept: the pod's author may have written all of this.
        """
        manifest = self.annotations.get(names.ANNOTATION_MANIFEST, "")
        return self.already and manifest.startswith("sha256:") and f"={manifest} " in self.index
