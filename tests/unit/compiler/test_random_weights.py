"""Random weights: every kind of tensor gets other values that a network survives, large ones part by part."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from preheat_compiler import package_proof
from preheat_compiler.package_proof import randomise_


class Odd(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.weight = nn.Parameter((torch.randn(40, 30) * 2 + 1).to(dtype))
        self.tied = self.weight
        self.turned = nn.Parameter((torch.randn(30, 40) * 2).to(dtype).t())
        self.equal = nn.Parameter(torch.full((50,), 3.0).neg().to(dtype))
        self.single = nn.Parameter(torch.tensor(-2.0).to(dtype))
        self.empty = nn.Parameter(torch.empty(0, 4).to(dtype))
        self.register_buffer("variance", torch.rand(60).add(0.5).to(dtype))
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1).to(dtype))
        self.register_buffer("places", torch.arange(9))


@pytest.mark.parametrize("part", [1 << 22, 100, 7, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_spread_stays_and_the_values_do_not(monkeypatch: pytest.MonkeyPatch, part: int, dtype: torch.dtype) -> None:
    monkeypatch.setattr(package_proof, "_PART", part)
    net, before = Odd(dtype), Odd(dtype).state_dict()
    randomise_(net, 5)
    for name in ("weight", "turned", "equal", "single", "variance"):
        assert not torch.equal(net.state_dict()[name], before[name]), name
    for name in ("weight", "turned"):
        old, new = before[name].double(), net.state_dict()[name].double()
        assert float(new.std()) == pytest.approx(float(old.std()), rel=0.15)
        assert float(new.mean()) == pytest.approx(float(old.mean()), abs=0.3)
        assert len(new.unique()) > 500 or dtype == torch.bfloat16
    assert net.tied is net.weight
    assert net.turned.stride() == (1, 40)
    assert float(net.equal.detach().double().std()) == pytest.approx(0.1, rel=0.4)
    assert bool((net.variance > 0).all())
    assert bool((net.variance <= before["variance"].double() * 1.26).all())
    for name in ("mask", "places", "empty"):
        assert torch.equal(net.state_dict()[name], before[name]), name


def test_the_parts_are_all_of_it_and_none_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_proof, "_PART", 64)
    tensor = torch.zeros(3, 500).t()
    parts = package_proof._parts(tensor)
    assert max(part.numel() for part in parts) <= 64
    for part in parts:
        part.fill_(1)
    assert bool((tensor == 1).all())
