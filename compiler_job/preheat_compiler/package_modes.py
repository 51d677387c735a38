"""Asks eager whether its answer is another one in modes that a pod may call it in and a package does not look at.

Why it exists: a package answers under `no_grad`, in inference mode, and with gradients on where nothing requires them. Code
that asks (`torch.is_grad_enabled()`, `x.requires_grad`) is traced in one mode, and that one's branch is all there is.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from preheat_runtime.compare import default_max_error, difference
from preheat_runtime.replaced import replaced

from .faults import common_reason
from .package_errors import NotPackageable
from .package_found import left_as_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .package_call import PlannedCall

_SEED = 1


def require_one_answer(module: torch.nn.Module, call: PlannedCall) -> None:
    """Raise NotPackageable when the module's answer depends on whether gradients are on or asked for, or on inference mode.

    Runs it under no_grad, in the other two modes, and with other tensors requiring gradients. A mode in which eager
    refuses the call says nothing.
    """
    usual = _answer(module, call, requires=None)
    for words, inference, requires in (
        ("with gradients on, where nothing requires them", False, False),
        ("in inference mode, or where weights and inputs require gradients", True, True),
        ("in inference mode", True, None),
    ):
        mode = torch.inference_mode() if inference else torch.enable_grad()
        try:
            with mode:
                other = _answer(module, call, requires=requires)
        except Exception as error:  # whatever the user's code raises
            if common_reason(error):
                raise
            continue
        if _apart(module, other, usual) and not _apart(module, _answer(module, call, requires=None), usual):
            raise NotPackageable(
                f"the answer is another one {words}: the code asks for it (torch.is_grad_enabled(), "
                "torch.is_inference_mode_enabled(), requires_grad), and a package is made for one answer"
            )
        if inference:
            return


def _answer(module: torch.nn.Module, call: PlannedCall, *, requires: bool | None) -> Any:
    """The answer to copies of the inputs; `requires` says of all tensors that could require gradients whether they do."""

    def own(tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach().clone()
        return copied.requires_grad_(bool(requires)) if _could_require(copied) else copied

    # Made outside inference mode, as a caller's are that was not in it before.
    with torch.inference_mode(mode=False):
        args, kwargs = replaced((call.args, dict(call.kwargs)), own)
    with left_as_found(module), _requiring(module, requires), torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        return module(*args, **kwargs)


@contextmanager
def _requiring(module: torch.nn.Module, requires: bool | None) -> Iterator[None]:
    """Inside, all parameters require gradients or none does; None leaves each as it is."""
    other = [each for each in module.parameters() if requires is not None and each.requires_grad != requires]
    other = [each for each in other if _could_require(each)]
    for each in other:
        each.requires_grad_(bool(requires))
    try:
        yield
    finally:
        for each in other:
            each.requires_grad_(not requires)


def _could_require(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_inference()


def _apart(module: torch.nn.Module, answer: Any, usual: Any) -> bool:
    """Whether two answers differ by more than rounding; a mode may choose other kernels."""
    seen = difference(answer, usual)
    weights = {str(each.dtype).removeprefix("torch.") for each in (*module.parameters(), *module.buffers())}
    return not seen.maximum <= float(default_max_error(weights | seen.dtypes))
