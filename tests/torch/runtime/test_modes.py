"""Modes of torch that a package would ignore, beyond those of test_calls.py."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from preheat_runtime import choosing, modes

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 64).view(4, 16)


@pytest.fixture
def served(hot, nets):
    return hot(nets.trap(seed=3))


@torch.no_grad()
def test_who_sets_a_stance_gets_torch(hot, served):
    assert hot.served(lambda: served(X))
    with torch.compiler.set_stance("force_eager"):
        assert not hot.served(lambda: served(X))
    assert hot.served(lambda: served(X))
    assert "set_stance asks for force_eager" in hot.lines[-1]["reason"]


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch, about itself
@torch.no_grad()
def test_tangents_go_to_torch(hot, served):
    ad = torch.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(X, torch.ones_like(X))
        assert not hot.served(lambda: served(dual))
        assert ad.unpack_dual(served(dual)["y"]).tangent is not None
    assert hot.served(lambda: served(X))


@torch.no_grad()
def test_calls_that_differ_in_autocast_make_no_changed_module(hot, served, monkeypatch):
    """More of them than a module may change in a row."""
    described = []
    real = choosing.ModuleState
    monkeypatch.setattr(choosing, "ModuleState", lambda module: described.append(module) or real(module))
    for _ in range(choosing.MAX_CHANGES_IN_A_ROW + 2):
        assert hot.served(lambda: served(X))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not hot.served(lambda: served(X))
    assert len(described) == 1
    assert "autocast is on" in hot.lines[-1]["reason"]


@pytest.mark.parametrize("first", ["a default device", "fake tensors"])
@torch.no_grad()
def test_a_first_call_in_a_mode_keeps_no_later_call_from_the_package(hot, nets, first):
    """Sizes are worked out so before a server begins; what an ordinary tensor is was learned there, for good."""
    net = nets.trap(seed=3)
    served = hot(net)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    modes.plain_keys.cache_clear()
    try:
        with torch.device("meta") if first == "a default device" else fake:
            odd = X if first == "a default device" else fake.from_tensor(X)
            assert not hot.served(lambda: served(odd))
        assert hot.served(lambda: served(X))
        assert torch.allclose(served(X)["y"], net(X)["y"], rtol=1e-4, atol=1e-5)
    finally:
        modes.plain_keys.cache_clear()
