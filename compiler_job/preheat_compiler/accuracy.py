"""Compares eager and compiled with a more precise run of the same module.

Why it exists: "differs from eager by 1e-4" does not say who is nearer to the truth. Where the module can be converted
and memory allows it, both are held against the same module in float64 (of half types: float32). It is for the report;
no verdict rests on it, because many sound modules cannot be converted.
"""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from preheat_compiler.devices import free_memory, kind_of, tensors_of
from preheat_compiler.faults import describe
from preheat_compiler.inputs import Sizes, build_call
from preheat_compiler.progress import say
from preheat_compiler.report import decimal
from preheat_runtime.compare import difference

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.inputs import Call
    from preheat_compiler.report import Report

#: Of the converted weights' size: themselves, the copy they are made from, and room for activations.
_ROOM = 3.0


def against_reference(
    compiled: Callable[..., Any], module: torch.nn.Module, bucket: Bucket, sizes: tuple[Sizes, ...], *,
    seeds: tuple[int, ...], device: str, report: Report,
) -> None:  # fmt: skip
    """Note the errors of both against the reference for all sizes and seeds, or why there is no reference.

    Never raises: it is not what the target is judged by.
    """
    import torch

    try:
        reference, dtype = _reference(module)
        kind = kind_of(tensors_of(module))
        for each in sizes:
            for seed in seeds:
                calls = [build_call(bucket, each, seed=seed, device=device) for _ in range(3)]
                with torch.autocast(kind, enabled=False):
                    truth = reference(*_converted(calls[0].args, dtype), **_converted(calls[0].kwargs, dtype))
                for which, run, call in (("eager", module, calls[1]), ("compiled", compiled, calls[2])):
                    maximum, mean = distance(call.of(run)(), truth)
                    report.note(
                        "reference",
                        inputs=f"{each.name}, seed {seed}",
                        kind=which,
                        dtype=str(dtype).removeprefix("torch."),
                        maximum=decimal(maximum),
                        mean=decimal(mean),
                    )
    except Exception as error:
        # Whatever a module's own code raises when its weights are of another type.
        words = describe(error, limit=300)
        say(f"no reference to compare with: {words}")
        report.note("reference", why=words)


def own_error(module: torch.nn.Module, call: Call, eager: Any) -> float | None:
    """How far eager's answer to `call` is from the more precise run's, as answers are compared; None where there is none."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves((call.args, dict(call.kwargs))) if isinstance(leaf, torch.Tensor)]
    kind = kind_of([*tensors, *tensors_of(module)])
    try:
        reference, dtype = _reference(module)
        with torch.autocast(kind, enabled=False):
            truth = reference(*_converted(call.args, dtype), **_converted(call.kwargs, dtype))
        leaves, spec = pytree.tree_flatten(eager)
        alike = [
            other.to(leaf.dtype) if isinstance(leaf, torch.Tensor) and isinstance(other, torch.Tensor) else other
            for leaf, other in zip(leaves, pytree.tree_leaves(truth), strict=True)
        ]
        seen = difference(pytree.tree_unflatten(alike, spec), eager).maximum
    except Exception as error:  # as above
        say(f"no reference to compare with: {describe(error, limit=300)}")
        return None
    return seen if math.isfinite(seen) else None


def distance(answer: Any, truth: Any) -> tuple[float, float]:
    """Largest and mean difference over the largest magnitude of `truth`, worst floating output each.

    Elements that are not finite on either side are left out: how those agree is told by the comparison with eager.
    """
    import torch
    from torch.utils import _pytree as pytree

    worst, mean = 0.0, 0.0
    for leaf, other in zip(pytree.tree_leaves(answer), pytree.tree_leaves(truth), strict=True):
        if not isinstance(other, torch.Tensor) or not (other.dtype.is_floating_point or other.dtype.is_complex):
            continue
        wide = torch.complex128 if other.dtype.is_complex else torch.float64
        seen, right = leaf.detach().to(wide), other.detach().to(wide)
        ordinary = torch.isfinite(seen) & torch.isfinite(right)
        if seen.shape != right.shape or not bool(ordinary.any()):
            continue
        apart = (seen[ordinary] - right[ordinary]).abs()
        scale = float(right[ordinary].abs().max()) or 1.0
        worst, mean = max(worst, float(apart.max()) / scale), max(mean, float(apart.mean()) / scale)
    return worst, mean


class _NoReference(Exception):
    """There is none for this module; the message says why."""


def _reference(module: torch.nn.Module) -> tuple[torch.nn.Module, torch.dtype]:
    import torch

    from preheat_runtime.trial import with_a_finaliser

    tensors = [each for each in tensors_of(module) if each.is_floating_point()]
    dtypes = {each.dtype for each in tensors}
    if torch.float64 in dtypes:
        raise _NoReference("the module computes in float64 itself")
    half = bool(dtypes & {torch.float16, torch.bfloat16})
    dtype = torch.float32 if half else torch.float64
    for device in dict.fromkeys(each.device for each in tensors):
        need = sum(each.numel() for each in tensors if each.device == device) * dtype.itemsize * _ROOM
        free = free_memory(device)
        if free is not None and need > free:
            raise _NoReference(f"on {device} it needs {need / 2**30:.1f} GiB and {free / 2**30:.1f} GiB are free")
    if any(math.prod(each.shape) and each.is_meta for each in tensors):
        raise _NoReference("the module has tensors without content")
    kind = with_a_finaliser(module)
    if kind is not None:
        raise _NoReference(f"a copy of the module would run {kind.__name__}.__del__ once more")
    return copy.deepcopy(module).to(dtype), dtype


def _converted(values: Any, dtype: torch.dtype) -> Any:
    from preheat_runtime.replaced import replaced

    return replaced(values, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)
