"""What may change in the module: other weights are seen, and whatever else changed sends the call to torch."""

import re
import types

import pytest
import torch
from torch.nn.utils import parametrizations, parametrize

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


class Louder(torch.nn.Module):
    def forward(self, weight):
        return weight * 1.5


class Lora(torch.nn.Module):
    """An adapter of low rank around a linear layer, as libraries for fine-tuning put it there."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down, self.up = torch.nn.Linear(16, 2, bias=False), torch.nn.Linear(2, 8, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapt(net):
    net.narrow = Lora(net.narrow)


def take_adapter_away(net):
    net.narrow = net.narrow.base


def adapted_weights(net):
    """As PEFT does it: the layer stays what it is, and gets submodules and a `forward` of its own."""
    net.narrow.down, net.narrow.up = torch.nn.Linear(16, 2, bias=False), torch.nn.Linear(2, 8, bias=False)
    own = net.narrow.forward
    net.narrow.forward = lambda x: own(x) + net.narrow.up(net.narrow.down(x))


def take_adapted_weights_away(net):
    del net.narrow.forward, net.narrow.down, net.narrow.up


def parametrized(net):
    parametrize.register_parametrization(net.narrow, "weight", Louder())


def original(net):
    parametrize.remove_parametrizations(net.narrow, "weight", leave_parametrized=False)


@torch.enable_grad()
def computed(net):
    parametrize.remove_parametrizations(net.narrow, "weight")


def computed_without_grad(net):
    parametrize.remove_parametrizations(net.narrow, "weight")


#: What is put around a layer or its weight, and how it is taken away again.
AROUND = {
    "register_parametrization": (parametrized, original),
    "register_parametrization, computed weight kept": (parametrized, computed),
    "weight_norm": (lambda net: parametrizations.weight_norm(net.narrow), computed),
    "spectral_norm": (lambda net: parametrizations.spectral_norm(net.narrow), computed),
    "LoRA wrapper": (adapt, take_adapter_away),
    "LoRA in the layer": (adapted_weights, take_adapted_weights_away),
}
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


@pytest.mark.parametrize(("put", "take_away"), AROUND.values(), ids=AROUND.keys())
@torch.no_grad()
def test_what_is_put_around_a_layer_goes_to_torch_until_it_is_taken_away(hot, net, put, take_away):
    """Also a second time. What is left behind, such as another order of parameters, is no difference."""
    served, x = warm_up(hot, net)
    for _ in range(2):
        put(net)
        assert not hot.served(lambda: right(served, net, x))
        take_away(net)
        assert hot.served(lambda: right(served, net, x)), hot.lines[-1]


LEFT_OTHERWISE = {
    "without grad, torch leaves a buffer": (AROUND["weight_norm"][0], computed_without_grad, "has kind buffer"),
    "orthogonal leaves another order in memory": (
        lambda net: parametrizations.orthogonal(net.narrow),
        computed,
        "has stride",
    ),
    "an adapter merged into a copy of the layer": (
        adapt,
        lambda net: setattr(net, "narrow", torch.nn.Linear(16, 8).train()),
        "an attribute of submodule 'narrow'",
    ),
}


@pytest.mark.parametrize(("put", "take_away", "words"), LEFT_OTHERWISE.values(), ids=LEFT_OTHERWISE.keys())
@torch.no_grad()
def test_a_layer_that_is_left_otherwise_than_it_was_stays_with_torch(hot, net, put, take_away, words):
    served, x = warm_up(hot, net)
    put(net)
    take_away(net)
    assert not hot.served(lambda: right(served, net, x))
    assert words in hot.lines[-1]["reason"]


@torch.no_grad()
def test_a_layer_that_had_something_around_it_when_it_was_compiled_is_served_once_it_has_not(hot, net):
    parametrized(net)
    served, x = hot(net), torch.randn(4, 16)
    assert not hot.served(lambda: right(served, net, x))
    computed(net)
    assert hot.served(lambda: right(served, net, x))


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
