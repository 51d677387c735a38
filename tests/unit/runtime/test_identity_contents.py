"""What a module's answer depends on beside its plain attributes: it counts, and a change of it is noticed before the next call.

Each case is a model as people write them and one change to it: the identity must differ, the watch must tell, and before
the change the model must be one that can be compared, or no package would be made of it.
"""

import collections
import datetime
import enum
import functools
import io
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from pathlib import Path

import numpy
import pytest
import torch
from torch import nn

from preheat_runtime import identity, watch
from preheat_runtime.contents import keeps_more
from preheat_runtime.identity import describe, difference


def leaky(x):
    return torch.where(x > 0, x, x * leaky.slope)


leaky.slope = 0.1


class Scaled:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function, self.factor = function, 2.0

    def __call__(self, x):
        return self.function(x) * self.factor


@Scaled
def scaled(x):
    return x + 1


@functools.lru_cache
def cached(x):
    return x * cached.gain


cached.gain = 2.0


class Settings:
    def __init__(self, scale=2.0):
        self.scale = scale


class Act(enum.Enum):
    DOUBLE = 1

    def __call__(self, x):
        return x * 2


class Mode(enum.Enum):
    PLAIN = Settings()


class Flags(enum.Flag):
    A = 1
    B = 2


class Meta(type):
    @property
    def scale(cls):
        return 2.0


class WithMeta(metaclass=Meta):
    pass


class Ring(collections.deque):
    pass


class Table(numpy.ndarray):
    pass


class Bytes(bytearray):
    pass


class Times(functools.partial):
    gain = 2.0

    def __call__(self, x):
        return super().__call__(x) * self.gain


class Doubled(property):
    def __get__(self, entry, kind=None):
        return 2 * super().__get__(entry, kind)


class WithProperty:
    scale = Doubled(lambda self: 1.0)


@functools.singledispatch
def dispatched(x):
    return x


@dispatched.register
def of_tensors(x: torch.Tensor):
    return x * 2


def another(x):
    return x * 3


class Dispatching(nn.Module):
    @functools.singledispatchmethod
    def step(self, x):
        return x

    @step.register
    def _(self, x: torch.Tensor):
        return x * 2

    def forward(self, x):
        return self.step(x)


def holding(**held):
    net = nn.Module()
    for name, item in held.items():
        setattr(net, name, item)
    net.keep = None
    return net


def running(forward):
    return type("Net", (nn.Module,), {"forward": forward})()


def chain(*names):
    return nn.ModuleDict({name: nn.Linear(2, 2) for name in names})


def buffers():
    net = nn.Module()
    for name in "ab":
        net.register_buffer(name, torch.ones(2))
        net.register_parameter("w" + name, nn.Parameter(torch.ones(2)))
    return net


