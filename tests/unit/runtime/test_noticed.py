"""Whatever somebody does to a module after its first call is noticed before the next, and makes it another module."""

import argparse
import array
import builtins
import collections
import dataclasses
import enum
import functools
import operator
import re
import sys
import types
import typing
import warnings

import numpy
import pytest
import torch
from torch import nn

from preheat_runtime import identity, watch
from preheat_runtime.identity import describe, difference

SCALE = 2.0


class Slotted:
    __slots__ = ("gain",)

    def __init__(self):
        self.gain = 1.5


class Plain:
    def __init__(self):
        self.gain = 1.5


class Other(Plain):
    pass


class Mine(dict):
    def __missing__(self, key):
        return 0


class Number(float):
    pass


class Mode(enum.Enum):
    FAST = 1


class Pair(typing.NamedTuple):
    first: int
    second: int


@dataclasses.dataclass(slots=True)
class Frozen:
    width: int = 3


def helper(x, factor=2.0, *, shift=1.0):
    return abs(x) * factor + shift * SCALE


def another(x, factor=2.0, *, shift=1.0):
    return x


class Base(nn.Linear):
    pass


class Head(nn.Linear):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Head(4, 4)
        self.parts = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.slotted = Slotted()
        self.plain = Plain()
        self.options = argparse.Namespace(rate=0.1, inner=argparse.Namespace(depth=2))
        self.space = types.SimpleNamespace(rate=0.1)
        self.names = {"x", "y"}
        self.queue = collections.deque([1, 2], maxlen=3)
        self.order = collections.OrderedDict(a=1, b=2)
        self.table = {"one": 1.0, "two": True}
        self.mine = Mine(a=1)
        self.number = Number(1.5)
        self.mode = Mode.FAST
        self.pair = Pair(1, 2)
        self.frozen = Frozen()
        self.pick = operator.itemgetter(1)
        self.numbers = array.array("d", [1.0])
        self.bytes = bytearray(b"ab")
        self.scale = numpy.ones(3)
        self.mean = torch.ones(3)
        self.prior = torch.distributions.Normal(0.0, 1.0)
        self.flag = True
        self.level = 2
        self.proxy = types.MappingProxyType({"k": 1})
        self.pattern = re.compile("a+")
        self.partial = functools.partial(helper, factor=3.0)
        self.window = [1, [2, 3]]

    def forward(self, x):
        return helper(self.first(x))


@pytest.fixture(params=["counted", "compared"])
def described(request, monkeypatch):
    if request.param == "compared":
        monkeypatch.setattr(watch, "OBJECTS_COUNT", False)
        monkeypatch.setattr(watch, "_walked", lambda modules, spaces, kinds: None)
        monkeypatch.setattr(identity, "Watch", functools.partial(watch.Watch, version=None))
    elif watch.dict_version is None:
        pytest.fail("this torch does not tell how often a dict was changed")
    monkeypatch.setattr(Net, "forward", Net.forward)
    net, bases = Net().eval(), Head.__bases__
    yield net, describe(net)
    Head.__bases__ = bases


def rename(entry, old, new):
    """The same object under another name, in the same place."""
    held = dict(entry)
    entry.clear()
    entry.update({new if key == old else key: item for key, item in held.items()})


def replaced(kind, name, value):
    return lambda net, patch: patch.setattr(kind, name, value)


