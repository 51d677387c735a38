"""What a module's own Python sets on its regions for the time of a call, and sets back: they run as they are then."""

import contextlib
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from preheat_runtime import identity, parts, regions
from preheat_runtime.bind import ModuleState
from preheat_runtime.package import CallSpec, PackageSpec, RegionSpec, Target, TensorSpec

pytestmark = pytest.mark.torch

LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'
NO_CODE = PackageSpec(library="region-0.so", library_outputs=1, constants=(), out_spec=LEAF, outputs=(0,))
CALL = CallSpec(arguments=(TensorSpec(parameter="x", shape=(2, 4), dtype="float32", device="cpu"),))
STEP = 1.0
CONFIG = {"bias": 0.0}


class Settings:
    def __init__(self):
        self.scale = 1.0


class Block(nn.Module):
    kind = 1.0
    table: ClassVar[dict[str, Any]] = {"bias": 0.0}

    def __init__(self, settings, weights):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.factor = 1.0
        self.settings, self.weights = settings, weights
        self.seen = {"a": 1.0}

    def forward(self, x):
        made = self.linear(x) * self.factor * self.settings.scale * self.weights[0] * self.seen["a"]
        return made * self.kind * STEP + CONFIG["bias"] + self.table["bias"]


class Net(nn.Module):
    """Before its blocks it does with the first one what it is told to, and takes it back."""

    def __init__(self):
        super().__init__()
        settings, self.own, self.how = Settings(), 0, contextlib.nullcontext
        self.blocks = nn.ModuleList(Block(settings, [1.0]) for _ in range(2))

    def forward(self, x):
        with self.how(self):
            for block in self.blocks:
                x = block(x)
        return x


def attribute(net, block):
    block.factor = 2.0
    yield
    block.factor = 1.0


def attribute_of_a_part(net, block):
    block.linear.in_features, before = 5, block.linear.in_features
    yield
    block.linear.in_features = before


def new_attribute(net, block):
    block.added = 2.0
    yield
    del block.added


def by_dict(net, block):
    block.__dict__["factor"] = 2.0
    yield
    block.__dict__["factor"] = 1.0


def child(net, block):
    before, block.linear = block.linear, nn.Linear(4, 4)
    yield
    block.linear = before


def hook(net, block):
    handle = block.linear.register_forward_hook(lambda _block, _args, answer: answer * 2)
    yield
    handle.remove()


def weights(net, block):
    """As `torch.func.functional_call` has it."""
    before = block.linear._parameters["weight"]
    block.linear._parameters["weight"] = torch.zeros(4, 4)
    yield
    block.linear._parameters["weight"] = before


def object_they_share(net, block):
    block.settings.scale = 2.0
    yield
    block.settings.scale = 1.0


def item_of_a_list(net, block):
    block.weights[0] = 2.0
    yield
    block.weights[0] = 1.0


def item_of_a_dict(net, block):
    block.seen["a"] = 2.0
    yield
    block.seen["a"] = 1.0


def attribute_of_the_class(net, block):
    Block.kind = 2.0
    yield
    Block.kind = 1.0


def global_name(net, block):
    global STEP
    STEP = 2.0
    yield
    STEP = 1.0


def item_of_a_class(net, block):
    Block.table["bias"] = 2.0
    yield
    Block.table["bias"] = 0.0


def item_of_a_global(net, block):
    CONFIG["bias"] = 2.0
    yield
    CONFIG["bias"] = 0.0


SEEN = [attribute, attribute_of_a_part, new_attribute, by_dict, child, hook, weights, object_they_share, item_of_a_list,
        item_of_a_dict, attribute_of_the_class, global_name, item_of_a_class, item_of_a_global]  # fmt: skip


@pytest.fixture
def net():
    yield Net().eval()
    if regions.CALL in vars(Block):
        delattr(Block, regions.CALL)


