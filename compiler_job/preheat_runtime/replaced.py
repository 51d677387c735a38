"""Puts other tensors in place of those of a call, and leaves what code can tell beside their values.

Why it exists: to be kept, moved or rounded, a call's tensors are replaced. Code may ask whether two of its inputs are the
same object, and whether one is a Parameter, so the replaced call must answer as the first one did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable


def replaced(values: Any, other: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """`values` with `other` of each tensor: the same for one that is there twice, and a Parameter for a Parameter."""
    made: dict[int, torch.Tensor] = {}

    def once(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            found = other(tensor)
            if type(tensor) is torch.nn.Parameter and type(found) is torch.Tensor:
                found = torch.nn.Parameter(found, requires_grad=found.requires_grad)
            made[id(tensor)] = found
        return made[id(tensor)]

    return pytree.tree_map_only(torch.Tensor, once, values)