class Going(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        for name in self._buffers:
            x = x + getattr(self, name)
        for weight in self.parameters():
            x = x * weight
        return x


def going():
    net = Going()
    for name in "ab":
        net.register_buffer(name, torch.ones(2))
        net.register_parameter("w" + name, nn.Parameter(torch.ones(2)))
    return net


def to_end(held, name):
    held[name] = held.pop(name)


def deep_module():
    """`one.two.three.four.five`, each a module."""
    inner = None
    for name in ("five", "four", "three", "two", "one"):
        module = types.ModuleType(f"preheat_test_{name}")
        if inner is None:
            module.SCALE = 2.0
        else:
            setattr(module, *inner)
        inner = (name, module)
    return inner[1]


one = deep_module()
lazy = types.ModuleType("preheat_test_lazy")
exec("values = {'SCALE': 2.0}\ndef __getattr__(name):\n    return values[name]", lazy.__dict__)


class Special(types.ModuleType):
    scale = 2.0


special = Special("preheat_test_special")


def autocasting(dtype):
    class Net(nn.Module):
        @torch.autocast("cpu", dtype=dtype)
        def forward(self, x):
            return x @ x

    return Net


#: A decorator of a library that does not use `functools.wraps`.
library = types.ModuleType("numpy.preheat_test")
exec("def times(f, k):\n    def inner(x):\n        return f(x) * k\n    return inner", library.__dict__)


def plain(x):
    return x + 1


referent = Settings()
CASES = {
    "an attribute of a function": (lambda: running(lambda self, x: leaky(x)), lambda net, patch: patch.setattr(leaky, "slope", 3.0)),
    "a new attribute of a function": (lambda: running(lambda self, x: another(x)), lambda net, patch: patch.setattr(another, "slope", 3.0, raising=False)),
    "an attribute of a cached function": (lambda: running(lambda self, x: cached(x)), lambda net, patch: patch.setattr(cached, "gain", 3.0)),
    "an attribute of a decorator": (lambda: running(lambda self, x: scaled(x)), lambda net, patch: patch.setattr(scaled, "factor", 3.0)),
    "a decorator's class": (lambda: running(lambda self, x: scaled(x)), lambda net, patch: patch.setattr(Scaled, "__call__", lambda self, x: x)),
    "order of submodules": (lambda: chain("a", "b"), lambda net, patch: to_end(net._modules, "a")),
    "order of submodules, by the dict": (lambda: chain("a", "b"), lambda net, patch: net.update({"a": net.pop("a")})),
    "order of buffers": (going, lambda net, patch: to_end(net._buffers, "a")),
    "order of parameters": (going, lambda net, patch: to_end(net._parameters, "wa")),
    "order of a layer's parameters": (going, lambda net, patch: to_end(net.linear._parameters, "weight")),
    "a buffer that is None": (buffers, lambda net, patch: net.register_buffer("c", None)),
    "a method of an enumeration": (lambda: holding(act=Act.DOUBLE), lambda net, patch: patch.setattr(Act, "__call__", lambda self, x: x)),
    "the value of an enumeration": (lambda: holding(mode=Mode.PLAIN), lambda net, patch: patch.setattr(Mode.PLAIN.value, "scale", 3.0)),
    "an attribute of a member": (lambda: holding(act=Act.DOUBLE), lambda net, patch: patch.setattr(Act.DOUBLE, "extra", 3.0, raising=False)),
    "what a function is dispatched to": (lambda: running(lambda self, x: dispatched(x)), lambda net, patch: patch.setattr(of_tensors, "__code__", another.__code__)),
    "what a method is dispatched to": (Dispatching, lambda net, patch: patch.setattr(Dispatching.__dict__["step"].dispatcher.registry[torch.Tensor], "__code__", (lambda self, x: x).__code__)),
    "a property of a metaclass": (lambda: running(lambda self, x: x * WithMeta.scale), lambda net, patch: patch.setattr(Meta, "scale", property(lambda cls: 3.0))),
    "a name in modules in modules": (lambda: running(lambda self, x: x * one.two.three.four.five.SCALE), lambda net, patch: patch.setattr(one.two.three.four.five, "SCALE", 3.0)),
    "what a module makes up": (lambda: running(lambda self, x: x * lazy.SCALE), lambda net, patch: patch.setitem(lazy.values, "SCALE", 3.0)),
    "a module's class": (lambda: running(lambda self, x: x * special.scale), lambda net, patch: patch.setattr(Special, "scale", 3.0)),
    "a deque of one's own": (lambda: holding(ring=Ring([1.0, 2.0])), lambda net, patch: net.ring.rotate()),
    "an array of one's own": (lambda: holding(table=numpy.ones(3).view(Table)), lambda net, patch: net.table.__setitem__(0, 4.0)),
    "a bytearray of one's own": (lambda: holding(bytes=Bytes(b"ab")), lambda net, patch: net.bytes.__setitem__(0, 4)),
    "an array of objects": (lambda: holding(table=numpy.array([{"a": 1}, 2.0], dtype=object)), lambda net, patch: net.table.__setitem__(1, 3.0)),
    "an object in an array": (lambda: holding(table=numpy.array([{"a": 1}, 2.0], dtype=object)), lambda net, patch: net.table[0].__setitem__("a", 2)),
    "what masks an array": (lambda: holding(table=numpy.ma.array([1.0, 2.0], mask=[True, False], fill_value=1.0)), lambda net, patch: net.table.mask.__setitem__(0, False)),
    "the class of a partial": (lambda: holding(act=Times(plain)), lambda net, patch: patch.setattr(Times, "gain", 3.0)),
    "an attribute of a partial": (lambda: holding(act=functools.partial(plain)), lambda net, patch: setattr(net.act, "gain", 3.0)),
    "the class of a property": (lambda: holding(settings=WithProperty()), lambda net, patch: patch.setattr(Doubled, "__get__", lambda self, entry, kind=None: 1.0)),
    "what a method in C is bound to": (lambda: holding(look=[1.0, 2.0].__getitem__), lambda net, patch: net.look.__self__.__setitem__(0, 3.0)),
    "what calls a function": (lambda: holding(act=plain.__call__), lambda net, patch: patch.setattr(plain, "__code__", another.__code__)),
    "a number in a class of torch's": (lambda: nn.Linear(2, 2), lambda net, patch: patch.setattr(nn.Linear, "gain", 2.0, raising=False)),
    "a property in a class of torch's": (lambda: nn.Linear(2, 2), lambda net, patch: patch.setattr(nn.Linear, "gain", property(lambda self: 2.0), raising=False)),
    "a list in a class of torch's": (lambda: nn.Linear(2, 2), lambda net, patch: patch.setattr(nn.Module, "gain", [1.0], raising=False)),
    "a method of classes in a class of torch's": (lambda: nn.Linear(2, 2), lambda net, patch: patch.setattr(nn.Linear, "make", classmethod(lambda cls: 1), raising=False)),
    "a method of what a class of torch's inherits from": (lambda: nn.Conv2d(2, 2, 1), lambda net, patch: patch.setattr(nn.modules.conv._ConvNd, "extra_repr", lambda self: "")),
    "a number in torch's tensors": (lambda: nn.Linear(2, 2), lambda net, patch: patch.setattr(torch.Tensor, "gain", 2.0, raising=False)),
    "limits of a type": (lambda: holding(limits=torch.finfo(torch.float32)), lambda net, patch: setattr(net, "limits", torch.finfo(torch.float16))),
    "limits of an integer": (lambda: holding(limits=torch.iinfo(torch.int32)), lambda net, patch: setattr(net, "limits", torch.iinfo(torch.int8))),
    "a type of numpy's": (lambda: holding(type=numpy.dtype("U3")), lambda net, patch: setattr(net, "type", numpy.dtype("U4"))),
    "a function of numpy's": (lambda: holding(act=numpy.tanh), lambda net, patch: setattr(net, "act", numpy.exp)),
    "a backend": (lambda: holding(backend=nn.attention.SDPBackend.MATH), lambda net, patch: setattr(net, "backend", nn.attention.SDPBackend.FLASH_ATTENTION)),
    "an autocast": (lambda: holding(cast=torch.autocast("cpu", torch.bfloat16)), lambda net, patch: setattr(net.cast, "fast_dtype", torch.float16)),
    "an autocast that decorates": (lambda: autocasting(torch.bfloat16)(), lambda net, patch: setattr(net, "__class__", autocasting(torch.float16))),
    "an object's own function in one of numpy's": (lambda: holding(act=numpy.vectorize(plain)), lambda net, patch: setattr(net.act, "pyfunc", another)),
    "what is referred to weakly": (lambda: holding(settings=weakref.ref(referent)), lambda net, patch: patch.setattr(referent, "scale", 3.0)),
    "what a proxy stands for": (lambda: holding(settings=weakref.proxy(referent)), lambda net, patch: patch.setattr(referent, "scale", 3.0)),
    "a factor that a library's decorator holds": (lambda: holding(act=library.times(torch.relu, 2.0)), lambda net, patch: setattr(net, "act", library.times(torch.relu, 3.0))),
    "a function that a library's decorator holds": (lambda: holding(act=library.times(plain, 2.0)), lambda net, patch: patch.setattr(plain, "__code__", another.__code__)),
}  # fmt: skip


@pytest.mark.parametrize("way", ["counted", "compared"])
@pytest.mark.parametrize(("make", "change"), CASES.values(), ids=CASES.keys())
def test_it_counts_and_its_change_is_noticed(make, change, way, monkeypatch):
    if way == "compared":  # as where torch tells of no dict how often it was changed
        monkeypatch.setattr(watch, "OBJECTS_COUNT", False)
        monkeypatch.setattr(watch, "_walked", lambda modules, spaces, kinds: None)
        monkeypatch.setattr(identity, "Watch", functools.partial(watch.Watch, version=None))
    net = make()
    before = describe(net)
    assert before.identity.unknown == ()
    assert before.watch.unchanged()
    assert difference(describe(net).identity, before.identity) is None
    with pytest.MonkeyPatch.context() as patch:
        change(net, patch)
        assert not before.watch.unchanged()
        after = describe(net).identity
    assert difference(after, before.identity) is not None


@pytest.mark.parametrize("make", [make for make, _ in CASES.values()], ids=CASES.keys())
def test_an_equal_one_is_the_same(make):
    assert difference(describe(make()).identity, describe(make()).identity) is None


def test_each_is_the_same_in_another_process():
    """Whatever its hash seed, and wherever its objects lie."""
    script = """
        import sys, test_identity_contents as tests
        from preheat_runtime.identity import describe
        padding = [object() for _ in range(int(sys.argv[1]))]
        for name, (make, _) in sorted(tests.CASES.items()):
            print(name, describe(make()).identity)
    """
    path = f"{Path(__file__).parent}:{Path(__file__).parents[3] / 'compiler_job'}"
    seen = []
    for seed in ("1", "20003"):
        env = {"PYTHONPATH": path, "PYTHONHASHSEED": seed, "PATH": "", "HOME": "/nowhere"}
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), seed], env=env, capture_output=True, text=True, check=True
        )
        seen.append(run.stdout.splitlines())
    assert len(seen[0]) == len(CASES)
    assert [pair for pair in zip(*seen, strict=True) if pair[0] != pair[1]] == []


