"""Compares two answers of a module.

Why it exists: every proof of the compile Job (several inputs, other weights, a fresh process) and the pod's own check ask
the same question, so "equal" means one thing: same structure, same dtypes and shapes, NaN where eager has NaN, and a
relative error that a gate can bound.
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

#: The error that is allowed where the user names none: by the least precise floating dtype among parameters, inputs and
#: outputs. A network sums thousands of products, so these are some hundred units of the dtype's last place.
DEFAULT_MAX_ERROR = {
    "float64": Decimal("1e-6"),
    "float32": Decimal("1e-3"),
    "float16": Decimal("2e-2"),
    "bfloat16": Decimal("5e-2"),
}
#: A module without any floating tensor must be answered exactly.
EXACT = Decimal(0)
#: Elements that are compared at a time: beside two large answers there is room for a part of them only.
_PART = 1 << 20


def default_max_error(dtypes: Iterable[str]) -> Decimal:
    """The error that is allowed by default for these dtypes, in torch's names."""
    return max((DEFAULT_MAX_ERROR[dtype] for dtype in dtypes if dtype in DEFAULT_MAX_ERROR), default=EXACT)


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
        # What the constants are is not said: it goes into logs of pods.
        same = type(answer) is type(eager) and bool(answer == eager)
        return Difference() if same else _incomparable(f"{where} is another constant than eager's")
    if not isinstance(answer, torch.Tensor) or answer.dtype != eager.dtype or answer.shape != eager.shape:
        return _incomparable(f"{where} has another dtype or shape than eager's")
    dtypes = frozenset({str(eager.dtype).removeprefix("torch.")})
    if eager.numel() == 0:
        return Difference(dtypes=dtypes)
    parts = list(zip(*(each.detach().reshape(-1).split(_PART) for each in (answer, eager)), strict=True))
    if not (eager.dtype.is_floating_point or eager.dtype.is_complex):
        # Classes and indices have no distance: what counts is how many are other ones.
        wrong = sum(int((one != other).sum()) for one, other in parts) / eager.numel()
        return Difference(maximum=wrong, mean=wrong, dtypes=dtypes)
    return _floating(parts, where, dtypes)


def _floating(parts: list[tuple[torch.Tensor, torch.Tensor]], where: str, dtypes: frozenset[str]) -> Difference:
    import torch

    wide = torch.complex128 if parts[0][1].dtype.is_complex else torch.float64
    count = odd = apart = 0
    farthest = total = scale = 0.0
    for one, other in parts:
        answer, eager = one.to(wide), other.to(wide)
        ordinary = torch.isfinite(eager)
        strange = ~ordinary
        odd += int(strange.sum())
        # NaN equals NaN here, and an infinity must be the same one.
        alike = (answer[strange] == eager[strange]) | (torch.isnan(answer[strange]) & torch.isnan(eager[strange]))
        apart += int((~alike).sum()) + int((~torch.isfinite(answer[ordinary])).sum())
        if not bool(ordinary.any()):
            continue
        distance = (answer[ordinary] - eager[ordinary]).abs()
        count += distance.numel()
        farthest = max(farthest, float(distance.max()))
        total += float(distance.sum())
        scale = max(scale, float(eager[ordinary].abs().max()))
    if apart:
        why = f"{where} holds NaN or infinity where eager's does not, or the other way round, at {apart} places"
        return replace(_incomparable(why), odd=odd, odd_apart=apart)
    if not count:
        return Difference(dtypes=dtypes, odd=odd)
    scale = scale or 1.0
    return Difference(maximum=farthest / scale, mean=total / count / scale, dtypes=dtypes, odd=odd)


def _incomparable(why: str) -> Difference:
    return Difference(maximum=math.inf, mean=math.inf, why=why)
