"""Which attributes a module's code reads, however it reads them, also while torch traces it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from preheat_compiler.reads import Reads
from preheat_runtime import identity


class Attention(nn.Module):
    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.scale = place, 0.5
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.scale


class Block(nn.Module):
    def __init__(self, place: int) -> None:
        super().__init__()
        self.place, self.kind = place, "full"
        self.attention = Attention(place)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x)


class ByProperty(Block):
    @property
    def doubled(self) -> int:
        return self.place * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x) * self.doubled


class ByVars(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x) * vars(self)["place"]


class ByName(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x) * getattr(self, "pl" + "ace")


class ByCopy(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return copy.copy(self).attention(x)


class ByItself(Block):
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x) * self.place


class FromWithin(Block):
    """Its part is asked for its place by somebody else."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x) * self.attention.place


def unread(block: nn.Module, *, trace: bool) -> frozenset[tuple[str, str]]:
    x = torch.randn(2, 4)
    reads = Reads(block)
    with torch.no_grad(), reads.noted():
        if trace:
            torch.export.export(block, (x,))
        else:
            block(x)
    return reads.unread()


@pytest.mark.parametrize("trace", [True, False])
def test_what_tells_a_place_is_not_read_and_what_computes_is(trace: bool) -> None:
    found = unread(Block(3).eval(), trace=trace)
    assert {("", "place"), ("", "kind"), ("attention", "place")} <= found
    assert ("attention", "scale") not in found


@pytest.mark.parametrize("trace", [True, False])
@pytest.mark.parametrize("kind", [ByProperty, ByVars, ByName, ByCopy, ByItself])
def test_a_read_is_seen_however_it_is_made(kind: type[Block], trace: bool) -> None:
    found = unread(kind(3).eval(), trace=trace)
    assert ("", "place") not in found
    assert ("attention", "place") in found


def test_a_read_from_elsewhere_is_seen() -> None:
    assert ("attention", "place") not in unread(FromWithin(3).eval(), trace=True)


def test_modules_are_as_before_afterwards_also_after_an_error() -> None:
    with pytest.raises(ValueError, match="mine"), Reads(Block(1)).noted():
        raise ValueError("mine")
    assert "__getattribute__" not in vars(nn.Module)


def test_blocks_are_equal_without_what_is_left_out_and_only_then() -> None:
    one, two = Block(1).eval(), Block(2).eval()
    without = unread(one, trace=True)
    assert identity.describe(one).identity != identity.describe(two).identity
    assert identity.describe(one, without=without).identity == identity.describe(two, without=without).identity
    two.attention.scale = 0.25
    assert identity.describe(one, without=without).identity != identity.describe(two, without=without).identity
