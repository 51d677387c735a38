"""Random weights: every kind of tensor gets other values that a network survives, large ones part by part."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from preheat_compiler import package_proof
from preheat_compiler.package_proof import randomise_, shuffle_


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


class Rare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("eight", torch.randn(40, 30).to(torch.float8_e4m3fn))
        self.register_buffer("turns", torch.polar(torch.ones(20, 8), torch.rand(20, 8)))
        self.register_buffer("repeated", torch.full((1, 1), 3.0).expand(6, 5))


def test_narrow_complex_and_repeated_values_change_too() -> None:
    net, before = Rare(), copy.deepcopy(Rare().state_dict())
    randomise_(net, 5)
    for name, old in before.items():
        new = net.state_dict()[name]
        assert (new.dtype, new.stride()) == (old.dtype, Rare().state_dict()[name].stride())
        assert new.tolist() != old.tolist(), name
    assert len(net.repeated.unique()) == 1


class Whole(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("weight", torch.randint(-127, 128, (40, 30), dtype=torch.int8))
        self.register_buffer("places", torch.arange(9).expand(1, -1))
        self.register_buffer("pairs", torch.stack([torch.arange(20), torch.arange(20) + 100], 1))
        self.register_buffer("columns", torch.stack([torch.arange(20), torch.arange(20) + 100]))
        self.register_buffer("mask", torch.ones(8, 8).tril().bool())
        self.register_buffer("count", torch.tensor(7))
        self.register_buffer("repeated", torch.arange(1).expand(5))


def test_integers_change_places_and_what_belongs_together_stays_together() -> None:
    net, before = Whole(), Whole().state_dict()
    assert shuffle_(net, 5, booleans=False)
    now = net.state_dict()
    for name in ("weight", "places", "pairs", "columns"):
        assert not torch.equal(now[name], before[name]), name
        assert torch.equal(now[name].flatten().sort().values, before[name].flatten().sort().values), name
    for name in ("mask", "count", "repeated"):
        assert torch.equal(now[name], before[name]), name
    assert bool((net.pairs.diff() == 100).all())
    assert bool((net.columns.diff(dim=0) == 100).all())


def test_booleans_change_places_when_they_are_asked_for() -> None:
    net, before = Whole(), Whole().state_dict()
    assert shuffle_(net, 5, booleans=True)
    changed = [name for name, old in before.items() if not torch.equal(net.state_dict()[name], old)]
    assert changed == ["mask"]


def test_equal_seeds_give_equal_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_proof, "_PART", 100)
    one, other = Whole(), Whole()
    for net in (one, other):
        shuffle_(net, 5, booleans=False)
    assert torch.equal(one.weight, other.weight)
    assert not torch.equal(one.weight, Whole().weight)


def test_where_nothing_can_change_places_it_is_said() -> None:
    assert not shuffle_(nn.Linear(3, 4), 5, booleans=False)
    assert not shuffle_(nn.BatchNorm1d(4), 5, booleans=False)
