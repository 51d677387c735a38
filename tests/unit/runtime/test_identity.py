"""The same model has the same identity in every process; another one never has."""

import functools
import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from preheat_runtime.identity import describe, difference, unusual

SOURCE = """
import enum, functools
import torch
from torch import nn

LIMIT = 3
TABLE = {"a": [1, 2], "b": (3.0, None)}
MEAN = torch.tensor([0.5, 0.25])

class Kind(enum.Enum):
    ONE = 1

class Config:
    def __init__(self):
        self.size = 4
        self.kind = Kind.ONE
        self.names = {"x", "y"}

def inner(x):
    return x * LIMIT

def helper(x, *, bias=0.5):
    return inner(x) + bias + TABLE["b"][0] + MEAN.sum()

def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

class Net(nn.Module):
    rate = 0.1
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.tied = nn.Linear(4, 4)
        self.tied.weight = self.linear.weight
        self.activation = functools.partial(nn.functional.leaky_relu, negative_slope=0.2)
        self.config = Config()
        self.me = [1, self.step]
        self.register_buffer("mask", torch.ones(4))
    @decorated
    def step(self, x):
        return helper(x)
    def forward(self, x):
        return self.activation(self.step(self.linear(x)))
"""


def load(name="one", source=SOURCE):
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, f"/somewhere/{name}.py", "exec"), module.__dict__)
    return module


def identity(net):
    return describe(net).identity


@pytest.fixture
def base():
    return identity(load().Net())


def test_equal_for_another_import_other_weights_and_moved_lines(base):
    again = load("two", "# a comment\n\n" + SOURCE).Net()
    assert difference(identity(again), base) is None
    assert base.unknown == ()


def test_equal_in_another_process(tmp_path):
    (tmp_path / "net.py").write_text(SOURCE)
    script = "import net; from preheat_runtime.identity import describe; print(describe(net.Net()).identity)"
    path = f"{tmp_path}:{Path(__file__).parents[3] / 'compiler_job'}"
    seen = set()
    for seed in ("1", "2"):
        env = {"PYTHONPATH": path, "PYTHONHASHSEED": seed, "PATH": "", "HOME": str(tmp_path)}
        run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        seen.add(run.stdout)
    assert len(seen) == 1


SOURCES = [
    ("LIMIT = 3", "LIMIT = 4"),
    ("LIMIT = 3", "LIMIT = 3.0"),
    ('"a": [1, 2]', '"a": [1, 3]'),
    ("torch.tensor([0.5, 0.25])", "torch.tensor([0.5, 0.26])"),
    ("x * LIMIT", "x + LIMIT"),
    ("bias=0.5", "bias=0.6"),
    ("rate = 0.1", "rate = 0.2"),
    ("self.size = 4", "self.size = 5"),
    ("Kind.ONE", "None"),
    ("negative_slope=0.2", "negative_slope=0.3"),
    ("nn.functional.leaky_relu, negative_slope", "nn.functional.elu, alpha"),
    ('{"x", "y"}', '{"x", "z"}'),
    ("[1, self.step]", "[2, self.step]"),
    ("return function(*args)", "return function(*args) + 1"),
    ("self.tied.weight = self.linear.weight", "pass"),
    ("nn.Linear(4, 4)\n        self.tied.", "nn.Linear(4, 4, bias=False)\n        self.tied."),
    ("torch.ones(4))", "torch.ones(5))"),
    ('"mask", torch.ones(4)', '"musk", torch.ones(4)'),
    ("def forward(self, x):\n        return self", "def forward(self, x):\n        return 1 * self"),
]


@pytest.mark.parametrize(("old", "new"), SOURCES)
def test_another_source_is_another_identity(base, old, new):
    assert SOURCE.count(old) >= 1
    assert difference(identity(load("three", SOURCE.replace(old, new, 1)).Net()), base) is not None


CHANGES = {
    "eval": lambda net: net.eval(),
    "attribute": lambda net: setattr(net, "extra", 1),
    "nested object": lambda net: setattr(net.config, "size", 9),
    "list": lambda net: net.me.append(3),
    "instance forward": lambda net: setattr(net, "forward", lambda x: x),
    "dtype": lambda net: net.double(),
    "one dtype": lambda net: net.linear.half(),
    "device": lambda net: net.to("meta"),
    "stride": lambda net: setattr(net.linear.weight, "data", net.linear.weight.data.t()),
    "untied": lambda net: setattr(net.tied, "weight", torch.nn.Parameter(torch.zeros(4, 4))),
    "buffer to parameter": lambda net: (delattr(net, "mask"), setattr(net, "mask", torch.nn.Parameter(torch.ones(4)))),
    "submodule": lambda net: setattr(net, "linear", torch.nn.Bilinear(4, 4, 4)),
    "torch's class patched": None,
}


@pytest.mark.parametrize("name", CHANGES)
def test_another_instance_is_another_identity(base, name, monkeypatch):
    net = load().Net()
    if CHANGES[name] is None:
        monkeypatch.setattr(torch.nn.Linear, "forward", lambda self, x: x)
    else:
        CHANGES[name](net)
    assert difference(identity(net), base)


