"""Models that compilers find hard, each for one reason, as people write them."""

from __future__ import annotations

import torch
from torch import nn


class SmallWeights(nn.Module):
    """Weights of the kinds that compilers bake into code: a bias of eight, a scalar, a norm of eight, a folded one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 8)
        self.norm = nn.BatchNorm2d(8)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, image: torch.Tensor, *, twice: bool = False) -> dict[str, torch.Tensor]:
        y = self.outer(torch.relu(self.norm(self.inner(image))).mean((-1, -2))) * self.scale.exp()
        return {"classes": y.softmax(-1), "scores": y + y if twice else y}


class Printing(nn.Module):
    """A graph break: it prints, as people do while they look for a fault."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        print("largest activation", y.max().item())
        return torch.tanh(self.second(y))


class Branching(nn.Module):
    """Control flow on values: an activation decides which way is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = torch.relu(self.inner(x))
        if y.sum() > 0:
            y = y - y.mean()
        return {"features": y, "norm": y.norm(dim=-1)}


class Counting(nn.Module):
    """Python's own side effect: how often it was called, which changes nothing of the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(256, 256)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.relu(self.inner(x)).softmax(-1)


@torch.library.custom_op("architectures::clamp_sum", mutates_args=())
def clamp_sum(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x.clamp(-limit, limit).sum(-1)


@clamp_sum.register_fake
def _(x: torch.Tensor, limit: float) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


class Custom(nn.Module):
    """An operator that exists in Python alone."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return clamp_sum(torch.relu(self.inner(x)), 0.5) * 2


class Sampling(nn.Module):
    """A variational encoder that draws from its distribution, also in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.deviation = nn.Linear(256, 32), nn.Linear(256, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = self.mean(x)
        return mean + torch.randn_like(mean) * self.deviation(x).exp(), mean


def _seeded(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def small_weights() -> nn.Module:
    return _seeded(SmallWeights)


def printing() -> nn.Module:
    return _seeded(Printing)


def branching() -> nn.Module:
    return _seeded(Branching)


def counting() -> nn.Module:
    return _seeded(Counting)


def custom() -> nn.Module:
    return _seeded(Custom)


def sampling() -> nn.Module:
    return _seeded(Sampling)
