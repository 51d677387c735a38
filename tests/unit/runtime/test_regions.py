"""What is looked at for each region, between one and the next."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from preheat_runtime.calls import Matcher
from preheat_runtime.levers import Levers
from preheat_runtime.native import NativeError
from preheat_runtime.package import CallSpec, TensorSpec
from preheat_runtime.regions import _Region

X = torch.zeros(2, 3)
CALL = CallSpec(arguments=(TensorSpec(parameter="x", shape=(2, 3), dtype="float32", device="cpu"),), dims=())


@pytest.fixture
def region():
    return made(Levers())


def made(levers, *, requires_grad=False):
    package = SimpleNamespace(state=SimpleNamespace(requires_grad=requires_grad), levers=levers, missed={})
    code = SimpleNamespace(match=Matcher(CALL, lambda x: x).match, run=lambda tensors: tensors)
    return _Region(code, torch.nn.Identity(), "part", package)


def answers(region, x=X):
    """Whether the code may answer; twice, since a call like one before is compared in another way."""
    first, second = region.check((x,), {}), region.check((x,), {})
    assert isinstance(first, str) == isinstance(second, str)
    return not isinstance(first, str)


@contextlib.contextmanager
def global_hook():
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def compiling():
    before, torch.compiler._is_compiling_flag = torch.compiler._is_compiling_flag, True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


MODES = {
    "a function mode": TorchFunctionMode,
    "a dispatch mode": TorchDispatchMode,
    "a default device": lambda: torch.device("cpu"),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast of other devices": lambda: torch.autocast("xpu"),
    "a hook on all modules": global_hook,
    "forward-mode gradients": torch.autograd.forward_ad.dual_level,
    "a stance": lambda: torch.compiler.set_stance("force_eager"),
    "compiling": compiling,
}


@pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::UserWarning"
)  # of torch, about itself and what is not here
@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES.keys())
def test_a_mode_between_two_regions_is_seen(region, mode, inference):
    with torch.inference_mode(inference):
        assert answers(region)
        with mode():
            assert not answers(region)
        assert answers(region)


def test_a_transform_is_seen(region):
    assert answers(region)

    def watched(x):
        assert not answers(region), "also to what is none of its own"
        return x.sum()

    torch.func.grad(watched)(X)
    assert answers(region)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of torch, about itself
def test_a_trace_is_seen(region):
    assert answers(region)

    def traced(x):
        assert not answers(region), "also to what is none of its own"
        return x + 1

    torch.jit.trace(traced, X, check_trace=False)
    assert answers(region)


def test_gradients_are_seen(region):
    with torch.no_grad():
        assert answers(region)
    wanted = torch.zeros(2, 3, requires_grad=True)
    with torch.no_grad():
        assert answers(region, wanted)
    assert not answers(region, wanted)
    assert answers(region)
    other = made(Levers(), requires_grad=True)
    with torch.no_grad():
        assert answers(other)
    assert not answers(other)


def test_autocast_must_be_as_it_was_compiled():
    half = made(Levers(autocast="bfloat16"))
    for dtype, fits in ((torch.bfloat16, True), (torch.float16, False)):
        with torch.autocast("cpu", dtype=dtype):
            assert answers(half) == fits
    assert not answers(half)


def test_a_broken_region_stays_out(region):
    region._broken = "it failed"
    assert not answers(region)


class Block(torch.nn.Module):
    """A region as it runs without code."""

    def forward(self, x):
        return "as it is"


@pytest.mark.parametrize("part", ["match", "run"])
@pytest.mark.parametrize("error", [OSError("too many open files"), NativeError("no memory")], ids=repr)
def test_whatever_fails_of_ours_the_region_runs_as_it_is_and_is_noted(part, error):
    asked = []

    def broken(*_):
        asked.append(part)
        raise error

    code = SimpleNamespace(**{"match": lambda *_: [X], "run": lambda _: "code", part: broken})
    package = SimpleNamespace(state=SimpleNamespace(requires_grad=False), levers=Levers(), missed={})
    region = _Region(code, Block(), "part", package)
    assert [region((X,), {}) for _ in range(3)] == ["as it is"] * 3
    assert package.missed == {"part": f"{type(error).__name__}: {error}"}
    assert asked == [part], "it is not tried again"


def test_what_the_region_itself_raises_is_raised_and_nothing_of_ours_with_it():
    class Failing(torch.nn.Module):
        def forward(self, x):
            raise KeyError("of the user")

    def broken(*_):
        raise NativeError("no memory")

    package = SimpleNamespace(state=SimpleNamespace(requires_grad=False), levers=Levers(), missed={})
    region = _Region(SimpleNamespace(match=lambda *_: [X], run=broken), Failing(), "part", package)
    with pytest.raises(KeyError, match="of the user") as raised:
        region((X,), {})
    assert raised.value.__context__ is None
    assert (region._broken, package.missed) == (None, {}), "the call was to blame, not the code"
