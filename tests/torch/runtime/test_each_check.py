"""Each check, and what comes out where it alone is taken away: so none of them is there for nothing.

Checks that a change of the module, a mode or a call sends to torch are in the tables of test_module.py, test_modes.py and
test_calls.py. Here are those that another check might seem to stand in for.
"""

import threading
import types
from dataclasses import replace
from functools import partial

import pytest
import torch

from preheat_compiler.package import ExampleCall, build_package
from preheat_runtime import bind, calls, identity, levers, replacement, serve, watch
from seen import near

pytestmark = pytest.mark.torch

X = torch.linspace(-1, 1, 64).view(4, 16)


@pytest.fixture(autouse=True)
def unverified(monkeypatch):
    """A check on the side would find out, too, but later."""
    monkeypatch.setenv("PREHEAT_SERVING", "verify=Never")


def differences_but(monkeypatch, place, aspect):
    """Let one aspect of modules or tensors pass, whatever it is."""
    real = identity.difference

    def difference(pod, artifact):
        theirs = getattr(artifact, place)
        passed = {
            path: replace(mine, **{aspect: getattr(theirs[path], aspect)}) if path in theirs else mine
            for path, mine in getattr(pod, place).items()
        }
        return real(replace(pod, **{place: passed}), artifact)

    monkeypatch.setattr(identity, "difference", difference)


@torch.no_grad()
def test_constants_of_the_call(hot, nets, monkeypatch):
    net = nets.trap(seed=3)
    served = hot(net)
    assert not hot.served(lambda: served(X, k=4))
    assert near(served(X, k=4), net(X, k=4))
    monkeypatch.setattr(calls, "_const_check", lambda entry, default: lambda *_: None)
    served = hot(net)
    assert hot.served(lambda: served(X, k=4))
    assert near(served(X, k=4), net(X, k=3)), "that is what was compiled in"
    assert not near(served(X, k=4), net(X, k=4))


@torch.no_grad()
def test_constants_in_attributes(hot, net, monkeypatch):
    net.factor = 2.5
    served = hot(net)
    assert not hot.served(lambda: served(X))
    assert near(served(X), net(X))
    differences_but(monkeypatch, "modules", "attributes")
    served = hot(net)
    assert hot.served(lambda: served(X))
    assert not near(served(X), net(X))


@torch.no_grad()
def test_a_forward_of_the_modules_own(hot, net, monkeypatch):
    net.forward = types.MethodType(lambda self, x, flag=True, *, k=3: {"y": x[:, :8]}, net)
    served = hot(net)
    assert not hot.served(lambda: served(X))
    assert near(served(X), net(X))
    monkeypatch.setattr(identity, "describe", partial(identity.describe, without={("", "forward")}))
    served = hot(net)
    assert hot.served(lambda: served(X))
    assert not near(served(X), net(X))


@torch.no_grad()
def test_ties(pod, compiled, nets, cache, tmp_path, monkeypatch):
    """Compiled with one weight in two places; in the pod these are two weights."""
    folder = tmp_path / "tied"
    folder.mkdir()
    build_package(nets.tied(), ExampleCall(args=(X,)), dynamic_shapes=None, out=folder, cpu_isa="X86_64_V3")
    pod.write((folder, pod.entry(folder)))
    net = nets.tied()
    served = compiled(net)
    assert compiled.served(lambda: served(X))
    net.second.weight = torch.nn.Parameter(torch.randn(16, 16))
    assert not compiled.served(lambda: served(X))
    assert torch.allclose(served(X), net(X))
    differences_but(monkeypatch, "tensors", "tied_to")
    served = compiled(net)
    assert compiled.served(lambda: served(X))
    assert not torch.allclose(served(X), net(X), atol=1e-3)


@torch.no_grad()
def test_the_second_reading(hot, nets, monkeypatch):
    """Another thread puts a weight in place after the module was read, and before it is watched."""
    arm = watch.Watch.arm
    done = threading.Event()

    def exchanged(net):
        due = [True]

        def armed(self):
            if due.pop() if due else False:
                net.narrow.weight = torch.nn.Parameter(torch.randn(8, 16))
            arm(self)

        monkeypatch.setattr(watch.Watch, "arm", armed)
        return hot(net)

    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        net = nets.trap(seed=3)
        served = exchanged(net)
        assert hot.served(lambda: served(X))
        assert near(served(X), net(X))
        monkeypatch.setattr(bind.ModuleState, "_taken_whole", lambda self, module: True)
        net = nets.trap(seed=3)
        served = exchanged(net)
        assert hot.served(lambda: served(X))
        assert not near(served(X), net(X)), "bound to a weight that the module no longer has"
        assert not near(served(X), net(X)), "and nothing will ever notice"
    finally:
        done.set()
        thread.join()


