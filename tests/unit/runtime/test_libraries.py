"""Models of installed packages: known by what pip wrote down, and by what others have put into them."""

import functools
import itertools
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from preheat_runtime.identity import describe, difference
from preheat_runtime.libraries import release

NETS = """
import torch
from torch import nn
from biglib.helpers import helper, REGISTRY

RATE = 0.5

class Registry:
    mapping = {"eager": helper}

ATTENTIONS = Registry()

class Config:
    def __init__(self, size):
        self.size = size
        self._original_object_hash = hash("size")
        self.given = {"_use_default_values": list({"a", "b", "c", "d"})}

class Net(nn.Module):
    def __init__(self, size=4):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.config = Config(size)
        self._no_split_modules = list({"Layer", "Embedding", "Head", "Block"})
    def forward(self, x):
        return self.activate(self.linear(x))
    def activate(self, x):
        return helper(x) * RATE
    def other(self, x):
        return x
"""
HELPERS = """
def helper(x):
    return x + 1
REGISTRY = {"one": [helper]}
"""
names = (f"biglib{number}" for number in itertools.count())


def install(site: Path, name: str, *, helpers: str = HELPERS, record: bool = True) -> None:
    """What pip leaves behind for a package `name` of two modules."""
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text("")
    (site / name / "nets.py").write_text(NETS.replace("biglib", name))
    (site / name / "helpers.py").write_text(helpers)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    if record:
        lines = [f"{name}/{file},sha256={hash(text)},{len(text)}" for file, text in (("__init__.py", ""), ("nets.py", NETS), ("helpers.py", helpers))]  # fmt: skip
        (info / "RECORD").write_text("\n".join(lines))


@pytest.fixture
def library(tmp_path, monkeypatch):
    """An installed package's module of nets, and its module of helpers."""
    name = next(names)
    install(tmp_path, name)
    monkeypatch.syspath_prepend(tmp_path)
    __import__(f"{name}.nets")
    return sys.modules[f"{name}.nets"], sys.modules[f"{name}.helpers"]


def identity(net):
    return describe(net).identity


def test_what_pip_recorded_is_a_release(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    known, editable = next(names), next(names)
    install(tmp_path, known)
    install(tmp_path, editable, record=False)
    for name in (known, editable):
        __import__(name)
    assert release(known).startswith(f"{known}-1.0 ")
    assert release(editable) is None
    assert release("no_such_package") is None


def test_a_package_that_is_named_otherwise_than_its_distribution_is_found():
    assert release("yaml").lower().startswith("pyyaml-")


def test_the_same_in_every_process_whatever_its_hash_seed_until_another_release(tmp_path):
    script = "import biglib.nets as nets; from preheat_runtime.identity import describe; print(describe(nets.Net()).identity)"
    install(tmp_path / "old", "biglib")
    install(tmp_path / "new", "biglib", helpers=HELPERS.replace("x + 1", "x + 2"))
    seen = []
    for release_of, seed in (("old", "1"), ("old", "2"), ("new", "1")):
        path = f"{tmp_path / release_of}:{Path(__file__).parents[3] / 'compiler_job'}"
        env = {"PYTHONPATH": path, "PYTHONHASHSEED": seed, "PATH": "", "HOME": str(tmp_path)}
        run = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        seen.append(run.stdout)
    assert seen[0] == seen[1] != seen[2]


def replaced(x):
    return x - 1


def wrapped(function):
    """As people patch: the new function claims to be the old one."""

    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) * 2

    return wrapper


