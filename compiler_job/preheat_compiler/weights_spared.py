"""Gives a module other weights, but for those that eager cannot answer with others of.

Why it exists: most floating tensors are weights, and some are something else: positions that look up a table, ends that
must be in order. Eager itself refuses random values there. What it refuses keeps its own, as little as can be found
out, so that everything else is still proved.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from preheat_compiler.faults import common_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import torch

#: Bytes of own values that are kept, of the smallest tensors first: what is no weight is small.
_KEPT_BYTES = 256 * 1024 * 1024
#: The search ends after so many runs of eager, and so many seconds; what it has not acquitted by then keeps its values.
_RUNS, _SECONDS = 64, 60.0


class Weights(Protocol):
    """How the weights of a module are exchanged: `preheat_compiler.package`, or what a test has in its place."""

    def randomise_(self, module: torch.nn.Module, seed: int, *, without: Collection[str] = ()) -> None:
        """Give floating tensors other values, the same ones for the same seed, but for those of these names."""

    def shuffle_(
        self, module: torch.nn.Module, seed: int, *, booleans: bool = False, names: Collection[str] = ()
    ) -> bool:
        """Let values of integer or boolean tensors change places, or of the floating ones of these names.

        Returns whether anything changed.
        """

    def floating(self, module: torch.nn.Module) -> dict[str, torch.Tensor]:
        """The floating tensors by name, to be written to."""


class Exchanged:
    """Modules of equal make whose weights are exchanged together, and `eager`, which answers with them."""

    def __init__(self, modules: Collection[torch.nn.Module], weights: Weights, eager: Callable[[], Any]) -> None:
        self.weights = weights
        self.modules = list(modules)
        self.names = list(weights.floating(self.modules[0]))
        self.refusal: Exception | None = None
        """What eager raised last."""
        self._eager = eager
        self._own: dict[str, torch.Tensor] = {}
        left = _KEPT_BYTES
        for name, tensor in sorted(weights.floating(self.modules[0]).items(), key=lambda item: item[1].numel()):
            left -= tensor.numel() * tensor.element_size()
            if left < 0:
                break
            self._own[name] = tensor.clone()

    def answer(self, seed: int, *, without: Collection[str] = ()) -> tuple[Any] | None:
        """Eager's answer with other weights than before, in a tuple; None where it raises (see `refusal`).

        Tensors of `without` have their own values. Raises what memory, disk and device are the reason of.
        """
        self.put_back(without)
        for each in self.modules:
            self.weights.randomise_(each, seed, without=without)
        return self.run()

    def run(self) -> tuple[Any] | None:
        """Eager's answer with the weights as they are, in a tuple; None where it raises (see `refusal`)."""
        try:
            return (self._eager(),)
        except Exception as error:  # whatever a module's own code raises of values that it did not expect
            if common_reason(error):
                raise
            self.refusal = error
            return None

    def put_back(self, names: Collection[str]) -> None:
        """Give tensors their own values again."""
        for each in self.modules:
            tensors = self.weights.floating(each)
            for name in names:
                tensors[name].copy_(self._own[name])

    def needed(self, seed: int) -> list[str] | None:
        """The tensors that must keep their own values for eager to answer, as few as can be found; None: not known."""
        suspects = [name for name in self.names if name in self._own]
        if self.answer(seed, without=suspects) is None:
            return None
        runs, end = iter(range(_RUNS)), time.monotonic() + _SECONDS

        def among(some: Sequence[str], also: Sequence[str]) -> list[str]:
            """Those of `some` that are needed beside `also`; with both eager answers."""
            if next(runs, None) is None or time.monotonic() > end:
                return list(some)
            if self.answer(seed, without=also) is not None:
                return []
            if len(some) == 1:
                return list(some)
            first, second = some[: len(some) // 2], some[len(some) // 2 :]
            found = among(first, [*also, *second])
            return [*found, *among(second, [*also, *found])]

        return among(suspects, [])
