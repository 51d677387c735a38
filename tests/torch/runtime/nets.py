"""Small networks that hold every trap at once; imported under different names by the compile side and the pod side."""

import torch
from torch import nn

GAIN = 2.0


def helper(x):
    return x * GAIN


class Trap(nn.Module):
    """Small parameters that compilers like to bake in, a square weight, an attribute, a helper, keywords."""

    def __init__(self):
        super().__init__()
        self.square = nn.Linear(16, 16)
        self.narrow = nn.Linear(16, 8)
        self.norm = nn.BatchNorm1d(8)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.ones(8), persistent=False)
        self.factor = 1.5
        self.config = {"bias": 0.25}

    def forward(self, x, flag=True, *, k=3):
        y = self.norm(self.narrow(torch.relu(self.square(x)))) * self.scale.exp()
        y = helper(y) * self.factor + self.shift + self.config["bias"] * k
        return {"y": y, "twice": (x + x, None), "n": 5} if flag else y


def trap(seed=0):
    torch.manual_seed(seed)
    net = Trap().eval()
    with torch.no_grad():
        net.norm.running_mean.normal_()
        net.norm.running_var.uniform_(0.5, 1.5)
        net.norm.weight.normal_()
        net.shift.normal_()
        net.scale.fill_(0.1 * seed - 0.2)
    return net


class Tied(nn.Module):
    """One weight in two places."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(16, 16, bias=False)
        self.second = nn.Linear(16, 16, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def tied():
    torch.manual_seed(0)
    return Tied().eval()


class Stack(nn.Module):
    """Equal blocks, each with weights of its own."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()

    def forward(self, x):
        return {"y": sum(block(x)["y"] for block in self.blocks)}


def stack(seed=0, count=3):
    net = Stack()
    net.blocks.extend(trap(seed + number) for number in range(count))
    return net.eval()
