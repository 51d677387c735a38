"""The networks of the experiments: small enough to build in seconds, with what compilers like to bake in or hand over."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Cnn(nn.Module):
    """A few convolutions with norms, and weights of the kinds that were seen baked in on a CPU: small, 0-dim, folded."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(32)
        self.deep = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.narrow = nn.Linear(64, 8)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.deep(torch.relu(self.norm(self.first(x)))))
        return self.narrow(y.mean((2, 3))).softmax(-1) * self.scale.exp()


class Block(nn.Module):
    """One block of a transformer: norm, attention, norm, two matrix products."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.shrink = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.join(seen.transpose(1, 2).flatten(2))
        return x + self.shrink(nn.functional.gelu(self.widen(self.after(x))))


def make(name: str, device: str, *, seed: int = 0) -> nn.Module:
    """`cnn` or `block`, in evaluation mode on `device`."""
    torch.manual_seed(seed)
    net = {"cnn": Cnn, "block": Block}[name]()
    return net.eval().requires_grad_(False).to(device)


def inputs(name: str, device: str, *, batch: int = 2, seed: int = 1) -> torch.Tensor:
    """One input of the network; equal for equal seeds on every device."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, 3, 96, 96) if name == "cnn" else (batch, 128, 512)
    return torch.randn(shape, generator=generator).to(device)


def error(seen: Any, wanted: torch.Tensor) -> float:
    """The largest difference over the largest magnitude."""
    return float((seen - wanted).abs().max() / wanted.abs().max())
