"""Which objects a call passes is part of what it is: code may ask for it, and it was compiled with one answer."""

import pytest
import torch
from torch import nn

from preheat_compiler.package import ExampleCall, build_package
from seen import close

pytestmark = pytest.mark.torch


class Attends(nn.Module):
    """Attention that tells itself from another's by the object, as of several libraries."""

    def __init__(self):
        super().__init__()
        self.own, self.other = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x, y):
        return self.own(x) if x is y else self.other(x) + y


class Asks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return -self.layer(x) if isinstance(x, nn.Parameter) else self.layer(x)


class Grey(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return torch.relu(self.convolution(x))


def made(kind, seed):
    torch.manual_seed(seed)
    return kind().eval()


@pytest.fixture
def job(pod, compiled, cache, tmp_path):
    """What a pod compiles of `kind` where a Job has made a package for each of some calls."""

    def run(kind, **calls):
        targets = []
        for name, args in calls.items():
            out = tmp_path / name
            build_package(made(kind, 0), ExampleCall(args=args), dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")
            targets.append((out, pod.entry(out, bucket=name)))
        pod.write(*targets)
        net = made(kind, 1)
        return net, compiled(net)

    return run


@torch.no_grad()
def test_one_tensor_given_twice_has_a_package_of_its_own(job, compiled, monkeypatch):
    monkeypatch.setenv("PREHEAT_SERVING", "verify=After")
    x, y = torch.randn(2, 8), torch.randn(2, 8)
    net, served = job(Attends, apart=(x, y), again=(x, x))
    for args in ((x, y), (x, x), (y, y), (y, x), (x, x[:])):
        assert compiled.served(lambda args=args: close(served(*args), net(*args)))
        compiled.wait()
    assert all(line["event"] == "preheat" for line in compiled.lines), "and checks find it right"
    kept = x.clone()
    served(x, x[:])
    served(x, x)
    assert torch.equal(x, kept), "code that writes to what it is given would do so twice"


@torch.no_grad()
def test_one_tensor_given_twice_is_not_answered_by_code_for_two(job, compiled):
    x, y = torch.randn(2, 8), torch.randn(2, 8)
    net, served = job(Attends, apart=(x, y))
    assert compiled.served(lambda: close(served(x, y), net(x, y)))
    assert not compiled.served(lambda: close(served(x, x), net(x, x)))
    assert "argument y: is the same tensor as x" in compiled.lines[-1]["reason"]


@torch.no_grad()
def test_a_parameter_is_answered_by_code_for_one(job, compiled, monkeypatch):
    monkeypatch.setenv("PREHEAT_SERVING", "verify=Before")
    x = torch.randn(2, 8)
    parameter = nn.Parameter(torch.randn(2, 8))
    net, served = job(Asks, plain=(x,))
    assert compiled.served(lambda: close(served(x), net(x)))
    assert not compiled.served(lambda: close(served(parameter), net(parameter)))
    assert "argument x: is a Parameter, compiled for a tensor" in compiled.lines[-1]["reason"]


@torch.no_grad()
def test_code_for_a_parameter_answers_one(job, compiled, monkeypatch):
    monkeypatch.setenv("PREHEAT_SERVING", "verify=Before")
    x = torch.randn(2, 8)
    parameter = nn.Parameter(torch.randn(2, 8))
    net, served = job(Asks, parameter=(parameter,))
    assert compiled.served(lambda: close(served(parameter), net(parameter)))
    assert not compiled.served(lambda: close(served(x), net(x)))


@torch.no_grad()
@pytest.mark.parametrize("example", [(144, 144, 12, 1), (144, 1, 12, 1)])
def test_answers_to_grey_images_lie_as_eagers(job, compiled, example):
    x = torch.randn(4, 1, 12, 12)
    net, served = job(Grey, one=(x.as_strided(x.shape, example),))
    for stride in ((144, 144, 12, 1), (144, 0, 12, 1), (144, 1, 12, 1)):
        given = x.as_strided(x.shape, stride)

        def call(given=given):
            answer, eager = served(given), net(given)
            close(answer, eager)
            assert answer.stride() == eager.stride()

        # The new axis of numpy's has the stride 0.
        assert compiled.served(call) == ((stride[1] == 1) == (example[1] == 1))
