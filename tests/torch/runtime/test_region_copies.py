"""What is made of a module whose regions are asked is as without Preheat: copies and pickles run their own code and weights."""

import copy
import gc
import io
import multiprocessing.reduction
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn

from preheat_runtime import identity, regions
from preheat_runtime.bind import Mismatch, ModuleState
from preheat_runtime.package import CallSpec, PackageSpec, RegionSpec, Target, TensorSpec

pytestmark = pytest.mark.torch

LEAF = '[1, {"type": null, "context": null, "children_spec": []}]'
CALL = CallSpec(arguments=(TensorSpec(parameter="x", shape=(2, 4), dtype="float32", device="cpu"),))
NO_CODE = PackageSpec(library="region-0.so", library_outputs=1, constants=(), out_spec=LEAF, outputs=(0,))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x)


class WithState(Block):
    """As many do that hold what cannot be copied."""

    def __getstate__(self):
        state = self.__dict__.copy()
        state.pop("lock", None)
        return state


class ByHand(Block):
    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._modules = {name: copy.deepcopy(part, memo) for name, part in self._modules.items()}
        return made

    def __copy__(self):
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made


class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.blocks = nn.ModuleList(kind() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def target(net):
    region = RegionSpec(paths=("blocks.0", "blocks.1"), call=CALL, package=NO_CODE)
    return Target(identity=identity.describe(net).identity, call=CALL, regions=(region,))


class Code:
    """Stands for the code of a region."""

    def ask(self, x):
        return x + 100


@pytest.fixture(params=[Block, WithState, ByHand])
def net(request):
    net = Net(request.param).eval()
    regions.install(net, target(net))
    yield net
    for kind in (Block, WithState, ByHand):
        if regions.CALL in kind.__dict__:
            delattr(kind, regions.CALL)


@pytest.fixture
def called(net, monkeypatch):
    """This thread is in a call of ours: the blocks of `net` answer from their code."""
    monkeypatch.setattr(regions._active, "regions", {id(block): Code() for block in net.blocks})


def saved(net):
    buffer = io.BytesIO()
    torch.save(net, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)


def updated(net):
    made = Net.__new__(Net)
    made.__dict__.update(net.__dict__)
    made._modules = {"blocks": nn.ModuleList(copy.copy(block) for block in net.blocks)}
    return made


def replicated(net):
    """As nn.DataParallel does."""
    made = net._replicate_for_data_parallel()
    made._modules["blocks"] = nn.ModuleList(block._replicate_for_data_parallel() for block in net.blocks)
    return made


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "save": saved,
    "spawn": lambda net: pickle.loads(multiprocessing.reduction.ForkingPickler.dumps(net)),
    "update": updated,
    "replica": replicated,
}


@torch.no_grad()
@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES.keys())
def test_a_copy_runs_its_own_code_and_weights_also_in_a_call_of_the_original(net, called, make):
    x = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(net(x), x + 200), "the blocks are asked"
    made = make(net)
    assert regions.CALL not in {name for part in made.modules() for name in vars(part)}
    for block in made.blocks:
        block._modules["linear"] = nn.Linear(4, 4)
        block._parameters = dict(block._parameters)
        nn.init.zeros_(block.linear.weight)
        nn.init.ones_(block.linear.bias)
    assert torch.equal(made(x), torch.ones(2, 4))
    assert torch.equal(net(x), x + 200)


@torch.no_grad()
def test_only_the_thread_of_the_call_asks(net, called):
    x, seen = torch.randn(2, 4), []
    thread = threading.Thread(target=lambda: seen.append(net(x)))
    thread.start()
    thread.join()
    assert (seen[0] - x).abs().max() < 50


def test_nothing_is_to_be_seen_in_a_module(net):
    plain = Net(type(net.blocks[0]))
    for part, twin in zip(net.modules(), plain.modules(), strict=True):
        assert vars(part).keys() == vars(twin).keys()
        assert part._compiled_call_impl is None
    assert net.state_dict().keys() == plain.state_dict().keys()
    assert type(net.blocks[0])._compiled_call_impl is None


