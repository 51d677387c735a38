"""A model small enough that compiling it takes seconds: for tests of everything around it."""

from __future__ import annotations

import os

import torch


class Tiny(torch.nn.Module):
    """(batch, 64) to (batch, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 256)
        self.norm = torch.nn.LayerNorm(256)
        self.last = torch.nn.Linear(256, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # What a package cannot see, and bakes in: a test makes pods answer otherwise than what was compiled.
        gain = float(os.environ.get("TINY_GAIN", "1"))
        return self.last(torch.nn.functional.gelu(self.norm(self.first(x)))) * gain


def load() -> torch.nn.Module:
    torch.manual_seed(int(os.environ.get("TINY_SEED", "3")))
    return Tiny().eval()
