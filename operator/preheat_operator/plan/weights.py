"""Which revision of the weights a model has now, as text that differs when they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preheat_operator.api.spec import CompiledModelSpec


def weights_of(spec: CompiledModelSpec) -> str:
    """The weights' revision; empty when the spec names none."""
    return "" if spec.weights is None else spec.weights.revision
