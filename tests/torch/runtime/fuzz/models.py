"""The modules that are called and changed at random: small, and each holding something that compilers bake in."""

import torch
from torch import nn
from torch.nn import functional

GAIN = 1.5


def helper(x, shift=0.25):
    return abs(x) * GAIN + shift


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.square, self.narrow = nn.Linear(8, 8), nn.Linear(8, 8)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.factor, self.options, self.sizes, self.kind = 1.5, {"bias": 0.25}, [1, 2], "relu"

    def forward(self, x):
        y = getattr(torch, self.kind)(self.square(x)) * self.scale.exp()
        return helper(self.narrow(y)) * self.factor + self.options["bias"] * self.sizes[1]


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.down = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, stride=2)

    def forward(self, x):
        return self.down(functional.silu(self.norm(self.conv(x))))


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.group, self.batch = nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8)

    def forward(self, x):
        return self.batch(self.group(self.layer(x))) + self.layer.eps


class Words(nn.Module):
    """A table of words that is the output layer, too."""

    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.table.weight

    def forward(self, words):
        return self.head(self.table(words).mean(1, keepdim=True) + self.table(words))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.heads = 2

    def forward(self, x, mask):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Shared(nn.Module):
    """One layer in two places."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.stack = nn.Sequential(self.one, nn.Tanh(), self.one)

    def forward(self, x):
        return self.stack(x) + self.one(x)


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))
        self.register_buffer("spread", torch.ones(8), persistent=False)
        self.register_buffer("mask", None)
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        y = (x - self.mean) / self.spread
        return self.head(y if self.mask is None else y * self.mask)


class Nested(nn.Module):
    """Inputs in dicts and lists, and outputs, too."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, batch, extra):
        left, right = self.left(batch["left"]), self.right(batch["right"][0])
        return {"sum": left + right + extra[0], "both": (left * 2, [right.relu(), None]), "n": 3}


class Ranges(nn.Module):
    """Two sizes that vary, one of them at two places."""

    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 8)

    def forward(self, x, y):
        return torch.cat([self.lift(x), y], 1).sum(2)


class Constants(nn.Module):
    def __init__(self):
        super().__init__()
        self.lift = nn.Linear(8, 8)

    def forward(self, x, flag=True, *, k=3, name="a"):
        y = self.lift(x) * k
        return y + 1 if flag and name == "a" else y


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Regions(nn.Module):
    """Its blocks are compiled, once; the rest runs as it is."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return helper(self.head(x))


class Mixed(nn.Module):
    """A weight that is used as it is and by its shape, a scalar buffer, a layer that nobody uses."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("level", torch.tensor(0.5))
        self.idle = nn.Linear(2, 2)

    def forward(self, x):
        return functional.linear(x, self.weight) * self.level + self.weight.shape[0]


# Name: class, the example's arguments, and which sizes vary: argument, dimension, name, from, to.
MODELS = {
    "mlp": (Mlp, lambda n: (torch.randn(n, 8),), [("x", 0, "n", 2, 6)]),
    "conv": (Conv, lambda n: (torch.randn(2, 3, 8, 8),), []),
    "norms": (Norms, lambda n: (torch.randn(4, 8),), []),
    "words": (Words, lambda n: (torch.randint(0, 16, (2, n)),), [("words", 1, "n", 2, 6)]),
    "attention": (Attention, lambda n: (torch.randn(2, 4, 8), torch.zeros(2, 1, 4, 4)), []),
    "shared": (Shared, lambda n: (torch.randn(n, 8),), [("x", 0, "n", 2, 6)]),
    "buffers": (Buffers, lambda n: (torch.randn(4, 8),), []),
    "nested": (
        Nested,
        lambda n: ({"left": torch.randn(4, 8), "right": [torch.randn(4, 8)]}, (torch.randn(4),)),
        [],
    ),
    "ranges": (Ranges, lambda n: (torch.randn(2, n, 8), torch.randn(2, n, 8)), [("x", 1, "n", 2, 6), ("y", 1, "n", 2, 6)]),
    "constants": (Constants, lambda n: (torch.randn(4, 8),), []),
    "regions": (Regions, lambda n: (torch.randn(3, 8),), []),
    "mixed": (Mixed, lambda n: (torch.randn(4, 8),), []),
}  # fmt: skip
IN_REGIONS = {"regions": [("blocks.0", "blocks.1", "blocks.2")]}


def make(name, seed=0):
    torch.manual_seed(seed)
    net = MODELS[name][0]().eval()
    with torch.no_grad():
        for buffer in net.buffers():
            if buffer.is_floating_point() and buffer.dim():
                buffer.uniform_(0.5, 1.5)
    return net
