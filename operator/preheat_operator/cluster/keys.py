"""What work is about: one CompiledModel, or one namespace with its index and labelled pods."""

from __future__ import annotations

from typing import NamedTuple


class ModelKey(NamedTuple):
    """One CompiledModel."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"CompiledModel {self.namespace}/{self.name}"


class NamespaceKey(NamedTuple):
    """The index, the breaker and the labelled pods of one namespace."""

    namespace: str

    def __str__(self) -> str:
        return f"namespace {self.namespace}"


Key = ModelKey | NamespaceKey
