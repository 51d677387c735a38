"""Proof helpers: other weights, and which outputs share memory with what.

Why it exists: that nothing was baked in, and that the package's outputs are as independent of each other, of the inputs
and of the weights as eager's, cannot be read off the compiled code. It can be tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from .package_errors import CompileFailed, OutputAliases

if TYPE_CHECKING:
    from collections.abc import Callable

    from .package_call import PlannedCall


def randomise_(module: torch.nn.Module, seed: int) -> None:
    """Give every floating parameter and buffer other values, in place, in ranges a network survives.

    What was all positive stays positive (variances, scales); the spread stays as it was, or becomes 0.1 where all
    values were equal. Integer and boolean tensors stay: they are indices, masks and counters.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[int] = set()
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            if id(tensor) in seen or not tensor.is_floating_point() or tensor.numel() == 0:
                continue
            seen.add(id(tensor))
            values = tensor.detach().to("cpu", torch.float64)
            if not bool(torch.isfinite(values).all()):
                continue  # a mask of -inf is structure, not weight
            noise = torch.rand(values.shape, generator=generator, dtype=torch.float64)
            if bool((values > 0).all()):
                fresh = values * (0.75 + 0.5 * noise)
            else:
                spread = float(values.std()) if values.numel() > 1 else float(values.abs().max())
                fresh = values.mean() + (noise - 0.5) * 3.4 * (spread or 0.1)
            tensor.copy_(fresh.to(tensor.dtype))


def compare_memory(module: torch.nn.Module, call: PlannedCall, package: Callable[..., Any]) -> None:
    """Run eager once and the package twice on the example; compare form and sharing of memory, not values.

    Raises CompileFailed when an output differs in shape or dtype, OutputAliases when one shares memory differently.
    """
    answers = [package(*call.args, **call.kwargs) for _ in range(2)]
    expected = module(*call.args, **call.kwargs)
    places = {tensor.untyped_storage().data_ptr(): f"input {index}" for index, tensor in enumerate(call.tensors)}
    for tensor in [*module.parameters(), *module.buffers()]:
        places.setdefault(tensor.untyped_storage().data_ptr(), f"weight {len(places)}")
    eager, first, second = (_leaves(answer) for answer in (expected, *answers))
    if [_form(leaf) for leaf in eager] != [_form(leaf) for leaf in first]:
        raise CompileFailed(
            f"the package answers {[_form(leaf) for leaf in first]}, eager {[_form(leaf) for leaf in eager]}"
        )
    shared, wanted = _sharing(first, places), _sharing(eager, places)
    if shared != wanted:
        raise OutputAliases(f"outputs share memory with {shared} in the package, with {wanted} in eager")
    for one, two, place in zip(first, second, shared, strict=True):
        own = isinstance(one, torch.Tensor) and place.startswith("output") and one.numel() > 0
        if own and one.untyped_storage().data_ptr() == two.untyped_storage().data_ptr():
            raise OutputAliases("two calls of the package answer with the same memory")


def _leaves(answer: Any) -> list[Any]:
    leaves: list[Any] = pytree.tree_leaves(answer)
    return leaves


def _form(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return f"{leaf.dtype} {tuple(leaf.shape)}"
    return repr(leaf)


def _sharing(leaves: list[Any], places: dict[int, str]) -> list[str]:
    known = dict(places)
    found = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.numel() > 0:
            found.append(known.setdefault(leaf.untyped_storage().data_ptr(), f"output {index}"))
        else:
            found.append("-")
    return found