def test_tensor_attributes_count_by_content():
    def build(value):
        net = torch.nn.Linear(2, 2)
        net.plain = torch.full((3,), value)
        return identity(net)

    assert difference(build(1.0), build(1.0)) is None
    assert difference(build(1.0), build(2.0))


def test_what_cannot_be_compared_is_named():
    class Closed:
        __slots__ = ()

    net = torch.nn.Linear(2, 2)
    net.closed = Closed()
    net.hidden = [torch.nn.Linear(2, 2)]
    first, second = sorted(identity(net).unknown)
    assert "Linear that is not registered" in first
    assert "Closed" in second


def test_cycles_end():
    net = torch.nn.Linear(2, 2)
    net.loop = []
    net.loop.append(net.loop)
    net.itself = {"net": net}
    net.cached = functools.lru_cache(lambda x: x)
    assert identity(net).unknown == ()


def test_what_python_leaves_in_a_class_is_not_its_content(base):
    # Since Python 3.14 a NamedTuple keeps the cell that its annotations are read through.
    module = load()
    module.Config.__classdictcell__ = types.CellType({"size": 4})
    assert identity(module.Net()) == base


def test_hooks_are_named():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert describe(net).hooked is None
    net[0].register_forward_pre_hook(lambda *_: None)
    assert describe(net).hooked == "0"


def test_equal_tuples_are_as_good_as_the_same_one():
    """torch.export copies attributes, as a deep copy does: what was one tuple in two places is two then."""
    module = torch.nn.Linear(2, 2)
    module.size = (224, 224)
    module.settings = {"size": module.size, "nested": [module.size, (module.size, 1)]}
    before = describe(module).identity
    sides = [224, 224]
    module.settings = {"size": tuple(sides), "nested": [tuple(sides), (tuple(sides), 1)]}
    assert difference(describe(module).identity, before) is None
    module.settings["nested"][1] = ((224, 225), 1)
    assert difference(describe(module).identity, before) is not None


def test_the_same_list_is_more_than_an_equal_one():
    module = torch.nn.Linear(2, 2)
    module.first = module.second = [1]
    before = describe(module).identity
    module.second = [1]
    assert difference(describe(module).identity, before) is not None


ODD_WEIGHTS = {
    "lazily negated": lambda: torch._neg_view(torch.ones(4)),
    "lazily negated part": lambda: torch.ones(4, dtype=torch.complex64).conj().imag,
    "lazily conjugated": lambda: torch.ones(4, dtype=torch.complex64).conj(),
    "zero": lambda: torch._efficientzerotensor(4),
    "functional": lambda: torch._to_functional_tensor(torch.ones(4)),
}


@pytest.mark.parametrize("odd", ODD_WEIGHTS.values(), ids=ODD_WEIGHTS.keys())
@pytest.mark.parametrize("kind", ["buffer", "parameter"])
def test_a_weight_whose_memory_is_not_its_values_is_another(odd, kind):
    """Code that is bound to it reads the memory alone."""
    net, other = torch.nn.Module(), torch.nn.Module()
    weight = odd()
    for module, value in ((net, torch.ones(4, dtype=weight.dtype)), (other, weight)):
        if kind == "buffer":
            module.register_buffer("w", value)
        else:
            module.w = torch.nn.Parameter(value, requires_grad=False)
    plain, found = describe(net).identity, describe(other).identity
    assert plain.tensors["w"].dtype == str(weight.dtype).removeprefix("torch.")
    assert f"w has dtype {found.tensors['w'].dtype}, artifact has" in (difference(found, plain) or "")
    assert difference(found, describe(other).identity) is None


def test_plain_weights_are_plain_in_whatever_mode_they_are_made():
    weights = [torch.ones(2), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2)), torch.ones(4)[1:3]]
    with torch.inference_mode():
        weights += [torch.ones(2), torch.nn.Parameter(torch.ones(2))]
        assert [unusual(each) for each in weights] == [None] * 6
    assert [unusual(each) for each in weights] == [None] * 6
    assert unusual(torch.ones(2).to_sparse()) == "Tensor"
    assert unusual(torch._neg_view(torch.ones(2))) == "lazily negated"


def test_a_convolutions_weights_lie_as_compiled():
    """With one channel they may lie in both orders, and its answer comes in the one that torch sees."""
    rows, last = torch.nn.Conv2d(1, 4, 3), torch.nn.Conv2d(1, 4, 3).to(memory_format=torch.channels_last)
    assert rows.weight.stride() != last.weight.stride()
    with torch.no_grad():
        assert rows(torch.ones(2, 1, 8, 8)).stride() != last(torch.ones(2, 1, 8, 8)).stride()
    said = difference(describe(last).identity, describe(rows).identity)
    assert said == "weight has stride (9, 1, 3, 1), artifact has (9, 9, 3, 1)"
    neutral = torch.nn.Conv2d(1, 4, 3)
    neutral.weight.data = neutral.weight.data.as_strided((4, 1, 3, 3), (9, 5, 3, 1))
    assert difference(describe(neutral).identity, describe(rows).identity) is None
