"""What a module does beside its answer, or answers otherwise in another mode, keeps it from being a package, by name."""

import functools

import pytest
import torch
from torch import nn

from preheat_compiler import package
from preheat_compiler.package import ExampleCall, build_package
from preheat_runtime.bind import Mismatch

pytestmark = pytest.mark.torch

X = ExampleCall(args=(torch.randn(4, 8),))


def build(module, out, example=X):
    module.eval()
    return build_package(module, example, dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")


def told_apart(forward):
    @functools.wraps(forward)
    def wrapper(self, *args, **kwargs):
        return forward(self, *args, **kwargs) * (2 if "mask" in kwargs else 1)

    return wrapper


class Wrapped(torch.nn.Module):
    @told_apart
    def forward(self, x, y=None, mask=None):
        return x + 1 if y is None else x + y


def test_what_a_wrapper_of_forward_tells_apart_is_compiled_as_it_is_called_and_asked_of_each_call(tmp_path):
    net, x, y = Wrapped().eval(), torch.randn(4), torch.randn(4)
    example = ExampleCall(args=(x,), kwargs={"mask": None, "y": y})
    build_package(net, example, dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3")
    opened = package.load_package(tmp_path, net)
    torch.testing.assert_close(opened(x, mask=None, y=y), net(x, mask=None, y=y))
    for call in ({"y": y}, {}):
        with pytest.raises(Mismatch, match="may tell"):
            opened(x, **call)
    with pytest.raises(Mismatch, match="3 by position"):
        opened(x, y, None)


class PutsIntoADict(nn.Module):
    def forward(self, batch):
        batch["y"] = batch["x"] + 1
        return batch["y"]


class ReplacesInADict(nn.Module):
    """The key is there already, so the caller's structure stays as it was."""

    def forward(self, batch):
        batch["x"] = batch["x"] + 1
        return batch["x"] * 2


class TakesOut(nn.Module):
    def forward(self, batch):
        return batch.pop("x") + 1


class Appends(nn.Module):
    def forward(self, batch):
        batch["seen"].append(batch["x"])
        return batch["x"] + 1


class Reorders(nn.Module):
    def forward(self, batch):
        batch["x"] = batch.pop("x")
        return batch["x"] + 1


class GivesBack(nn.Module):
    def forward(self, batch):
        return [batch]


class MarksInput(nn.Module):
    def forward(self, batch):
        batch["x"].requires_grad_(True)
        return batch["x"] + 1


class NamesInput(nn.Module):
    def forward(self, batch):
        batch["x"].unit = "mm"
        return batch["x"] + 1


class WritesUntraced(nn.Module):
    """Writes only where no compiler looks, so no graph has it."""

    def forward(self, batch):
        x = batch["x"]
        if not torch.compiler.is_compiling():
            x.neg_().neg_()
        return x + 1


class MarksOutput(nn.Module):
    def forward(self, batch):
        return (batch["x"] + 1).requires_grad_()


class NamesOutput(nn.Module):
    def forward(self, batch):
        y = batch["x"] + 1
        y.unit = "mm"
        return y


LEFT = [
    (PutsIntoADict, package.SideEffect, r"puts \['y'\] into the caller's batch"),
    (ReplacesInADict, package.SideEffect, r"puts another \['x'\] into the caller's batch, .*return it instead"),
    (TakesOut, package.SideEffect, r"takes \['x'\] out of the caller's batch"),
    (Appends, package.SideEffect, r"puts \[0\] into the caller's batch\['seen'\]"),
    (Reorders, package.SideEffect, "changes the order of the caller's batch"),
    (GivesBack, package.OutputAliases, "holds the caller's own batch"),
    (MarksInput, package.SideEffect, r"sets requires_grad of the caller's batch\['x'\]"),
    (NamesInput, package.SideEffect, r"sets the attribute unit of the caller's batch\['x'\]"),
    (WritesUntraced, package.SideEffect, r"writes to the caller's batch\['x'\]"),
    (MarksOutput, package.SideEffect, "makes output 0 a tensor that requires gradients"),
    (NamesOutput, package.SideEffect, "makes output 0 a tensor with the attribute unit"),
]


@pytest.mark.parametrize(("make", "error", "words"), LEFT, ids=lambda each: getattr(each, "__name__", None))
def test_what_a_call_leaves_with_its_caller_is_noticed(tmp_path, make, error, words):
    batch = {"x": torch.randn(4, 8), "seen": [], "z": torch.ones(2)}
    with pytest.raises(error, match=words):
        build(make(), tmp_path / "out", ExampleCall(args=(batch,)))
    assert not list((tmp_path / "out").glob("*"))


class AsksForGrad(nn.Module):
    def forward(self, x):
        return x * 2 if torch.is_grad_enabled() else x


class AsksForInference(nn.Module):
    def forward(self, x):
        return x + 10 if torch.is_inference_mode_enabled() else x - 1


class AsksOfItsInput(nn.Module):
    def forward(self, x):
        return x * 2 if x.requires_grad else x - 1


class AsksOfItsWeight(nn.Linear):
    def forward(self, x):
        return super().forward(x) * (2 if self.weight.requires_grad else 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (AsksForGrad, "another one with gradients on"),
        (AsksForInference, "another one in inference mode"),
        (AsksOfItsInput, "where weights and inputs require gradients"),
        (lambda: AsksOfItsWeight(8, 8), "with gradients on, where nothing requires them"),
    ],
)
def test_an_answer_that_depends_on_the_mode_is_refused(tmp_path, make, words):
    net = make()
    with pytest.raises(package.NotPackageable, match=words):
        build(net, tmp_path)
    assert all(each.requires_grad for each in net.parameters())


class Remembers(nn.Module):
    """Makes a number at its first call, and counts and lists its calls; asking for a mode changes only who computes."""

    def __init__(self):
        super().__init__()
        self.inner = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.calls, self.seen, self.last = 0, [], {"shape": None}

    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = x.shape[-1] ** -0.5
        self.calls += 1
        self.seen.append(x.shape[0])
        self.last["shape"] = tuple(x.shape)
        return self.inner(x) * self.scale


def test_a_module_that_remembers_its_calls_is_built_from_as_it_was_and_left_so(tmp_path):
    net, fresh = Remembers().eval(), Remembers().eval()
    build(net, tmp_path, ExampleCall(args=(torch.randn(2, 4, 8),)))
    assert (net.calls, net.seen, net.last, hasattr(net, "scale")) == (0, [], {"shape": None}, False)
    fresh.load_state_dict(net.state_dict())
    opened = package.load_package(tmp_path, fresh)
    x = torch.randn(2, 4, 8)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(opened(x), net(x), rtol=1e-4, atol=1e-5)


class _Tally:
    calls = 0


class Tallies(nn.Module):
    """Counts in an object, where nobody takes it back."""

    def __init__(self):
        super().__init__()
        self.tally = _Tally()

    def forward(self, x):
        self.tally.calls += 1
        return x + 1


def test_a_module_that_tracing_changes_for_good_is_no_package(tmp_path):
    with pytest.raises(package.NotPackageable, match="once it has run, the module would not be taken for"):
        build(Tallies(), tmp_path)
    assert not list(tmp_path.glob("*"))


class Growing(nn.Module):
    """Puts rows behind those that it has, of which there are none."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)
        self.register_buffer("rows", torch.empty(0, 8))

    def forward(self, x):
        return torch.cat([self.rows, self.inner(x)])


@torch.no_grad()
def test_an_empty_buffer_is_no_hindrance(tmp_path):
    net, other = Growing().eval(), Growing().eval()
    build(net, tmp_path)
    (x,) = X.args
    for each in (net, other):
        torch.testing.assert_close(package.load_package(tmp_path, each)(x), each(x), rtol=1e-4, atol=1e-5)
    other.rows = torch.randn(2, 8)
    with pytest.raises(Mismatch, match=r"rows has shape \(2, 8\)"):
        package.load_package(tmp_path, other)
