"""Models of torch alone, small and without surprises."""

from __future__ import annotations

import torch
from torch import nn


def perceptron() -> nn.Module:
    """Three layers, as for numbers in a table."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)).eval()
