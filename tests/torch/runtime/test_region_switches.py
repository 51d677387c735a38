"""What is put into submodules so that regions can answer: invisible to everything but a call of ours."""

import pytest
import torch
from torch import nn

from preheat_runtime import identity
from preheat_runtime.bind import Mismatch
from preheat_runtime.package import CallSpec, Identity, PackageSpec, RegionSpec, Target
from preheat_runtime.regions import install

pytestmark = pytest.mark.torch

NO_CODE = PackageSpec(library="region-0.so", library_outputs=1, constants=(), out_spec="", outputs=(0,))
NOBODY = Identity(modules={}, tensors={}, patches="")


def target(*paths):
    region = RegionSpec(paths=paths, call=CallSpec(arguments=()), package=NO_CODE)
    return Target(identity=NOBODY, call=CallSpec(arguments=()), regions=(region,))


@pytest.fixture
def net():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()


@torch.no_grad()
def test_torchs_own_compiler_sees_the_modules_code(net):
    x = torch.randn(2, 4)
    plain = net(x)
    install(net, target("0", "2"))
    assert torch.equal(net(x), plain)
    assert torch.equal(torch.compile(net, backend="eager", fullgraph=True)(x), plain)
    assert torch._dynamo.explain(net)(x).graph_break_count == 0
    torch.export.export(net, (x,))


def test_the_module_stays_what_it_is(net):
    before = identity.describe(net).identity
    install(net, target("0", "2"))
    described = identity.describe(net)
    assert described.identity == before
    install(net, target("0", "2"))
    assert described.watch.unchanged(), "a second time changes nothing"
    seen = []
    net[0].register_forward_hook(lambda *_: seen.append(1))
    net(torch.randn(2, 4))
    assert seen == [1]


def test_what_is_not_there_or_compiled_already_is_left_alone(net):
    with pytest.raises(Mismatch, match="submodule '7' is missing"):
        install(net, target("7"))
    own = net[0]._compiled_call_impl = lambda x: x * 0
    with pytest.raises(Mismatch, match="submodule '0' is compiled on its own"):
        install(net, target("0"))
    assert net[0]._compiled_call_impl is own