CHANGES = {
    "a global that claims to be the old one": lambda nets, helpers: setattr(nets, "helper", wrapped(nets.helper)),
    "a method that claims to be the old one": lambda nets, helpers: setattr(
        nets.Net, "activate", wrapped(nets.Net.activate)
    ),
    "a global of its module": lambda nets, helpers: setattr(nets, "helper", replaced),
    "a method": lambda nets, helpers: setattr(nets.Net, "activate", lambda self, x: x),
    "two methods swapped": lambda nets, helpers: setattr(nets.Net, "activate", nets.Net.other),
    "a static method": lambda nets, helpers: setattr(nets.Net, "extra", staticmethod(replaced)),
    "a number": lambda nets, helpers: setattr(nets, "RATE", 0.25),
    "a registered function": lambda nets, helpers: nets.Registry.mapping.update(mine=replaced),
    "a nested registry": lambda nets, helpers: nets.REGISTRY["one"].append(replaced),
    "an attribute of the instance": lambda nets, helpers: None,
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_others_put_into_it_is_seen(library, change):
    nets, helpers = library
    before = identity(nets.Net())
    assert difference(identity(nets.Net()), before) is None
    net = nets.Net(5) if change == "an attribute of the instance" else nets.Net()
    CHANGES[change](nets, helpers)
    assert difference(identity(net), before)


@pytest.mark.parametrize("change", ["a global of its module", "a method", "a number"])
def test_what_others_put_into_it_later_is_seen_at_the_next_call(library, change):
    nets, helpers = library
    watch = describe(nets.Net()).watch
    assert watch.unchanged()
    CHANGES[change](nets, helpers)
    assert not watch.unchanged()


def test_a_users_function_put_into_it_counts_by_its_content(library):
    nets, _ = library
    seen = []
    for source in ("lambda x: x + 1", "lambda x: x + 2"):
        nets.helper = eval(source, {"__name__": "somebody"})
        seen.append(identity(nets.Net()))
    assert difference(*seen)


def chain(length, last):
    """A model whose forward calls through a chain of functions far longer than Python's stack is deep."""
    lines = ["import torch", f"def f{length}(x): return x + {last}"]
    lines += [f"def f{number}(x): return f{number + 1}(x)" for number in range(length)]
    lines += ["class Net(torch.nn.Module):", "    def forward(self, x): return f0(x)"]
    scope = {"__name__": "users_code"}
    exec("\n".join(lines), scope)
    return scope["Net"]()


def test_a_long_chain_of_a_users_functions_is_followed_to_its_end():
    first = identity(chain(5000, 1))
    assert first.unknown == ()
    assert difference(identity(chain(5000, 1)), first) is None
    assert difference(identity(chain(5000, 2)), first)


def test_weights_that_a_recurrent_layer_keeps_twice_are_no_part_of_it():
    def build(seed):
        torch.manual_seed(seed)
        return identity(torch.nn.Sequential(torch.nn.GRU(4, 4), torch.nn.LSTM(4, 4)))

    assert difference(build(1), build(2)) is None


def test_a_weight_in_a_second_place_counts_by_which_it_is():
    def build(name):
        net = torch.nn.Linear(4, 4)
        net.register_parameter("other", torch.nn.Parameter(torch.zeros(4)))
        net.kept = [getattr(net, name)]
        return identity(net)

    assert difference(build("bias"), build("bias")) is None
    assert difference(build("bias"), build("other"))


def test_types_written_with_bars_can_be_compared():
    def build(kind):
        net = torch.nn.Linear(2, 2)
        net.kinds = [kind, list[int]]
        return identity(net)

    assert build(int | str).unknown == ()
    assert difference(build(int | str), build(int | str)) is None
    assert difference(build(int | str), build(int | float))


def test_a_module_that_holds_too_much_to_read_cannot_be_compared():
    deep: list = []
    for _ in range(3000):
        deep = [deep]
    net = torch.nn.Linear(2, 2)
    net.deep = deep
    (said,) = identity(net).unknown
    assert "cannot be read to their end" in said


@pytest.mark.parametrize("factor", [2, 3])
def test_a_function_of_torch_that_claims_to_be_the_old_one_counts_by_its_content(factor, monkeypatch):
    net = torch.nn.ReLU()
    before = identity(net)

    def double(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * 2

        return wrapper

    real = torch.nn.functional.relu
    monkeypatch.setattr(torch.nn.functional, "relu", double(real))
    doubled = identity(net)
    assert difference(doubled, before)
    other = double if factor == 2 else wrapped_thrice
    monkeypatch.setattr(torch.nn.functional, "relu", other(real))
    assert (difference(identity(net), doubled) is None) == (factor == 2)


def wrapped_thrice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 3

    return wrapper


def test_a_users_function_that_torch_decorates_counts_by_its_content():
    def build(add):
        scope = {"torch": torch, "__name__": "users_code"}
        exec(f"@torch.no_grad()\ndef step(x): return x + {add}", scope)
        net = torch.nn.Linear(2, 2)
        net.step = scope["step"]
        return identity(net)

    assert difference(build(1), build(1)) is None
    assert difference(build(1), build(2))