def test_the_order_of_weights_that_no_code_goes_through_is_no_difference():
    net = buffers()
    before = describe(net).identity
    to_end(net._buffers, "a")
    to_end(net._parameters, "wa")
    assert difference(describe(net).identity, before) is None


class Moment(datetime.datetime):
    pass


class Failed(ValueError):
    pass


class Slots:
    __slots__ = ("__weakref__", "a", "b")


class More(Slots):
    pass


def test_what_is_written_in_c_keeps_more_than_attributes():
    assert [kind for kind in (Moment, Failed, Ring, Table) if keeps_more(kind)] == [Moment, Failed, Ring, Table]
    space = type("Space", (types.SimpleNamespace,), {})
    assert not any(map(keeps_more, (Settings, Scaled, Slots, More, space, Act, type("Both", (More, Settings), {}))))


def test_content_that_is_not_to_be_had_is_named():
    net = holding(moment=Moment(2020, 1, 1))
    assert "Moment" in describe(net).identity.unknown[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.compile(plain),
        lambda: torch._dynamo.disable(plain),
        lambda: torch.vmap(plain),
        lambda: torch.Generator(),
        lambda: numpy.random.default_rng(0),
        lambda: torch.optim.SGD([torch.zeros(1)]),
        lambda: functools.partial(nn.init.normal_, std=0.02),
        lambda: torch.ops.aten.relu.default,
        lambda: weakref.WeakSet(),
        lambda: torch._C._get_tracing_state,
        lambda: nn.functional.max_pool2d,
    ],
)
def test_what_libraries_make_can_be_compared(make):
    net = holding(made=[make()])
    before = describe(net)
    assert before.identity.unknown == ()
    assert before.watch.unchanged()
    assert difference(describe(net).identity, before.identity) is None


