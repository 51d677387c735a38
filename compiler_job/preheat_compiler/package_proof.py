"""Proof helpers: other weights, and which outputs share memory with what.

Why it exists: that nothing was baked in, and that the package's outputs are as independent of each other, of the inputs
and of the weights as eager's, cannot be read off the compiled code. It can be tried.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from .package_errors import CompileFailed, OutputAliases, SideEffect

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from .package_call import PlannedCall


#: Elements that are held in float64 at a time, several times over: 32 MB each.
_PART = 1 << 22


def randomise_(module: torch.nn.Module, seed: int, *, without: Collection[str] = ()) -> None:
    """Give every floating or complex parameter and buffer other values, in place, in ranges a network survives.

    Those named in `without` stay as they are.

    What was all positive stays positive (variances, scales); the spread stays as it was, or becomes 0.1 where all
    values were equal. Integer and boolean tensors stay: `shuffle_` is for them. Of a large tensor only a part is in
    memory twice.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in floating(module).items():
            if name in without:
                continue
            parts = _parts(torch.view_as_real(tensor) if tensor.is_complex() else tensor)
            if not all(bool(torch.isfinite(_wide(part)).all()) for part in parts):
                continue  # a mask of -inf is structure, not weight
            positive = all(bool((_wide(part) > 0).all()) for part in parts)
            mean, spread = _mean_and_spread(parts)
            for part in parts:
                noise = torch.rand(part.shape, generator=generator, dtype=torch.float64)
                fresh = _wide(part) * (0.75 + 0.5 * noise) if positive else mean + (noise - 0.5) * 3.4 * (spread or 0.1)
                part.copy_(fresh.to(part.dtype))


def shuffle_(
    module: torch.nn.Module, seed: int, *, booleans: bool = False, names: Collection[str] = ()
) -> bool:  # fmt: skip
    """Let the values of every integer (or boolean) tensor change places, in place; returns whether anything changed.

    With `names`, it is the floating tensors of these names instead.

    Quantised weights are integers, and so are indices, which nothing in a tensor tells apart: where an index was
    right, each of its values is right in another row too. Rows change places along the longest dimension, so that what
    belongs together (a pair of coordinates) stays together.
    """
    generator = torch.Generator().manual_seed(seed)
    changed = False
    with torch.no_grad():
        if names:
            chosen = [tensor for name, tensor in floating(module).items() if name in names]
        else:
            others = [each for each in _tensors(module).values() if not _is_floating(each)]
            chosen = [each for each in others if (each.dtype == torch.bool) == booleans]
        for tensor in chosen:
            for part in _parts(tensor):
                if part.dim() == 0:
                    continue
                longest = max(range(part.dim()), key=lambda dim: part.shape[dim])
                order = torch.randperm(part.shape[longest], generator=generator)
                fresh = part.index_select(longest, order.to(part.device))
                changed = changed or not torch.equal(fresh, part)
                part.copy_(fresh)
    return changed


def floating(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Floating and complex parameters and buffers by name, to be written to; each once, and without what it repeats."""
    return {name: tensor for name, tensor in _tensors(module).items() if _is_floating(tensor)}


def _is_floating(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers that hold plain numbers, each once, and of one that repeats itself only what it repeats."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        found.setdefault(id(tensor), (name, tensor.detach()))
    return {
        name: _without_repeats(tensor)
        for name, tensor in found.values()
        if tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_conj() and tensor.numel() > 0
    }


def _without_repeats(tensor: torch.Tensor) -> torch.Tensor:
    for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and length > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Views of a tensor that together are all of it, each of about `_PART` elements at most."""
    if tensor.numel() <= _PART:
        return (tensor,)
    longest = max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])
    length = tensor.shape[longest]
    return tuple(tensor.split(max(1, _PART * length // tensor.numel()), dim=longest))


def _mean_and_spread(parts: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Mean and standard deviation of all parts together; of a single element, its magnitude as the spread."""
    count = sum(part.numel() for part in parts)
    mean = sum(float(_wide(part).sum()) for part in parts) / count
    if count == 1:
        return mean, abs(mean)
    return mean, math.sqrt(sum(float(((_wide(part) - mean) ** 2).sum()) for part in parts) / (count - 1))


def _wide(part: torch.Tensor) -> torch.Tensor:
    return part.to("cpu", torch.float64)


class Form(NamedTuple):
    """What can be said of an answer without its values, for each of its leaves: dtype and shape or constant, whose memory
    it is in, and what else a caller can see of a tensor."""

    leaves: list[str]
    shared: list[str]
    marks: list[str]


def form_of(module: torch.nn.Module, call: PlannedCall, answer: Any) -> Form:
    """The form of an answer to `call`."""
    places = {tensor.untyped_storage().data_ptr(): f"input {index}" for index, tensor in enumerate(call.tensors)}
    for tensor in [*module.parameters(), *module.buffers()]:
        places.setdefault(tensor.untyped_storage().data_ptr(), f"weight {len(places)}")
    leaves = _leaves(answer)
    return Form([_form(leaf) for leaf in leaves], _sharing(leaves, places), [_marks(leaf) for leaf in leaves])


def compare_forms(
    module: torch.nn.Module, call: PlannedCall, package: Callable[..., Any], eager: Form
) -> None:  # fmt: skip
    """Run the package twice on the example and hold its answer against the form of eager's; values are not compared.

    Raises CompileFailed when an output differs in shape or dtype, OutputAliases when one shares memory differently,
    SideEffect when one is otherwise not what eager returns.
    """
    answers = [package(*call.args, **call.kwargs) for _ in range(2)]
    found = form_of(module, call, answers[0])
    if found.leaves != eager.leaves:
        raise CompileFailed(f"the package answers {found.leaves}, eager {eager.leaves}")
    if found.shared != eager.shared:
        raise OutputAliases(f"outputs share memory with {found.shared} in the package, with {eager.shared} in eager")
    for index, (mine, theirs) in enumerate(zip(found.marks, eager.marks, strict=True)):
        if mine != theirs:
            raise SideEffect(
                f"forward makes output {index} a tensor {theirs or 'without marks'}, which a package's is not"
                f"{f' ({mine})' if mine else ''}; leave that to the caller"
            )
    for one, two, place in zip(*map(_leaves, answers), found.shared, strict=True):
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


def _marks(leaf: Any) -> str:
    """What is unusual about a tensor, in words; empty where nothing is."""
    if not isinstance(leaf, torch.Tensor):
        return ""
    found = [f"of class {type(leaf).__qualname__}"] if type(leaf) is not torch.Tensor else []
    found += ["that requires gradients"] if leaf.requires_grad else []
    found += [f"with the attribute {name}" for name in sorted(vars(leaf))]
    return ", ".join(found)


def _sharing(leaves: list[Any], places: dict[int, str]) -> list[str]:
    known = dict(places)
    found = []
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.numel() > 0:
            found.append(known.setdefault(leaf.untyped_storage().data_ptr(), f"output {index}"))
        else:
            found.append("-")
    return found
