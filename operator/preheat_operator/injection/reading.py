r"""What is read of a pod and of the index's text before anything is decided; each property is a variable of the policy.

The text is searched exactly as the policy's CEL searches it (`split` at a mark), not parsed: where the two would
differ, the reference must show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from preheat_operator.api import names
from preheat_operator.injection.additions import FETCH_COMMAND


@dataclass(frozen=True)
class Reading:
    """A labelled pod beside the text of its namespace's index."""

    pod: dict[str, Any]
    index: str

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
    def serving(self) -> str | None:
        """The text of `spec.serving` on the model's line; None when it has none."""
        return self._head[3] if len(self._head) > 3 else None

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
    def ready(self) -> bool:
        """Whether the index has the image."""
        return f"\n{self.model}|{self.image}=" in self.index

    @cached_property
    def _line(self) -> list[str]:
        if not self.ready:
            return [names.MANIFEST_NONE, "-"]
        return self.index.split(f"\n{self.model}|{self.image}=", 1)[1].split("\n", 1)[0].split(" ")

    @property
    def digest(self) -> str:
        """The manifest's digest for this image."""
        return self._line[0]

    @property
    def image_path(self) -> str:
        """PYTHONPATH set inside the image, with `$(` written as Kubernetes wants it literally; empty when unset."""
        return "" if self._line[1] == "-" else self._line[1].replace("$(", "$$(")

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
