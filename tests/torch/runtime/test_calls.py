"""Which calls a package answers, and that every other call goes to torch and comes out right."""

import pytest
import torch

from seen import close

pytestmark = pytest.mark.torch


@pytest.fixture
def served(hot, net):
    return hot(net)


@torch.no_grad()
def test_answers_like_eager_for_every_batch_of_the_range(hot, net, served):
    for batch in (2, 3, 4, 31, 32):
        x = torch.randn(batch, 16)
        assert hot.served(lambda x=x: close(served(x), net(x)))


@torch.no_grad()
def test_the_output_tree_is_eagers(hot, net, served):
    answer = served(torch.randn(4, 16))
    assert list(answer) == ["y", "twice", "n"]
    assert type(answer["twice"]) is tuple
    assert answer["twice"][1] is None
    assert answer["n"] == 5
    assert not hot.fallbacks


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m(x),
        lambda m, x: m(x=x),
        lambda m, x: m(x, True),
        lambda m, x: m(x, flag=True, k=3),
        lambda m, x: m(k=3, x=x),
        lambda m, x: m(x[:]),
    ],
)
@torch.no_grad()
def test_the_same_call_said_differently_is_answered(hot, net, served, call):
    x = torch.randn(4, 16)
    assert hot.served(lambda: close(call(served, x), net(x)))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m(x, False),
        lambda m, x: m(x, k=4),
        lambda m, x: m(x, k=3.0),
        lambda m, x: m(x, 1),
        lambda m, x: m(torch.randn(1, 16, generator=torch.Generator().manual_seed(0))),
        lambda m, x: m(x.repeat(9, 1)),
        lambda m, x: m(x.t().contiguous().t()),
        lambda m, x: m(x.repeat(1, 2)[:, ::2]),
        lambda m, x: m(x[:1].expand(4, 16)),
        lambda m, x: m(torch.complex(torch.zeros(4, 16), x).conj().imag),
        lambda m, x: m(x.repeat(1, 2)[:, 16:]),
        lambda m, x: m(torch.nn.Parameter(x, requires_grad=False)),
    ],
    ids=[
        "flag", "k", "k float", "1 for True", "too few", "too many", "transposed", "strided", "expanded", "negated", "slice",
        "parameter",
    ],
)  # fmt: skip
@torch.no_grad()
def test_another_call_goes_to_torch_and_is_right(hot, net, served, call):
    x = torch.randn(4, 16)
    assert not hot.served(lambda: close(call(served, x), call(net, x)))


@torch.no_grad()
def test_misaligned_memory_is_right(hot, net, served):
    x = torch.randn(4 * 16 + 1)[1:].view(4, 16)
    assert hot.served(lambda: close(served(x), net(x)))


@torch.no_grad()
def test_a_wrong_call_raises_what_the_model_raises(hot, served):
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        served(torch.randn(4, 17))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        served()


def test_another_dtype_goes_to_torch(hot, nets):
    net = nets.trap().double()
    served = hot(net)
    x = torch.randn(4, 16, dtype=torch.float64)
    with torch.no_grad():
        assert not hot.served(lambda: close(served(x), net(x)))
    assert "dtype float64, artifact has float32" in hot.lines[0]["reason"]


def test_subclasses_and_transforms_go_to_torch(hot, net, served):
    x = torch.randn(4, 16)
    with torch.no_grad():
        assert not hot.served(lambda: torch.func.vmap(lambda row: served(row)["y"])(x.repeat(2, 1, 1)))

        class Mine(torch.Tensor):
            pass

        assert not hot.served(lambda: served(x.as_subclass(Mine)))


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_both_ways_to_turn_grad_off_are_served(hot, net, served, mode):
    x = torch.randn(4, 16)
    with mode():
        assert hot.served(lambda: close(served(x), net(x)))
    with torch.inference_mode():
        inside = torch.randn(4, 16)
        assert hot.served(lambda: close(served(inside), net(inside)))
        assert served(inside)["y"].is_inference()


def test_grad_goes_to_torch_when_anything_requires_it(hot, net, served):
    x = torch.randn(4, 16)
    assert not hot.served(lambda: served(x)["y"].sum().backward())
    assert net.square.weight.grad is not None
    net.requires_grad_(False)
    assert hot.served(lambda: served(x))
    needs = x.clone().requires_grad_()
    assert not hot.served(lambda: served(needs)["y"].sum().backward())
    assert needs.grad is not None
    assert "inference_mode" in hot.lines[0]["reason"]


@torch.no_grad()
def test_modes_compiled_code_ignores_go_to_torch(hot, net, served):
    x = torch.randn(4, 16)
    assert hot.served(lambda: served(x))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not hot.served(lambda: served(x))
        assert served(x)["y"].dtype == torch.bfloat16 or net(x)["y"].dtype == served(x)["y"].dtype
    with torch.device("cpu"):
        assert not hot.served(lambda: served(x))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert not hot.served(lambda: served(x))
    finally:
        torch.set_float32_matmul_precision(before)
    torch.set_default_dtype(torch.float64)
    try:
        assert not hot.served(lambda: served(x))
    finally:
        torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    try:
        assert not hot.served(lambda: served(x))
    finally:
        torch.use_deterministic_algorithms(False)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert not hot.served(lambda: served(x))
    finally:
        handle.remove()
    assert hot.served(lambda: served(x))
