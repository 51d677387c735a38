"""What cannot be a package is refused by name, before anything is compiled."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from preheat_compiler import package, package_cpu
from preheat_compiler.package import DimRange, ExampleCall, build_package
from preheat_runtime.bind import Mismatch
from preheat_runtime.levers import Levers

pytestmark = pytest.mark.torch

X = ExampleCall(args=(torch.randn(4, 8),))
LITERAL = torch.ones(4, 8)


def build(module, out, example=X, dynamic_shapes=None, cpu_isa="X86_64_V3"):
    return build_package(module.eval(), example, dynamic_shapes=dynamic_shapes, out=out, cpu_isa=cpu_isa)


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


class WritesInput(nn.Module):
    def forward(self, x):
        return x.add_(1)


class PlainTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.randn(4, 8)

    def forward(self, x):
        return x + self.table


class GlobalTensor(nn.Module):
    def forward(self, x):
        return x + LITERAL


class Literal(nn.Module):
    def forward(self, x):
        return x * torch.tensor([0.5])


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x


class Custom(nn.Module):
    def forward(self, x):
        return torch.ops.preheat_test.double(x)


class Size(nn.Module):
    def forward(self, x):
        return x, x.shape[0]


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8)]

    def forward(self, x):
        return self.layers[0](x)


class Opaque(nn.Module):
    def __init__(self):
        super().__init__()
        self.opaque = iter(memoryview(b"x"))
        self.view = _Slotless()

    def forward(self, x):
        return x


class _Slotless:
    __slots__ = ()


class Prints(nn.Module):
    def forward(self, x):
        print("largest", x.max().item())
        return x + 1


class Negated(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sine", torch.ones(8, dtype=torch.complex64).conj().imag)

    def forward(self, x):
        return x + self.sine


class Ranks(nn.Module):
    def forward(self, x):
        if dist.is_initialized():
            dist.all_reduce(x)
        return x + 1


class Threads(nn.Module):
    def forward(self, x):
        return x * torch.get_num_threads()


#: As of an installed package, whose code is taken by name.
LIBRARY: dict = {"__name__": "numpy.of_a_test", "torch": torch}
exec("def ranks():\n    return torch.distributed.is_initialized()\n", LIBRARY)
exec("def threads():\n    return torch.get_num_threads()\n", LIBRARY)


class RanksOfALibrary(nn.Module):
    def forward(self, x):
        return -x if LIBRARY["ranks"]() else x + 1


class ThreadsOfALibrary(nn.Module):
    def forward(self, x):
        return x * LIBRARY["threads"]()


def hooked():
    net = nn.Linear(8, 8)
    net.register_forward_hook(lambda module, args, output: output * 2)
    return net


def trained():
    return nn.BatchNorm1d(8).train()


@pytest.fixture(scope="module", autouse=True)
def custom_operator():
    with torch.library._scoped_library("preheat_test", "DEF") as library:
        library.define("double(Tensor x) -> Tensor")
        library.impl("double", lambda x: x * 2, "CompositeExplicitAutograd")
        library.impl("double", lambda x: torch.empty_like(x), "Meta")
        yield


REFUSED = [
    (Counts, package.NotPackageable, "calls"),
    (WritesInput, package.NotPackageable, "writes to the input"),
    (PlainTensor, package.UnbindableConstant, "uses the tensor table, .*register_buffer"),
    (GlobalTensor, package.UnbindableConstant, "uses a tensor, .*register_buffer"),
    (Literal, package.UnbindableConstant, "uses a tensor, .*register_buffer"),
    (Branches, package.ExportFailed, "torch.export refused Branches"),
    (Custom, package.CustomOperator, "preheat_test.double"),
    (Hidden, package.IdentityUnknown, "not registered as a submodule"),
    (Opaque, package.IdentityUnknown, "has an object of type"),
    (hooked, package.NotPackageable, "hooks"),
    (Prints, package.SideEffect, "prints"),
    (Ranks, package.NotPackageable, "uses torch.distributed, and in the compile Job there are no other processes"),
    (Threads, package.NotPackageable, r"asks for torch.get_num_threads\(\), and a package would keep the number"),
    (RanksOfALibrary, package.NotPackageable, "uses torch.distributed.distributed_c10d.is_initialized"),
    (ThreadsOfALibrary, package.NotPackageable, r"asks for torch.get_num_threads\(\)"),
    (Negated, package.NotPackageable, r"sine is lazily negated, not a plain tensor; .*resolve_neg"),
]


@pytest.mark.parametrize(("make", "error", "words"), REFUSED, ids=lambda each: getattr(each, "__name__", None))
def test_refused(tmp_path, make, error, words):
    with pytest.raises(error, match=words):
        build(make(), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


def test_training_batch_norm_writes_to_its_statistics(tmp_path):
    with pytest.raises(package.NotPackageable, match=r"running_mean|num_batches_tracked"):
        build_package(trained(), X, dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3")


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [
        (Branches, package.ExportFailed, "if x.sum() > 0:"),
        (Prints, package.SideEffect, "print("),
        (GlobalTensor, package.UnbindableConstant, "x + LITERAL"),
        (Literal, package.UnbindableConstant, "torch.tensor([0.5])"),
        (Ranks, package.NotPackageable, "if dist.is_initialized():"),
        (Threads, package.NotPackageable, "x * torch.get_num_threads()"),
    ],
)
def test_an_error_names_the_users_line(tmp_path, make, error, code):
    with pytest.raises(error) as caught:
        build(make(), tmp_path)
    lines = Path(__file__).read_text().splitlines()
    file, _, number = caught.value.where.rpartition(":")
    assert file == __file__
    assert code in lines[int(number) - 1]


INPUTS = [
    (ExampleCall(args=()), None, "missing a required argument"),
    (ExampleCall(args=(torch.randn(4, 8), 1)), None, "too many positional"),
    (ExampleCall(args=({torch.randn(4, 8)},)), None, "is a set"),
    (ExampleCall(args=([1, {"a": {2}}],)), None, r"argument input\[1\]\['a'\] is a set"),
    (ExampleCall(args=({(1, 2): torch.randn(4, 8)},)), None, "has the key"),
    (ExampleCall(args=(torch.randn(8, 4).t(),)), None, "contiguous"),
    (X, {0: {5: DimRange(name="b", minimum=2, maximum=4)}}, "no dimension 5"),
    (X, {0: {0: DimRange(name="b", minimum=5, maximum=9)}}, "size 4 is not in"),
    (X, {3: {0: DimRange(name="b", minimum=2, maximum=9)}}, "argument 3"),
    (X, {"y": {0: DimRange(name="b", minimum=2, maximum=9)}}, "named for y"),
]


@pytest.mark.parametrize(("example", "shapes", "words"), INPUTS)
def test_wrong_inputs_are_refused_in_words(tmp_path, example, shapes, words):
    with pytest.raises(package.InputsRefused, match=words):
        build(nn.Linear(8, 8), tmp_path, example, shapes)


def test_a_range_the_code_fixes_is_refused(tmp_path):
    class Fixed(nn.Module):
        def forward(self, x):
            return x.view(4, 8)

    with pytest.raises(package.NotPackageable, match="the code fixes b to 4: give that size a bucket of its own"):
        build(Fixed(), tmp_path, X, {0: {0: DimRange(name="b", minimum=2, maximum=9)}})


def test_no_compiler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(package.CompilerMissing, match=r"apt-get install g\+\+"):
        build(nn.Linear(8, 8), tmp_path)


def test_a_cpu_without_the_class_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(package_cpu, "usable_flags", lambda: frozenset({"avx2"}))
    with pytest.raises(package.IsaUnavailable, match="avx512f"):
        build(nn.Linear(8, 8), tmp_path, cpu_isa="X86_64_V4")
    with pytest.raises(package.InputsRefused, match="cpuIsa"):
        build(nn.Linear(8, 8), tmp_path, cpu_isa="avx2")


def test_autocast_around_a_build_does_not_get_into_it(tmp_path):
    net = nn.Linear(8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        build(net, tmp_path)
    opened = package.load_package(tmp_path, net)
    with torch.no_grad():
        (x,) = X.args
        assert opened(x).dtype == torch.float32
        torch.testing.assert_close(opened(x), net(x))
        with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(Mismatch, match="autocast is on"):
            opened(x)


@torch.no_grad()
def test_autocast_that_is_asked_for_is_compiled_in(tmp_path):
    net = nn.Linear(8, 8).eval()
    levers = Levers(autocast="bfloat16")
    build_package(net, X, dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3", levers=levers)
    opened = package.load_package(tmp_path, net)
    (x,) = X.args
    with torch.autocast("cpu", dtype=torch.bfloat16):
        # Only code that casts gives this dtype: what was traced without autocast does not see the pod's.
        assert opened(x).dtype == net(x).dtype == torch.bfloat16
        torch.testing.assert_close(opened(x), net(x))
    with pytest.raises(Mismatch, match="autocast is off, compiled with bfloat16"):
        opened(x)


@torch.no_grad()
def test_inputs_in_channels_last_order(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)).eval().to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 12, 10).to(memory_format=torch.channels_last)
    batch = {"input": {0: DimRange(name="n", minimum=2, maximum=8)}}
    build(net, tmp_path, ExampleCall(args=(images,)), dynamic_shapes=batch)
    opened = package.load_package(tmp_path, net)
    for n in (2, 3, 8):
        x = torch.randn(n, 3, 12, 10).to(memory_format=torch.channels_last)
        torch.testing.assert_close(opened(x), net(x), rtol=1e-4, atol=1e-5)
        assert opened(x).stride() == net(x).stride()
    with pytest.raises(Mismatch, match="is not in channels_last order"):
        opened(torch.randn(2, 3, 12, 10))


@torch.no_grad()
def test_multiples_are_answered_but_for_the_first_and_what_lies_between_is_not(tmp_path):
    net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32))
    eights = {"input": {0: DimRange(name="n", minimum=8, maximum=64, multiple_of=8)}}
    build(net, tmp_path, ExampleCall(args=(torch.randn(40, 16),)), dynamic_shapes=eights)
    opened = package.load_package(tmp_path, net)
    for n in range(16, 65, 8):
        x = torch.randn(n, 16)
        torch.testing.assert_close(opened(x), net(x), rtol=1e-4, atol=1e-5)
    # One step of eight is a constant to torch, so the code does not say of 8 rows that it is right for them.
    for n in (8, 12, 20, 63, 72):
        with pytest.raises(Mismatch, match=r"compiled for \(n from 16 to 64, multiples of 8, 16\)"):
            opened(torch.randn(n, 16))


def test_nothing_is_baked_in(trap_package):
    folder, info = trap_package
    assert set(info.constants) == {
        "square.weight", "square.bias", "narrow.weight", "narrow.bias", "scale", "shift",
        "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
    }  # fmt: skip
    assert info.files == ("model.so", "target.json")
    assert info.size_bytes == sum((folder / name).stat().st_size for name in info.files)


def test_no_engine_for_regular_expressions_is_compiled_into_it(trap_package):
    folder, _ = trap_package
    assert b"basic_regex" not in (folder / "model.so").read_bytes()


@torch.no_grad()
def test_a_package_answers_for_random_weights(trap_package, nets):
    folder, _ = trap_package
    net = nets.trap()
    before = net.scale.item()
    package.randomise_(net, 3)
    assert net.scale.item() != before
    assert (net.norm.running_var > 0).all()
    x = torch.randn(4, 16)
    torch.testing.assert_close(package.load_package(folder, net)(x), net(x), rtol=1e-4, atol=1e-5)


def test_a_package_for_a_proof_never_falls_back(trap_package, nets):

    folder, _ = trap_package
    net = nets.trap()
    run = package.load_package(folder, net)
    with torch.no_grad():
        with pytest.raises(Mismatch, match="has shape"):
            run(torch.randn(40, 16))
        net.train()
        with pytest.raises(Mismatch, match="was changed"):
            run(torch.randn(4, 16))
    with pytest.raises(Mismatch, match="grad is enabled"):
        package.load_package(folder, nets.trap())(torch.randn(4, 16))
