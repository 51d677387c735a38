"""Compares a package's answer with the module's own, and takes a package that is wrong out of use.

Why it exists: the verdict must be right in a process where everything goes on meanwhile: weights change, hooks appear,
memory is short. So nothing follows from a difference unless it is still there between two answers of eager that agree,
and unless it is more than the rounding of the call's own inputs makes of eager's answer: a norm of a constant image, such as
many warm up with, divides by next to nothing, and no two ways to compute it come out alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from .compare import difference
from .memory import memory_available
from .replaced import replaced
from .trial import NotRepeatable, Stopped, run, twin
from .verify import versions

if TYPE_CHECKING:
    from collections.abc import Callable

    from .compare import Difference
    from .verify import Call, Check

#: What any process with torch in it holds, of the peak that an eager process had in the compile Job.
_TORCH_BYTES = 128 * 1024 * 1024


#: Rounding that moves eager's answer by less is no excuse, also where the user allows less.
_MUCH = 1e-3


class _Rounding(Exception):
    """Rounding alone changes eager's answer to this call by as much; the message says so."""


class _Void(Exception):
    """The module or its weights changed meanwhile: nothing follows from this check."""


def settle(call: Call, answer: Any, stop: Callable[[], bool]) -> tuple[str | None, Any]:
    """Why the package that gave `answer` is wrong, and eager's answer; (None, None) when it is right, or nobody knows.

    Drops a wrong package and reports it. Raises what torch raises.
    """
    check = call.check
    allowed = check.candidate.target.allowed_error
    try:
        _require_room(check)
        with call.modes.entered():
            seen, eager = _compare(call, answer, allowed, stop)
    except (_Void, Stopped):
        return None, None  # it is due again
    except _Rounding as error:
        check.say(str(error))
        return None, None  # so it is; another call tells more
    except NotRepeatable as error:
        check.due = False
        check.say(str(error))
        return None, None
    check.due = False
    if seen.maximum <= allowed:
        return None, None
    words = f"its answer differed from eager's by {seen.words(allowed)}, so the package is not used again"
    check.verifier.wrong[check.candidate] = words
    check.say(seen.why or "the numbers differ", error=seen.maximum, allowed=allowed)
    return words, eager


def _compare(call: Call, answer: Any, allowed: float, stop: Callable[[], bool]) -> tuple[Difference, Any]:
    """How far the answer is from eager's, and that one. Raises _Void, _Rounding, NotRepeatable or Stopped."""
    eager = _eager(call, stop)
    _require_unchanged(call)
    seen = difference(answer, eager)
    if seen.maximum <= allowed:
        return seen, eager
    # torch does not count all changes of weights. But a package that is wrong is still wrong between two answers of eager
    # that agree.
    check = call.check
    again = check.package.again(twin(check.module, check.state.tensors.values()), call.args, call.kwargs)
    stayed = difference(_eager(call, stop), eager).maximum <= allowed
    _require_unchanged(call)
    if not stayed or difference(again, eager).maximum <= allowed:
        raise _Void
    moved = difference(_eager(call, stop, *_rounded((call.args, dict(call.kwargs)))), eager).maximum
    _require_unchanged(call)
    if math.inf > moved >= max(seen.maximum, _MUCH):
        raise _Rounding(
            f"an answer differed from eager's by {seen.words(allowed)}, but rounding its inputs otherwise moves eager's own by {moved:.1e}"
        )
    return seen, eager


def _eager(call: Call, stop: Callable[[], bool], args: Any = None, kwargs: Any = None) -> Any:
    """The module's own answer, to other arguments where they are given."""
    module = twin(call.check.module, call.check.state.tensors.values())
    # What was copied is what was bound.
    _require_unchanged(call)
    return run(module, call.args if args is None else args, call.kwargs if kwargs is None else kwargs, stop)


def _rounded(values: Any) -> Any:
    """The same with floating tensors other by up to one unit in the last place of their largest number (of 1 where all are 0)."""
    generator = torch.Generator().manual_seed(0)

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point() or tensor.numel() == 0:
            return tensor
        largest = float(tensor.abs().max())
        unit = torch.finfo(tensor.dtype).eps * (largest if 0 < largest < math.inf else 1.0)
        noise = torch.rand(tensor.shape, generator=generator, device="cpu") * 2 - 1
        return (tensor + (noise * unit).to(tensor)).detach()

    return replaced(values, rounded)


def _require_unchanged(call: Call) -> None:
    state = call.check.state
    if torch.nn.modules.module._has_any_global_hook() or versions(state) != call.versions or not state.unchanged():
        raise _Void


def _require_room(check: Check) -> None:
    """On the side, an eager run must not be what the container is killed for."""
    peak = check.candidate.entry.figures.get("eagerPeakBytes")
    if check.verifier.mode != "After" or peak is None:
        return
    weights = sum(each.numel() * each.element_size() for each in check.state.tensors.values())
    need = float(peak) - weights - _TORCH_BYTES
    free = memory_available()
    if free is not None and free < need:
        check.say(f"eager needs up to {need / 2**20:.0f} MiB beside the weights, and {free / 2**20:.0f} MiB are free")
        raise _Void