class Local(threading.local):
    pass


class Stream(io.StringIO):
    pass


def test_tools_of_the_process_are_let_be():
    assert describe(holding(local=Local(), stream=Stream())).identity.unknown == ()


class CFunction(Moment):
    """As what Cython makes of a function: written in C, with a dict and a name."""

    def __call__(self, x):
        return x


def test_a_function_with_a_class_written_in_c_counts_by_its_name():
    first, second = CFunction(2020, 1, 1), CFunction(2020, 1, 1)
    first.__qualname__, second.__qualname__ = "first", "second"
    assert describe(holding(act=first)).identity.unknown == ()
    assert difference(describe(holding(act=first)).identity, describe(holding(act=second)).identity) is not None


def test_an_exceptions_words_are_its_content():
    first, second = (describe(holding(failed=Failed(words))).identity for words in ("a", "b"))
    assert first.unknown == ()
    assert difference(first, second) is not None


def test_a_dead_referent_is_noticed():
    settings = Settings()
    net = holding(held=[weakref.ref(settings), weakref.proxy(settings), weakref.WeakMethod(scaled.__call__)])
    before = describe(net)
    assert before.watch.unchanged()
    assert before.identity.unknown == ()
    for index, kind in enumerate((weakref.ref, weakref.proxy)):
        net.held[index] = kind(Settings())  # which is gone at once
    assert difference(describe(net).identity, before.identity) is not None


def test_a_proxy_of_the_module_itself_is_that_module():
    net = nn.Sequential(nn.Linear(2, 2))
    net[0].above = [weakref.proxy(net), weakref.ref(net)]  # as an attribute, torch would take the proxy for a submodule
    before = describe(net)
    assert before.identity.unknown == ()
    assert before.watch.unchanged()


def test_flags_that_were_put_together_do_not_change_their_class():
    net = holding(flags=Flags.A)
    before = describe(net).identity
    assert Flags.A | Flags.B
    assert difference(describe(net).identity, before) is None


def test_a_file_of_ones_own_with_a_name_of_the_standard_library_is_read(tmp_path):
    source = "from torch import nn\nSCALE = 2.0\nclass Net(nn.Module):\n    def forward(self, x):\n        return x * SCALE\n"
    (tmp_path / "profile.py").write_text(source)
    script = """
        import profile
        from preheat_runtime.identity import describe, difference
        before = describe(profile.Net())
        profile.SCALE = 3.0
        print(before.watch.unchanged(), difference(describe(profile.Net()).identity, before.identity))
    """
    env = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[3] / 'compiler_job'}", "PATH": "", "HOME": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], env=env, capture_output=True, text=True, check=True
    )
    assert run.stdout.startswith("False the code of the module (Net)")
