"""Turns a bucket into example calls.

Why it exists: a bucket says which sizes and dtypes a module meets, a compiler needs real tensors. The sizes that are
picked decide what is proved: both ends of every range (where 0/1 specialisation and rounding go wrong), and in
between one call that is used for tracing.
"""

from __future__ import annotations

import copy
import random
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from preheat_compiler.bucket import Bucket, ConstSpec, DictSpec, Dim, ListSpec, TensorSpec
from preheat_compiler.faults import failed
from preheat_compiler.model import find_callable
from preheat_compiler.verdict import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from preheat_compiler.bucket import ArgumentSpec
    from preheat_runtime.levers import Levers
    from preheat_runtime.package import DimRange

    Place = tuple[int | str, ...]

#: torch's names of the dtypes a tensor argument may have.
DTYPES = (
    "float64", "float32", "float16", "bfloat16", "complex64", "complex128",
    "int64", "int32", "int16", "int8", "uint8", "bool",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """One choice of a size for every dim of a bucket; `name` says which (`typical`, `low` or `high`)."""

    name: str
    by_dim: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The arguments of one call of a module."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def of(self, function: Callable[..., Any]) -> Callable[[], Any]:
        """`function` called with these, however often: a list or dict among them is a new one each time, since a module
        may put something into it."""
        args, kwargs = self.args, self.kwargs
        if not any(map(_holds_places, (*args, *kwargs.values()))):
            return lambda: function(*args, **kwargs)
        return lambda: function(*map(_apart, args), **{name: _apart(value) for name, value in kwargs.items()})


def _holds_places(value: Any) -> bool:
    return isinstance(value, (list, dict)) or (type(value) is tuple and any(map(_holds_places, value)))


def _apart(value: Any) -> Any:
    """The same leaves in lists and dicts of their own."""
    if type(value) in (list, tuple):
        return type(value)(map(_apart, value))
    if type(value) is dict:
        return {key: _apart(item) for key, item in value.items()}
    return copy.copy(value) if isinstance(value, (list, dict)) else value


def legal_ends(dim: Dim) -> tuple[int, int]:
    """The least and the largest size of `dim` that is a multiple of its `multiple_of`."""
    return -(-dim.minimum // dim.multiple_of) * dim.multiple_of, dim.maximum // dim.multiple_of * dim.multiple_of


def pick_sizes(bucket: Bucket) -> tuple[Sizes, ...]:
    """The sizes to trace, measure and prove with: `typical` first, then `low` and `high` where they differ from it.

    `typical` avoids 0 and 1, which tracing takes for constants, and gives no two dims the same size where their ranges
    allow it, because tracing could take equal sizes for one size.
    """
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    typical: dict[str, int] = {}
    fixed = {size for spec in bucket.tensors() for size in spec.shape if isinstance(size, int)}
    for dim in bucket.dims:
        low[dim.name], high[dim.name] = legal_ends(dim)
        typical[dim.name] = _typical(dim, avoid=fixed | set(typical.values()))
    picked = [Sizes(name="typical", by_dim=typical)]
    for name, sizes in (("low", low), ("high", high)):
        if all(sizes != other.by_dim for other in picked):
            picked.append(Sizes(name=name, by_dim=sizes))
    return tuple(picked)


def _typical(dim: Dim, *, avoid: set[int]) -> int:
    first, last = legal_ends(dim)
    step = dim.multiple_of
    middle = first + (last - first) // step // 2 * step
    # Nearest to the middle first; a range may be long, so only some hundred candidates are looked at.
    candidates = [middle + sign * step * distance for distance in range(200) for sign in (1, -1)]
    allowed = [size for size in candidates if first <= size <= last]
    for size in allowed:
        if size > 1 and size not in avoid:
            return size
    return next((size for size in allowed if size > 1), last)


def ranged_dims(bucket: Bucket) -> dict[str, Dim]:
    """The dims that really vary; one whose range holds a single size is a plain size."""
    return {dim.name: dim for dim in bucket.dims if legal_ends(dim)[0] != legal_ends(dim)[1]}


def dynamic_shapes(bucket: Bucket) -> dict[Place, dict[int, DimRange]] | None:
    """Which sizes vary, as `package.build_package` takes them; None when none does.

    A key is where the tensor is: the argument's position or keyword, and what leads on from there in lists and dicts.
    """
    from preheat_runtime.package import DimRange

    ranges = {
        name: DimRange(name=name, minimum=legal_ends(dim)[0], maximum=legal_ends(dim)[1], multiple_of=dim.multiple_of)
        for name, dim in ranged_dims(bucket).items()
    }
    shapes: dict[Place, dict[int, DimRange]] = {}
    for where, spec in _places(bucket):
        varying = {
            index: ranges[size] for index, size in enumerate(spec.shape) if isinstance(size, str) and size in ranges
        }
        if varying:
            shapes[where] = varying
    return shapes or None


def _places(bucket: Bucket) -> list[tuple[Place, TensorSpec]]:
    found: list[tuple[Place, TensorSpec]] = []

    def walk(where: Place, spec: ArgumentSpec) -> None:
        if isinstance(spec, TensorSpec):
            found.append((where, spec))
        elif isinstance(spec, ListSpec):
            for index, item in enumerate(spec.items):
                walk((*where, index), item)
        elif isinstance(spec, DictSpec):
            for key, item in spec.items:
                walk((*where, key), item)

    for position, spec in enumerate(bucket.args):
        walk((position,), spec)
    for name, spec in bucket.kwargs:
        walk((name,), spec)
    return found


def traceable(bucket: Bucket) -> Bucket:
    """The bucket without what torch takes for a constant: one step of a dim that varies.

    That is a size of 1, and of a dim with `multipleOf` that multiple itself. Code for a range refuses it, and no range can
    be traced from it.
    """
    dims = []
    for dim in bucket.dims:
        first, last = legal_ends(dim)
        step = dim.multiple_of
        dims.append(replace(dim, minimum=2 * step) if first == step and last > first else dim)
    return replace(bucket, dims=tuple(dims))


def narrowed(bucket: Bucket, served: Mapping[str, DimRange]) -> Bucket:
    """The bucket with the ranges that are really served: tracing can lose the smallest sizes of one."""
    dims = tuple(
        replace(dim, minimum=served[dim.name].minimum, maximum=served[dim.name].maximum) if dim.name in served else dim
        for dim in bucket.dims
    )
    return replace(bucket, dims=dims)


def unserved(asked: Bucket, served: Bucket) -> str:
    """What of the asked ranges is not served, in words; empty when all is."""
    words = []
    for before, after in zip(asked.dims, served.dims, strict=True):
        (low, high), (first, last) = legal_ends(before), legal_ends(after)
        if (low, high) != (first, last):
            words.append(
                f"of {before.name} only {first} to {last} is served; for {low if low < first else high} give a bucket of its own"
            )
    return "; ".join(words)


def build_call(bucket: Bucket, sizes: Sizes, *, seed: int, device: str = "cpu") -> Call:
    """One call of the bucket on `device`; the same seed gives the same values in every process.

    Where `exampleInputs` has put one of its tensors on a GPU itself, all stay where they are.
    Floats are normal unless low and high are given (then uniform); integers are uniform in low (default 0) to high
    (default 2), high excluded; bools are even. Raises TargetError(InputsRefused) for a dtype that torch lacks, and for
    an `exampleInputs` that fails or gives something else than arguments.
    """
    import torch

    if bucket.example_inputs is not None:
        return _example_call(bucket.example_inputs, seed=seed, device=device)
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def build(spec: ArgumentSpec) -> Any:
        if isinstance(spec, ListSpec):
            return [build(item) for item in spec.items]
        if isinstance(spec, DictSpec):
            return {key: build(item) for key, item in spec.items}
        if isinstance(spec, ConstSpec):
            return spec.value
        return _tensor(spec, sizes, generator).to(device)

    args = tuple(build(spec) for spec in bucket.args)
    return Call(args=args, kwargs={name: build(spec) for name, spec in bucket.kwargs})


def dtypes_of(module: torch.nn.Module, call: Call, levers: Levers) -> set[str]:
    """torch's names of the dtypes that a call computes in: of weights and inputs, and what autocast changes them to."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((call.args, dict(call.kwargs)))
    tensors = [*module.parameters(), *module.buffers(), *(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))]
    found = {str(tensor.dtype).removeprefix("torch.") for tensor in tensors}
    return found | ({levers.autocast} if levers.autocast is not None else set())


def _example_call(example: str, *, seed: int, device: str) -> Call:
    """What the user's own callable gives, with the usual sources of random numbers at `seed`.

    Tensors that are all on the CPU are moved to `device`.
    """
    import torch
    from torch.utils import _pytree as pytree

    from preheat_runtime.replaced import replaced

    where = "torch.modules[].buckets[].exampleInputs"
    make = find_callable(example, where, "InputsRefused")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed)
        try:
            made = make()
        except BaseException as error:  # as of the factory
            raise failed(
                "InputsRefused", f"calling {example}() of {where}", error, remedy="It must work without arguments."
            ) from error  # fmt: skip
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], tuple) and isinstance(made[1], dict)):
        raise TargetError(
            "InputsRefused",
            f"{where}: {example}() gave a {type(made).__name__}. It must return (args, kwargs), a tuple and a dict.",
        )
    # Whoever puts one of them on a GPU has placed them all: lengths that must stay on the CPU, say.
    placed = any(leaf.device.type != "cpu" for leaf in pytree.tree_leaves(made) if isinstance(leaf, torch.Tensor))
    args, kwargs = replaced(made, lambda tensor: tensor.detach() if placed else tensor.detach().to(device))
    return Call(args=args, kwargs=kwargs)


def _tensor(spec: TensorSpec, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
    import torch

    if spec.dtype not in DTYPES or not hasattr(torch, spec.dtype):
        raise TargetError("InputsRefused", f"dtype {spec.dtype!r} is not one of {', '.join(DTYPES)}")
    dtype = getattr(torch, spec.dtype)
    shape = tuple(sizes.by_dim[size] if isinstance(size, str) else size for size in spec.shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).to(dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        low = int(spec.low) if spec.low is not None else 0
        high = int(spec.high) if spec.high is not None else max(low + 2, 2)
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    if spec.low is None and spec.high is None:
        # Drawn in a precision that every CPU has; a half's own generator may be missing.
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    low_value = float(spec.low) if spec.low is not None else min(0.0, float(spec.high or 0) - 1.0)
    high_value = float(spec.high) if spec.high is not None else low_value + 1.0
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high_value - low_value) + low_value).to(
        dtype
    )
