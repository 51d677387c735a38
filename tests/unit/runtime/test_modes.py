"""What we ask torch for our own sake is the same in whatever mode the user's call is, and no mode of the user's sees it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from preheat_runtime import identity, modes
from preheat_runtime.calls import Matcher
from preheat_runtime.modes import usual_keys
from preheat_runtime.package import CallSpec, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class SeenFunctions(TorchFunctionMode):  # type: ignore[misc]
    seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SeenFunctions.seen += 1
        return func(*args, **(kwargs or {}))


class SeenOperators(TorchDispatchMode):  # type: ignore[misc]
    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        SeenOperators.seen += 1
        return func(*args, **(kwargs or {}))


MODES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "none": nullcontext,
    "a default device": lambda: torch.device("meta"),
    "fake tensors": FakeTensorMode,
    "fake tensors beside others": lambda: FakeTensorMode(allow_non_fake_inputs=True),
    "operators are counted": lambda: FlopCounterMode(display=False),
    "functions are seen": SeenFunctions,
    "operators are seen": SeenOperators,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu"),
}
EACH = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
X = torch.ones(2, 3)


def forward(x: torch.Tensor) -> torch.Tensor:
    raise AssertionError("never called")


@pytest.fixture(autouse=True)
def first_call() -> Iterator[None]:
    """As in a process that has answered nothing yet."""
    modes.plain_keys.cache_clear()
    SeenFunctions.seen = SeenOperators.seen = 0
    yield
    modes.plain_keys.cache_clear()


def matcher() -> Matcher:
    tensor = TensorSpec(parameter="x", shape=(2, 3), dtype="float32", device="cpu")
    return Matcher(CallSpec(arguments=(tensor,)), forward)


@EACH
def test_the_mode_of_the_first_call_says_nothing_of_later_ones(
    mode: Callable[[], AbstractContextManager[object]],
) -> None:
    with mode():
        made = matcher()
    assert SeenFunctions.seen == SeenOperators.seen == 0
    for each in (made, matcher()):
        (found,) = each.match((X,), {})  # type: ignore[misc] (a reason would be too long)
        assert found is X
    with torch.inference_mode():
        of_inference = torch.ones(2, 3)
    assert matcher().match((of_inference,), {}) == [of_inference]
    for odd in (torch.ones(2, 3, device="meta"), FakeTensorMode().from_tensor(X)):
        assert "for a tensor" in str(matcher().match((odd,), {})) or "ordinary" in str(matcher().match((odd,), {}))


@pytest.mark.parametrize("transform", [torch.func.vmap, torch.func.grad, torch.func.functionalize])
def test_a_transform_says_nothing_either(transform: Callable[..., Any]) -> None:
    def first(x: torch.Tensor) -> torch.Tensor:
        modes.plain_keys("cpu")
        return x.sum()

    transform(first)(torch.ones(3))
    assert matcher().match((X,), {}) == [X]


def test_a_thread_in_no_mode_includes_the_usual_keys() -> None:
    assert usual_keys() == torch._C._dispatch_tls_local_include_set()


class Holds(nn.Module):
    """Tensors that no parameter and no buffer is, so that they are known by their content."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.arange(3.0)
        self.turned = torch.arange(6.0).view(2, 3).t()
        self.negated = torch._neg_view(torch.arange(3.0))
        self.half = [torch.ones(2, dtype=torch.bfloat16)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


@EACH
def test_what_a_module_is_does_not_depend_on_the_mode(mode: Callable[[], AbstractContextManager[object]]) -> None:
    net = Holds()
    outside = identity.describe(net)
    with mode():
        inside = identity.describe(net)
        assert outside.watch.unchanged()
    assert SeenOperators.seen == 0
    assert inside.watch.unchanged()
    assert inside.identity == outside.identity
    net.negated.add_(1)
    assert not inside.watch.unchanged()
    assert not outside.watch.unchanged()
