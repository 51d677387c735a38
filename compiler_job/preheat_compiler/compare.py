"""Compares two answers of a module.

Why it exists: every proof (several inputs, other weights, a fresh process) asks the same question, so "equal" means
one thing: same structure, same dtypes and shapes, NaN where eager has NaN, and a relative error that a gate can bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How far an answer is from eager's.

    `maximum` is the largest absolute difference of an output tensor over that tensor's largest magnitude, `mean` the
    mean difference over the same (worst tensor each); `inf` with a word in `why` when they cannot be compared.
    `odd` is how many of eager's elements are NaN or infinite, `odd_apart` at how many places the two disagree in that.
    """

    maximum: float = 0.0
    mean: float = 0.0
    why: str = ""
    odd: int = 0
    odd_apart: int = 0
    dtypes: frozenset[str] = field(default_factory=frozenset)

    def words(self, allowed: float) -> str:
        """`1.0e-02 (allowed 1.0e-03)`, and why when there is more to say; for messages."""
        return f"{self.maximum:.1e} (allowed {allowed:.1e}){f'; {self.why}' if self.why else ''}"

    def worst(self, other: Difference) -> Difference:
        """Both seen as one: the larger of each figure."""
        return Difference(
            maximum=max(self.maximum, other.maximum),
            mean=max(self.mean, other.mean),
            why=self.why or other.why,
            dtypes=self.dtypes | other.dtypes,
            odd=self.odd + other.odd,
            odd_apart=self.odd_apart + other.odd_apart,
        )


def difference(answer: Any, eager: Any) -> Difference:
    """How far `answer` is from `eager`; both are whatever a module returned."""
    from torch.utils import _pytree as pytree

    leaves, spec = pytree.tree_flatten(answer)
    expected, expected_spec = pytree.tree_flatten(eager)
    if spec != expected_spec:
        return _incomparable("the answer has another structure than eager's")
    total = Difference()
    for index, (leaf, other) in enumerate(zip(leaves, expected, strict=True)):
        total = total.worst(_leaf(leaf, other, f"output {index}"))
    return total


def _leaf(answer: Any, eager: Any, where: str) -> Difference:
    import torch

    if not isinstance(eager, torch.Tensor):
        same = type(answer) is type(eager) and bool(answer == eager)
        return Difference() if same else _incomparable(f"{where} is {answer!r}, eager's is {eager!r}")
    if not isinstance(answer, torch.Tensor) or answer.dtype != eager.dtype or answer.shape != eager.shape:
        return _incomparable(f"{where} has another dtype or shape than eager's")
    dtypes = frozenset({str(eager.dtype).removeprefix("torch.")})
    if eager.numel() == 0:
        return Difference(dtypes=dtypes)
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        # Classes and indices have no distance: what counts is how many are other ones.
        wrong = float((answer != eager).double().mean())
        return Difference(maximum=wrong, mean=wrong, dtypes=dtypes)
    return _floating(answer.detach(), eager.detach(), where, dtypes)


def _floating(answer: torch.Tensor, eager: torch.Tensor, where: str, dtypes: frozenset[str]) -> Difference:
    import torch

    wide = torch.complex128 if eager.dtype.is_complex else torch.float64
    answer, eager = answer.to(wide), eager.to(wide)
    ordinary = torch.isfinite(eager)
    odd = ~ordinary
    # NaN equals NaN here, and an infinity must be the same one.
    alike = (answer[odd] == eager[odd]) | (torch.isnan(answer[odd]) & torch.isnan(eager[odd]))
    count = int(odd.sum())
    apart = int((~alike).sum()) + int((~torch.isfinite(answer[ordinary])).sum())
    if apart:
        why = f"{where} holds NaN or infinity where eager's does not, or the other way round, at {apart} places"
        return replace(_incomparable(why), odd=count, odd_apart=apart)
    if not bool(ordinary.any()):
        return Difference(dtypes=dtypes, odd=count)
    distance = (answer[ordinary] - eager[ordinary]).abs()
    scale = float(eager[ordinary].abs().max()) or 1.0
    return Difference(
        maximum=float(distance.max()) / scale, mean=float(distance.mean()) / scale, dtypes=dtypes, odd=count
    )


def _incomparable(why: str) -> Difference:
    return Difference(maximum=math.inf, mean=math.inf, why=why)
