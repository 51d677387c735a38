"""A model small enough that compiling it takes seconds: for tests of everything around it."""

from __future__ import annotations

import os
import sys
import tempfile
import time

import torch


class Tiny(torch.nn.Module):
    """(batch, 64) to (batch, 8), over `width` in between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, width)
        self.norm = torch.nn.LayerNorm(width)
        self.last = torch.nn.Linear(width, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # What a package cannot see, and bakes in: a test makes pods answer otherwise than what was compiled.
        gain = float(os.environ.get("TINY_GAIN", "1"))
        x = self.norm(self.first(x))
        if os.environ.get("TINY_FAULT") == "breaks":
            print("between two graphs", file=sys.stderr)
        return self.last(torch.nn.functional.gelu(x)) * gain


def load() -> torch.nn.Module:
    """Weights by TINY_SEED, of a shape by TINY_WIDTH: as if they came from outside the image."""
    if os.environ.get("TINY_FAULT") == "only-serves" and not sys.argv[0].endswith("serve.py"):
        raise RuntimeError("this model loads in its server alone")
    if os.environ.get("TINY_FAULT") == "sleeps":
        time.sleep(3600)
    if os.environ.get("TINY_FAULT") == "fills":
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(200 << 20))
            file.flush()
            time.sleep(3600)
    torch.manual_seed(int(os.environ.get("TINY_SEED", "3")))
    return Tiny(int(os.environ.get("TINY_WIDTH", "256"))).eval()