CHANGES = {
    "a slot": lambda net, patch: setattr(net.slotted, "gain", 2.0),
    "a slot of a dataclass": lambda net, patch: setattr(net.frozen, "width", 4),
    "an attribute of an object": lambda net, patch: setattr(net.plain, "gain", 2.0),
    "an object's class": lambda net, patch: setattr(net.plain, "__class__", Other),
    "an object's dict": lambda net, patch: setattr(net.plain, "__dict__", {"gain": 3.0}),
    "a command line's options": lambda net, patch: setattr(net.options, "rate", 0.2),
    "options in options": lambda net, patch: setattr(net.options.inner, "depth", 3),
    "a simple namespace": lambda net, patch: setattr(net.space, "rate", 0.2),
    "a set": lambda net, patch: net.names.add("z"),
    "a set with another item": lambda net, patch: (net.names.discard("x"), net.names.add("z")),
    "a deque": lambda net, patch: net.queue.append(3),
    "a deque turned": lambda net, patch: net.queue.rotate(1),
    "order": lambda net, patch: net.order.move_to_end("a"),
    "a key": lambda net, patch: rename(net.table, "one", "eins"),
    "True to 1": lambda net, patch: net.table.__setitem__("two", 1),
    "a bool to an int": lambda net, patch: setattr(net, "flag", 1),
    "an int to a float": lambda net, patch: setattr(net, "level", 2.0),
    "0.0 to -0.0": lambda net, patch: net.table.__setitem__("one", -1.0),
    "a dict of one's own": lambda net, patch: net.mine.__setitem__("a", 2),
    "an attribute of a dict of one's own": lambda net, patch: setattr(net.mine, "extra", 2),
    "a number of one's own": lambda net, patch: setattr(net, "number", Number(2.5)),
    "a named tuple": lambda net, patch: setattr(net, "pair", Pair(1, 3)),
    "an item getter": lambda net, patch: setattr(net, "pick", operator.itemgetter(0)),
    "an array": lambda net, patch: net.numbers.__setitem__(0, 2.0),
    "a bytearray": lambda net, patch: net.bytes.__setitem__(0, 1),
    "numbers of numpy, in place": lambda net, patch: net.scale.__setitem__(0, 5.0),
    "a plain tensor, in place": lambda net, patch: net.mean.add_(1),
    "a plain tensor's data": lambda net, patch: net.mean.data.add_(1),
    "a distribution": lambda net, patch: setattr(net, "prior", torch.distributions.Normal(1.0, 1.0)),
    "a proxy": lambda net, patch: setattr(net, "proxy", types.MappingProxyType({"k": 2})),
    "a pattern": lambda net, patch: setattr(net, "pattern", re.compile("b+")),
    "a partial": lambda net, patch: net.partial.keywords.__setitem__("factor", 4.0),
    "a list in a list": lambda net, patch: net.window[1].append(4),
    "a module's class": lambda net, patch: setattr(net.first, "__class__", nn.Linear),
    "a module's dict": lambda net, patch: setattr(net.first, "__dict__", {**net.first.__dict__, "in_features": 5}),
    "a submodule's name": lambda net, patch: rename(net.parts._modules, "a", "c"),
    "submodules exchanged": lambda net, patch: net.parts.update({"a": net.parts["b"], "b": net.parts["a"]}),
    "training": lambda net, patch: net.first.train(),
    "code of a function": replaced(helper, "__code__", another.__code__),
    "defaults of a function": replaced(helper, "__defaults__", (3.0,)),
    "keyword defaults": lambda net, patch: patch.setitem(helper.__kwdefaults__, "shift", 5.0),
    "code of forward": lambda net, patch: patch.setattr(Net.forward, "__code__", (lambda self, x: x).__code__),
    "forward of the class": lambda net, patch: patch.setattr(Net, "forward", lambda self, x: x),
    "forward of the object": lambda net, patch: setattr(net, "forward", types.MethodType(lambda self, x: x, net)),
    "a global": replaced(sys.modules[__name__], "SCALE", 3.0),
    "a helper": replaced(sys.modules[__name__], "helper", another),
    "a name in front of Python's own": lambda net, patch: patch.setitem(globals(), "abs", lambda x: x),
    "Python's own function": replaced(builtins, "abs", lambda x: x),
    "a base class": lambda net, patch: setattr(Head, "__bases__", (Base,)),
    "a method of torch's layer": lambda net, patch: patch.setattr(nn.Linear, "forward", lambda self, x: x),
    "a function of torch's": lambda net, patch: patch.setattr(nn.functional, "linear", lambda x, w, b=None: x),
    "one function of torch's for another": lambda net, patch: patch.setattr(nn.functional, "silu", nn.functional.gelu),
    "a built-in function of torch's for another": lambda net, patch: patch.setattr(torch, "relu", torch.sigmoid),
    "a method of tensors": lambda net, patch: patch.setattr(torch.Tensor, "split", lambda self, *args: (self,)),
}


def test_nothing_is_noticed_where_nothing_changed(described):
    net, before = described
    assert before.watch.unchanged()
    assert before.watch.unchanged()
    assert difference(describe(net).identity, before.identity) is None
    assert before.identity.unknown == ()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_is_noticed(described, change):
    net, before = described
    with pytest.MonkeyPatch.context() as patch:
        change(net, patch)
        assert not before.watch.unchanged()
        after = describe(net).identity
    assert difference(after, before.identity) is not None


def test_what_code_that_ran_often_sets_is_noticed(described):
    net, before = described

    def change(entry, value):
        entry.gain = value

    for _ in range(1000):  # Python has a quicker way for it by then, for objects with and without a dict
        change(Plain(), 1.5)
        change(net.plain, 1.5)
    assert before.watch.unchanged()
    change(net.plain, 2.5)
    assert not before.watch.unchanged()


@pytest.mark.parametrize("deaf_to", [None, "set", "added", "deleted"])
def test_numbers_count_for_objects_only_where_they_hear_of_everything(deaf_to):
    last, number = {}, 0

    def version(space):
        nonlocal last, number
        kind = "deleted" if len(space) < len(last) else "added" if len(space) > len(last) else "set"
        number += kind != deaf_to
        last = dict(space)
        return number

    assert watch._counts_objects(version) == (deaf_to is None)


def test_numbers_count_for_objects_in_most_pythons():
    assert not watch._counts_objects(None)
    assert watch.OBJECTS_COUNT or sys.version_info[:2] == (3, 13)


def test_an_equal_dict_in_a_modules_place_is_noticed(described):
    net, before = described
    net.first.__dict__ = dict(net.first.__dict__)
    assert not before.watch.unchanged(), "what is put into the other one would not be seen"


def test_a_class_that_was_put_back_is_as_before(described):
    _, before = described
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Net, "forward", lambda self, x: x)
        assert not before.watch.unchanged()
    assert before.watch.unchanged()
    assert before.watch.unchanged()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the walk tells each attribute there")
def test_modules_are_walked_at_once(described, request):
    walks = "counted" in request.node.name
    assert (described[1].watch._walked is not None) == walks


def test_what_was_put_back_is_as_before(described):
    net, before = described
    held = net.level
    net.level = 7
    assert not before.watch.unchanged()
    net.level = held
    assert before.watch.unchanged()
    assert before.watch.unchanged()


@pytest.mark.parametrize(
    "make",
    [lambda: (x for x in "ab"), lambda: memoryview(b"ab"), lambda: scripted(helper_script)],
    ids=["generator", "memory view", "scripted function"],
)
def test_what_has_no_content_is_not_known(make):
    net = nn.ReLU()
    net.odd = make()
    assert describe(net).identity.unknown


def helper_script(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_a_scripted_submodule_is_not_known():
    net = nn.Sequential(nn.ReLU(), scripted(nn.Linear(2, 2)))
    assert any("scripted" in what for what in describe(net).identity.unknown)


def scripted(what):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(what)
