"""What was gathered of a pod, read: labels, annotations, the state of its containers, and the lines in their logs.

Nothing here is trusted to be whole: logs are rotated and torn, objects are of any version, rights may be missing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from preheat_operator.api import names

if TYPE_CHECKING:
    from collections.abc import Iterator

Raw = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """A pod, the CompiledModel its label names (None: there is none), and logs (None: they could not be read)."""

    pod: Raw
    model: Raw | None = None
    fetch_log: str | None = None
    serving_log: str | None = None
    unread: tuple[str, ...] = ()
    """What could not be read, and why, in words."""

    # --- the pod as it was asked for ---

    @property
    def metadata(self) -> Raw:
        """The pod's metadata."""
        return self.pod.get("metadata") or {}

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.metadata.get("namespace") or "")

    @property
    def labels(self) -> dict[str, str]:
        """The pod's labels."""
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> dict[str, str]:
        """The pod's annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def label(self) -> str | None:
        """Name of the CompiledModel that the pod's label asks for."""
        return self.labels.get(names.LABEL_MODEL)

    @property
    def injected(self) -> str:
        """What admission says it did."""
        return self.annotations.get(names.ANNOTATION_INJECTED, "")

    @property
    def manifest(self) -> str:
        """Digest of the revision that the pod was given, `none`, or empty."""
        return self.annotations.get(names.ANNOTATION_MANIFEST, "")

    @property
    def gated(self) -> bool:
        """Whether our scheduling gate holds the pod back."""
        gates = (self.pod.get("spec") or {}).get("schedulingGates") or []
        return any(gate.get("name") == names.GATE for gate in gates)

    @property
    def waited(self) -> bool:
        """Whether it was held back once."""
        return names.ANNOTATION_WAIT_SECONDS in self.annotations

    @cached_property
    def served(self) -> Raw:
        """The container that serves the model: the injected one, else the named one, else the first."""
        containers: list[Raw] = (self.pod.get("spec") or {}).get("containers") or [{}]
        asked = self.annotations.get(names.ANNOTATION_CONTAINER)
        ours = [each for each in containers if _value(each, names.ENV_DIR) is not None]
        named = [each for each in containers if asked and each.get("name") == asked]
        return (ours or named or containers)[0]

    @property
    def container(self) -> str:
        """Its name."""
        return str(self.served.get("name") or "")

    @property
    def image(self) -> str:
        """Its image, as the pod writes it."""
        return str(self.served.get("image") or "")

    @property
    def command(self) -> list[str]:
        """Its command and arguments, as far as the pod says them."""
        return [str(word) for word in (*(self.served.get("command") or []), *(self.served.get("args") or []))]

    def variable(self, name: str) -> str | None:
        """A variable of its environment; None when it is not set, or not by a plain value."""
        return _value(self.served, name)

    # --- what became of it ---

    def state(self, container: str, *, init: bool = False) -> tuple[str, str]:
        """Waiting, running, terminated or unknown, and the words that Kubernetes has for it."""
        status = self.pod.get("status") or {}
        for entry in status.get("initContainerStatuses" if init else "containerStatuses") or []:
            if entry.get("name") == container:
                for kind, said in (entry.get("state") or {}).items():
                    parts = (said or {}).get("reason"), (said or {}).get("message")
                    return kind, ": ".join(str(part) for part in parts if part)
        return "unknown", ""

    @property
    def unscheduled(self) -> str | None:
        """Why the pod has no node, in Kubernetes' words; None when it has one."""
        if (self.pod.get("spec") or {}).get("nodeName"):
            return None
        for condition in (self.pod.get("status") or {}).get("conditions") or []:
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                return str(condition.get("message") or condition.get("reason") or "")
        return "it was not looked at yet"

    @cached_property
    def receipt(self) -> Raw | None:
        """What fetch said it did: the last such line of its log."""
        lines = [line for line in _lines(self.fetch_log) if line.get("component") == names.CONTAINER_FETCH]
        return lines[-1] if lines else None

    @cached_property
    def records(self) -> list[Raw]:
        """The runtime's lines about answers, oldest first."""
        return [line for line in _lines(self.serving_log) if line.get("event") == "preheat"]

    @cached_property
    def loaded(self) -> bool:
        """Whether the runtime says that it is there: once for a container, before anything is compiled."""
        return any(str(line.get("event")).startswith("preheat") for line in _lines(self.serving_log))

    @cached_property
    def faults(self) -> list[str]:
        """What the runtime says of its own faults."""
        lines = [str(line.get("reason")) for line in _lines(self.serving_log) if line.get("event") == "preheat-error"]
        plain = [line for line in (self.serving_log or "").splitlines() if line.startswith("preheat: ")]
        return lines + plain

    # --- the CompiledModel ---

    @property
    def status(self) -> Raw:
        """The CompiledModel's status."""
        return (self.model or {}).get("status") or {}

    @cached_property
    def conditions(self) -> dict[str, Raw]:
        """Its conditions, by type."""
        return {str(each.get("type")): each for each in self.status.get("conditions") or []}

    def revision_of(self, image: str) -> Raw | None:
        """Its newest revision for an image."""
        return next((each for each in self.status.get("revisions") or [] if each.get("image") == image), None)


def _value(container: Raw, name: str) -> str | None:
    found = [each for each in container.get("env") or [] if each.get("name") == name]
    # Of a name set twice, Kubernetes takes the last.
    return None if not found or "valueFrom" in found[-1] else str(found[-1].get("value") or "")


def _lines(log: str | None) -> Iterator[Raw]:
    """The objects in a log; other people's lines are passed over, and what stands before ours on the same line."""
    for line in (log or "").splitlines():
        start = line.find("{")
        if start < 0 or "preheat" not in line:
            continue
        try:
            value = json.loads(line[start:])
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value
