"""Calls with tensors on a GPU: which are ordinary ones, and of the GPU that was compiled for. No CUDA is begun with for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from cuda_tensors import cuda_tensor, needs_a_cuda_build, on_cuda
from preheat_runtime.bind import ModuleState
from preheat_runtime.calls import Matcher
from preheat_runtime.identity import describe, difference
from preheat_runtime.modes import plain_keys
from preheat_runtime.package import CallSpec, DimRange, TensorSpec
from preheat_runtime.reasons import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = DimRange(name="n", minimum=2, maximum=4)
BUILT = needs_a_cuda_build


@pytest.fixture(autouse=True)
def cuda_is_left_alone() -> Iterator[None]:
    yield
    assert not torch.cuda.is_initialized()


def matcher(*shape: int | str, device: str = "cuda:0", dtype: str = "float32") -> Matcher:
    tensor = TensorSpec(parameter="x", shape=shape, dtype=dtype, device=device)
    return Matcher(CallSpec(arguments=(tensor,), dims=(BATCH,)), lambda x: x)


def match(made: Matcher, *args: Any, **kwargs: Any) -> Any:
    return made.match(args, kwargs)


def keys(device: str, *, inference: bool) -> Any:
    """Of what torch itself makes there."""
    with torch.inference_mode(inference):
        return torch._C._dispatch_keys(torch.empty(0, device=device))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_ordinary_tensors_have_the_keys_that_torch_gives_them(device: str) -> None:
    assert plain_keys(device) == (keys(device, inference=False), keys(device, inference=True))


@pytest.mark.parametrize("device", ["cuda", "xpu", "mps"])
def test_so_have_those_on_a_gpu_but_that_they_are_no_fakes(device: str) -> None:
    of_fakes = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)
    with FakeTensorMode():
        fakes = (keys(device, inference=False), keys(device, inference=True))
    assert plain_keys(device) == tuple(each - of_fakes for each in fakes)


@BUILT
def test_what_torch_makes_of_memory_on_a_gpu_has_them() -> None:
    for inference, expected in zip((False, True), plain_keys("cuda"), strict=True):
        with torch.inference_mode(inference):
            assert torch._C._dispatch_keys(cuda_tensor(2)) == expected


def test_no_tensor_has_the_keys_of_a_device_that_torch_has_none_of() -> None:
    assert torch._C._dispatch_keys(torch.empty(0)) not in plain_keys("odd")


SIZES = pytest.mark.parametrize("shape", [(2, 3), ("n", 3)], ids=["fixed sizes", "sizes that vary"])


@BUILT
@SIZES
@pytest.mark.parametrize("inference", [False, True])
def test_a_call_on_the_gpu_that_was_compiled_for_is_answered(shape: tuple[int | str, ...], inference: bool) -> None:
    with torch.inference_mode(inference):
        made = matcher(*shape)
        for _ in range(3):  # also as one that is known
            given = cuda_tensor(2, 3)
            assert match(made, given)[0] is given
            assert match(made, x=given)[0] is given
    assert len(made._known) == (shape == (2, 3))


@BUILT
@SIZES
def test_another_gpu_or_the_cpu_is_another_call(shape: tuple[int | str, ...]) -> None:
    made = matcher(*shape)
    for _ in range(2):  # also once a call is known
        assert match(made, cuda_tensor(2, 3, index=1)) == "argument x: is on cuda:1, compiled for cuda:0"
        assert match(made, torch.zeros(2, 3)) == "argument x: is on cpu, compiled for cuda:0"
        assert match(made, torch.zeros(2, 3, device="meta")) == "argument x: is on meta, compiled for cuda:0"
        assert not isinstance(match(made, cuda_tensor(2, 3)), str)
    assert match(matcher(*shape, device="cuda:1"), cuda_tensor(2, 3)) == "argument x: is on cuda:0, compiled for cuda:1"
    assert "is not an ordinary tensor on cpu (cuda:0" in match(matcher(*shape, device="cpu"), cuda_tensor(2, 3))
    assert class_of("cold", f"no bucket answers this call: one: {match(made, torch.zeros(2, 3))}") == "CallNotCovered"


def lazily_conjugate() -> torch.Tensor:
    return torch._conj(cuda_tensor(2, 3, dtype=torch.complex64))


ODD: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "lazily negative": (lambda: torch._neg_view(cuda_tensor(2, 3)), "float32"),
    "lazily conjugate": (lazily_conjugate, "complex64"),
    "functional": (lambda: torch._to_functional_tensor(cuda_tensor(2, 3)), "float32"),
}


@BUILT
@pytest.mark.parametrize(("odd", "dtype"), ODD.values(), ids=ODD)
def test_what_is_no_ordinary_tensor_on_a_gpu_is_seen(odd: Callable[[], torch.Tensor], dtype: str) -> None:
    made = matcher(2, 3, dtype=dtype)
    for _ in range(2):  # also once a call is known
        assert "is not an ordinary tensor on cuda:0 (cuda:0, torch.strided)" in match(made, odd())
        assert not isinstance(match(made, cuda_tensor(2, 3, dtype=getattr(torch, dtype))), str)
    assert len(made._known) == 1


@BUILT
def test_another_size_type_or_order_is_told_as_on_a_cpu() -> None:
    made = matcher(2, 3)
    assert "has shape (2, 4)" in match(made, cuda_tensor(2, 4))
    assert "has dtype float16" in match(made, cuda_tensor(2, 3, dtype=torch.float16))
    assert "is not contiguous" in match(made, cuda_tensor(3, 2).t())
    assert "compiled for a tensor" in match(made, torch.nn.Parameter(cuda_tensor(2, 3)))


@BUILT
def test_under_autocast_a_call_is_known_as_well() -> None:
    made = matcher(2, 3)
    with torch.no_grad():
        assert not isinstance(match(made, cuda_tensor(2, 3)), str)
        torch.set_autocast_enabled("cuda", True)
        try:
            for _ in range(3):
                given = cuda_tensor(2, 3)
                assert match(made, given)[0] is given
        finally:
            torch.set_autocast_enabled("cuda", False)
    assert len(made._known) == 2


def test_a_call_of_tensors_without_memory_may_be_compiled_for() -> None:
    made = matcher(2, 3, device="meta")
    given = torch.zeros(2, 3, device="meta")
    for _ in range(2):
        assert match(made, given)[0] is given
        assert match(made, torch.zeros(2, 3)) == "argument x: is on cpu, compiled for meta"
        assert "is not an ordinary tensor on meta" in match(made, torch._neg_view(given))


def test_a_device_that_this_torch_does_not_know_fits_nothing() -> None:
    assert match(matcher(2, 3, device="odd:0"), torch.zeros(2, 3)) == "argument x: is on cpu, compiled for odd:0"


@BUILT
def test_a_module_on_a_gpu_is_known_from_call_to_call() -> None:
    """What it is now is asked at every call; it begins with no CUDA either."""
    net = on_cuda(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3)).eval())
    state = ModuleState(net)
    assert {entry.device for entry in state.identity.tensors.values()} == {"cuda:0"}
    assert state.unchanged()
    net[0].weight = torch.nn.Parameter(cuda_tensor(3, 3))
    assert not state.unchanged()


@BUILT
def test_a_weight_on_another_gpu_is_told_with_what_to_do() -> None:
    first, second, cpu = (
        describe(net).identity
        for net in (on_cuda(torch.nn.Linear(3, 3)), on_cuda(torch.nn.Linear(3, 3), index=1), torch.nn.Linear(3, 3))
    )
    remedy = "let each process see its own GPU alone, as cuda:0 (CUDA_VISIBLE_DEVICES)"
    assert difference(second, first) == f"weight has device cuda:1, artifact has cuda:0; {remedy}"
    assert difference(cpu, first) == "weight has device cpu, artifact has cuda:0"
    assert class_of("cold", f"no artifact is for this Net: main/one: {difference(second, first)}") == "ModelDiffers"