LEVERS = {
    "mode": {"mode": "max-autotune"},
    "options": {"options": {"epilogue_fusion": False}},
    "backend": {"backend": "eager"},
    "dynamic_shapes": {"dynamic_shapes": {"x": {0: "batch"}}},
}


@pytest.mark.parametrize("arguments", LEVERS.values(), ids=LEVERS.keys())
@torch.no_grad()
def test_what_torch_compile_was_asked_for(hot, net, monkeypatch, arguments):
    asked = []

    def real(model, **given):
        asked.append(given)
        return model

    served = serve.serve(real, net, arguments)
    served(X)
    assert asked == [arguments], "torch itself gets what the call asks for"
    monkeypatch.setattr(levers.Levers, "refusal", lambda self, arguments: None)
    monkeypatch.setattr(serve, "refused_arguments", lambda arguments: None)
    served = serve.serve(real, net, arguments)
    assert near(served(X), net(X))
    assert len(asked) == 1, "a package that was made with other settings answers, and nobody hears of it"


@pytest.mark.parametrize("arguments", [{"dynamic": True}, {"dynamic": False}, {"fullgraph": True}, {"mode": "default"}])
@torch.no_grad()
def test_what_a_package_satisfies_is_answered_by_it(hot, net, arguments):
    served = hot(net, **arguments)
    assert hot.served(lambda: served(X))


def test_transforms(hot, net, monkeypatch):
    """What a transform watches has no memory of its own for the library to read."""
    net.requires_grad_(False)
    weight = torch.ones(4, 8)

    def transformed(model):
        return torch.func.grad(lambda w: (model(X)["y"] * w).sum())(weight)

    served = hot(net)
    for _ in range(3):
        assert not hot.served(lambda: torch.testing.assert_close(transformed(served), transformed(net)))
    assert hot.served(lambda: served(X))
    monkeypatch.setattr(bind, "_transform", lambda: None)
    for _ in range(3):
        transformed(served)
    assert not hot.served(lambda: served(X)), "three such calls, and the package is out for good"
    assert hot.lines[-1]["reason"].endswith("its library failed repeatedly")


TRACED = """
import os, torch, nets
from preheat_runtime import bind
torch.set_num_threads(1)
net = nets.trap(seed=3).requires_grad_(False)
served = torch.compile(net)
x = torch.linspace(-1, 1, 64).view(4, 16)
other = x.flip(0) * 3
with torch.no_grad():
    served(x)
    def right():
        traced = torch.jit.trace(lambda x: served(x)["y"], x, check_trace=False)
        return torch.allclose(traced(other), net(other)["y"], rtol=1e-4, atol=1e-5)
    assert right()
    bind._tracing = lambda: None
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_tracing_by_torchscript(pod, trap_package):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    printed, _ = pod.python(TRACED, PREHEAT_SERVING="verify=Never")
    assert int(printed) == 7 or int(printed) < 0, "one answer for every input, or a crash"


@torch.no_grad()
def test_tracing_by_torchs_compiler(hot, net, monkeypatch):
    served = hot(net)

    def whole():
        torch._dynamo.reset()
        return torch.compile(lambda x: served(x)["y"], backend="eager", fullgraph=True)(X)

    served(X)
    assert torch.allclose(whole(), net(X)["y"])
    monkeypatch.setattr(
        replacement.PreheatedModule, "forward", lambda self, *args, **kwargs: self._preheat_server.answer(args, kwargs)
    )
    with pytest.raises(torch._dynamo.exc.Unsupported):
        whole()


STRIDES = """
import torch, nets
from preheat_runtime import calls
net = nets.trap(seed=3)
served = torch.compile(net)
x = torch.randn(16, 16)
with torch.no_grad():
    served(x)
    assert torch.equal(served(x.t())["twice"][0], x.t() + x.t())
    calls.as_compiled = lambda tensor, stride, *_: tensor
    print(torch.equal(served(x.t())["twice"][0], x + x))
"""


def test_order_in_memory(pod, trap_package):
    """The library's own check is off, as a user may set it; then ours is the only one."""
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    printed, lines = pod.python(STRIDES, AOTI_RUNTIME_CHECK_INPUTS="0", PREHEAT_SERVING="verify=Never")
    assert printed.strip() == "True", "the transposed view is taken for what lies in memory"
    assert [line.get("outcome") for line in lines][:2] == ["hot", "eager"], lines