def test_a_class_that_is_sent_whole_holds_nothing_of_ours(net):
    """cloudpickle takes classes of the main module apart."""
    held = vars(type(net.blocks[0]))[regions.CALL]
    assert b"preheat" not in pickle.dumps(held)
    assert pickle.loads(pickle.dumps(held)) is None
    assert copy.deepcopy(held) is None


def test_a_class_is_what_it_is_without(net):
    asked = vars(kind := type(net.blocks[0]))[regions.CALL]
    delattr(kind, regions.CALL)
    before = identity.describe(net)
    setattr(kind, regions.CALL, asked)
    assert identity.describe(net).identity == before.identity


@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # of torch, about Python 3.13.0
@torch.no_grad()
def test_torchs_compiler_sees_the_modules_code_also_past_hooks_and_in_a_call(net, called):
    seen = []
    net.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    x = torch.randn(2, 4)
    own = net.blocks[1].linear(net.blocks[0].linear(x))
    made = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(made(x), own)
    assert seen


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")  # of torch, about itself
def test_scripting_sees_the_modules_code(net):
    x = torch.randn(2, 4)
    torch.testing.assert_close(torch.jit.script(net.blocks[0])(x), net.blocks[0].linear(x))


@torch.no_grad()
def test_what_was_compiled_alone_and_taken_back_does_not_hide_the_region(net, monkeypatch):
    net.blocks[0]._compiled_call_impl = None
    regions.install(net, target(net))
    monkeypatch.setattr(regions._active, "regions", {id(net.blocks[0]): Code()})
    x = torch.arange(8.0).reshape(2, 4)
    assert torch.equal(net.blocks[0](x), x + 100)


@torch.no_grad()
def test_what_the_user_compiles_comes_first(net, called):
    net.blocks[0]._compiled_call_impl = lambda x: x * 0
    x = torch.randn(2, 4)
    assert torch.equal(net(x), torch.full((2, 4), 100.0))
    with pytest.raises(Mismatch, match=r"submodule 'blocks\.0' is compiled on its own"):
        regions.install(net, target(net))


def test_a_class_with_a_call_of_its_own_is_left_alone():
    class Own(Block):
        def _compiled_call_impl(self, x):
            return x * 0

    net = Net(Own)
    with pytest.raises(Mismatch, match=r"submodule 'blocks\.0' is compiled on its own"):
        regions.install(net, target(net))


def test_another_module_with_submodules_of_these_names_is_left_alone(net):
    other = Net(nn.Identity)
    assert not regions.looks_like(other, target(net))
    other = Net(type(net.blocks[0]))
    assert regions.looks_like(other, target(net))
    other.head = nn.Identity()
    assert not regions.looks_like(other, target(net))


def test_a_package_and_its_module_are_freed_at_once(net, tmp_path):
    made, part = target(net), Net(type(net.blocks[0])).eval()
    package = regions.RegionalPackage(made, tmp_path, part, ModuleState(part))
    gone = [weakref.ref(part.blocks[0].linear.weight), weakref.ref(package)]
    gc.collect()
    gc.disable()
    try:
        del package, part
        assert [each() for each in gone] == [None, None]
    finally:
        gc.enable()


@torch.no_grad()
def test_a_twin_runs_its_own_python_where_its_regions_do_not_answer(tmp_path):
    class Counting(Block):
        calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    net = Net(Counting).eval()
    package = regions.RegionalPackage(target(net), tmp_path, net, ModuleState(net))
    twin = copy.deepcopy(net)
    x = torch.randn(2, 4)
    torch.testing.assert_close(package.again(twin, (x,), {}), net(x))
    assert [block.calls for block in twin.blocks] == [1, 1]
    assert [block.calls for block in net.blocks] == [1, 1], "by the call above"
