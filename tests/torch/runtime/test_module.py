"""What may change in the module: other weights are seen, and whatever else changed sends the call to torch."""

import re
import types

import pytest
import torch

pytestmark = pytest.mark.torch


def warm_up(hot, net):
    served = hot(net)
    x = torch.randn(4, 16)
    assert hot.served(lambda: served(x))
    return served, x


def right(served, net, x):
    torch.testing.assert_close(served(x), net(x), rtol=1e-4, atol=1e-5)


def other(nets):
    return nets.trap(seed=7)


def fill_(net):
    for tensor in [*net.parameters(), *net.buffers()]:
        if tensor.is_floating_point():
            tensor.copy_(torch.rand_like(tensor) + 0.5)


WEIGHTS = {
    "copy_": lambda net, nets: fill_(net),
    "load_state_dict": lambda net, nets: net.load_state_dict(other(nets).state_dict()),
    "load_state_dict(assign=True)": lambda net, nets: net.load_state_dict(other(nets).state_dict(), assign=True),
    "setattr": lambda net, nets: setattr(net.narrow, "weight", torch.nn.Parameter(torch.randn(8, 16))),
    "_parameters[...]": lambda net, nets: net.narrow._parameters.__setitem__("bias", torch.nn.Parameter(torch.randn(8))),
    "buffer": lambda net, nets: setattr(net, "shift", torch.randn(8)),
    "submodule": lambda net, nets: setattr(net, "narrow", torch.nn.Linear(16, 8).eval()),
    "data =": lambda net, nets: setattr(net.square.weight, "data", torch.randn(16, 16)),
    "set_": lambda net, nets: net.square.weight.set_(torch.randn(16, 16)),
    "double().float()": lambda net, nets: net.double().float(),
    "tiny scale": lambda net, nets: net.scale.fill_(0.9),
    "swap_tensors": lambda net, nets: torch.utils.swap_tensors(
        net.narrow.bias, torch.nn.Parameter(torch.randn(8))
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", WEIGHTS.values(), ids=WEIGHTS.keys())
@torch.no_grad()
def test_other_weights_are_served(hot, nets, net, change):
    served, x = warm_up(hot, net)
    before = served(x)["y"].clone()
    change(net, nets)
    assert hot.served(lambda: right(served, net, x))
    if change is not WEIGHTS["double().float()"]:
        assert (served(x)["y"] - before).abs().max() > 1e-3


def tie(net):
    net.norm.bias = net.norm.weight


CHANGES = {
    "train()": lambda net: net.train(),
    "one part train()": lambda net: net.norm.train(),
    "attribute": lambda net: setattr(net, "factor", 2.5),
    "attribute of another type": lambda net: setattr(net, "factor", torch.tensor(1.5)),
    "dict in an attribute": lambda net: net.config.__setitem__("bias", 0.5),
    "eps": lambda net: setattr(net.norm, "eps", 0.1),
    "forward override": lambda net: setattr(net, "forward", types.MethodType(lambda self, x: {"y": x}, net)),
    "forward hook": lambda net: net.narrow.register_forward_hook(lambda m, a, out: out * 2),
    "pre-hook": lambda net: net.register_forward_pre_hook(lambda m, a: (a[0] * 2,)),
    "to(bfloat16) of a part": lambda net: net.norm.to(torch.bfloat16).to(torch.float32).half().float().double(),
    "another class": lambda net: setattr(net, "norm", torch.nn.Identity()),
    "transposed square": lambda net: setattr(net.square.weight, "data", net.square.weight.data.t()),
    "tied": tie,
    "new submodule": lambda net: setattr(net, "extra", torch.nn.Linear(2, 2)),
    "unregistered": lambda net: net._buffers.pop("shift") is None or setattr(net, "shift", torch.ones(8)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@torch.no_grad()
def test_anything_else_goes_to_torch(hot, net, change):
    served, x = warm_up(hot, net)
    change(net)
    try:
        expected = net(x)
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error)[:20])):
            served(x)
        return
    assert not hot.served(lambda: torch.testing.assert_close(served(x), expected))


@torch.no_grad()
def test_changed_back_it_is_served_again(hot, net):
    served, x = warm_up(hot, net)
    for _ in range(3):
        net.train()
        assert not hot.served(lambda: served(x))
        net.eval()
        assert hot.served(lambda: served(x))


@torch.no_grad()
def test_a_replaced_helper_and_a_changed_global_go_to_torch(hot, nets, net, monkeypatch):
    served, x = warm_up(hot, net)
    with monkeypatch.context() as patch:
        patch.setattr(nets, "GAIN", 3.0)
        assert not hot.served(lambda: right(served, net, x))
    assert hot.served(lambda: right(served, net, x))
    with monkeypatch.context() as patch:
        patch.setattr(nets, "helper", lambda x: x - 1)
        assert not hot.served(lambda: right(served, net, x))
    with monkeypatch.context() as patch:
        patch.setattr(nets.Trap, "forward", lambda self, x: {"y": x})
        assert not hot.served(lambda: right(served, net, x))


@torch.no_grad()
def test_patched_torch_goes_to_torch(hot, net, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.Linear, "forward", lambda self, x: x @ self.weight.t())
        served = hot(net)
        x = torch.randn(4, 16)
        assert not hot.served(lambda: right(served, net, x))
    with monkeypatch.context() as patch:
        patch.setattr(torch.nn.functional, "linear", lambda x, w, b=None: x @ w.t())
        served = hot(net)
        assert not hot.served(lambda: right(served, net, x))


@torch.no_grad()
def test_a_module_that_changes_with_every_call_is_left_to_torch(hot, net):
    served, x = warm_up(hot, net)
    for number in range(40):
        net.factor = 1.5 + 0.0 * number if number % 2 else float("1.5")
        right(served, net, x)
    assert not hot.served(lambda: right(served, net, x))
    assert hot.lines[-1]["reason"] == "the module changes with every call"


@torch.no_grad()
def test_memory_of_replaced_weights_is_not_read_after_it_is_freed(hot, net):
    served, x = warm_up(hot, net)
    for _ in range(20):
        net.square.weight.data = torch.randn(16, 16)
        torch.full((64, 64), float("nan"))
        right(served, net, x)
        right(served, net, x)
    assert not hot.fallbacks


@torch.no_grad()
def test_a_module_that_the_real_torch_compile_has_marked_is_still_hot(hot, nets):
    net = nets.trap()
    served = hot(net)
    assert hot.served(lambda: served(torch.randn(4, 16)))
    torch.compile(net, backend="eager")  # as for a call that no bucket answers
    assert "_is_torch_compile" in vars(net)
    assert hot.served(lambda: served(torch.randn(4, 16)))