@pytest.fixture(params=["pod", "numberless", "objects", "job"])
def package(net, tmp_path, request, monkeypatch):
    """Of the pod, also where no dict tells the number of its changes or an object's does not, or as the compile Job proves it.

    The code adds 100.
    """
    region = RegionSpec(paths=("blocks.0", "blocks.1"), call=CALL, package=NO_CODE)
    target = Target(identity=identity.describe(net).identity, call=CALL, regions=(region,))
    regions.install(net, target)
    state = ModuleState(net)
    if request.param == "numberless":
        state.watch._version = None
    elif request.param == "objects":
        objects, real = state.watch._of_objects, state.watch._version
        state.watch._version = real and (lambda value: 0 if id(value) in objects else real(value))
        monkeypatch.setattr(parts, "OBJECTS_COUNT", False)
    made = regions.RegionalPackage(target, tmp_path, net, state, closely=request.param == "job")
    for each in made._regions.values():
        each._run = lambda tensors: tensors[0] + 100
    return made


def telling(change, net):
    """`change` as a context for `Net.forward`."""
    return lambda held: contextlib.contextmanager(change)(held, held.blocks[0])


@torch.no_grad()
@pytest.mark.parametrize("change", SEEN)
def test_a_region_that_is_set_to_something_else_runs_as_it_is(net, package, change):
    x = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(package.answer([x], (x,), {}), x + 200)
    net.how = telling(change, net)
    with telling(change, net)(net):
        first = net.blocks[0](x)
    answer = package.answer([x], (x,), {})
    assert package.missed["blocks.0"] == regions.CHANGED
    if change is not child and "blocks.1" not in package.missed:  # a child is another at each call
        assert torch.equal(answer, first + 100)
    net.how = contextlib.nullcontext
    assert torch.equal(package.answer([x], (x,), {}), x + 200), "the next call finds it as it was"


@torch.no_grad()
@pytest.mark.parametrize(
    "change",
    [object_they_share, attribute_of_the_class, global_name, item_of_a_class, item_of_a_global],
    ids=lambda each: each.__name__,
)
def test_what_regions_share_concerns_them_all(net, package, change):
    x = torch.arange(8.0).reshape(2, 4)
    net.how = telling(change, net)
    eager = net(x)
    assert torch.equal(package.answer([x], (x,), {}), eager)
    assert package.missed == {"blocks.0": regions.CHANGED, "blocks.1": regions.CHANGED}


@torch.no_grad()
def test_what_concerns_no_region_leaves_them_answering(net, package):
    def of_its_own(net, block):
        net.own, block.factor, block.linear.weight = 3, block.factor, block.linear.weight
        yield
        net.own = 0

    x = torch.arange(8.0).reshape(2, 4)
    net.how = telling(of_its_own, net)
    for _ in range(2):
        assert torch.equal(package.answer([x], (x,), {}), x + 200)
    assert package.missed == {}


@torch.no_grad()
def test_a_twin_is_looked_at_itself(net, package):
    from preheat_runtime.trial import twin

    x = torch.arange(8.0).reshape(2, 4)
    made = twin(net, net.state_dict(keep_vars=True).values())
    assert torch.equal(package.again(made, (x,), {}), x + 200)
    assert package.missed == {}
    made.how = telling(attribute, made)
    package.again(made, (x,), {})
    assert package.missed == {"blocks.0": regions.CHANGED}


@torch.no_grad()
def test_the_job_also_sees_addresses_of_weights(net, package):
    def moved(net, block):
        before = block.linear.weight.data
        block.linear.weight.data = torch.zeros(4, 4)
        yield
        block.linear.weight.data = before

    x = torch.arange(8.0).reshape(2, 4)
    package.answer([x], (x,), {})
    net.how = telling(moved, net)
    package.answer([x], (x,), {})
    if all(isinstance(each._part, regions.Closely) for each in package._regions.values()):
        assert package.missed == {"blocks.0": regions.CHANGED}
