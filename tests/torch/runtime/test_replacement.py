"""What torch.compile returns in a pod behaves like torch's own wrapper."""

import copy
import io
import pickle
import threading

import pytest
import torch

pytestmark = pytest.mark.torch


@pytest.fixture
def served(hot, net):
    return hot(net)


def test_names_and_attributes_are_those_of_torchs_wrapper(served, net):
    real = torch._dynamo.eval_frame.OptimizedModule
    assert isinstance(served, real)
    assert isinstance(served, torch.nn.Module)
    assert served._orig_mod is net
    assert list(served.state_dict()) == [f"_orig_mod.{name}" for name in net.state_dict()]
    assert [name for name, _ in served.named_parameters()] == [f"_orig_mod.{n}" for n, _ in net.named_parameters()]
    assert served.factor == 1.5
    assert served.narrow is net.narrow
    assert "factor" in dir(served)
    with pytest.raises(AttributeError):
        _ = served.nothing_of_that_name
    served.factor = 2.0
    assert net.factor == 2.0
    del served.factor
    assert not hasattr(net, "factor")
    assert "Trap(" in repr(served)


def test_train_eval_and_to_reach_the_module(served, net):
    assert served.train() is served
    assert net.training
    assert net.norm.training
    served.eval()
    assert not net.training
    served.to(torch.float64)
    assert net.scale.dtype is torch.float64


def test_state_can_be_loaded_through_it(hot, served, net, nets):
    x = torch.randn(4, 16)
    with torch.no_grad():
        served(x)
        served.load_state_dict({f"_orig_mod.{k}": v for k, v in nets.trap(seed=9).state_dict().items()})
        torch.testing.assert_close(served(x), net(x), rtol=1e-4, atol=1e-5)
    assert not hot.fallbacks


def test_hooks_on_the_wrapper_run(served):
    seen = []
    served.register_forward_hook(lambda module, args, output: seen.append(sorted(output)))
    with torch.no_grad():
        served(torch.randn(4, 16))
    assert seen == [["n", "twice", "y"]]


def test_a_deep_copy_has_its_own_weights(hot, served, net, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **arguments: hot(model, **arguments))
    x = torch.randn(4, 16)
    with torch.no_grad():
        served(x)
        other = copy.deepcopy(served)
        net.scale.fill_(0.7)
        torch.testing.assert_close(served(x), net(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(other(x), other._orig_mod(x), rtol=1e-4, atol=1e-5)
        assert (other(x)["y"] - served(x)["y"]).abs().max() > 1e-3
    assert not hot.fallbacks


def test_a_pickle_is_compiled_anew(served, monkeypatch):
    import sys

    module = sys.modules.setdefault("nets_of_the_pod", __import__("types").ModuleType("nets_of_the_pod"))
    monkeypatch.setattr(module, "Trap", type(served._orig_mod), raising=False)
    called = []

    def compile_(model, **arguments):
        called.append(arguments)
        return model

    # Pickled by name, as torch's own is.
    compile_.__module__, compile_.__qualname__ = "torch", "compile"
    monkeypatch.setattr(torch, "compile", compile_)
    restored = pickle.loads(pickle.dumps(served))
    assert called == [{}]
    assert restored.factor == 1.5
    buffer = io.BytesIO()
    torch.save(served, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False).factor == 1.5


def test_compiling_twice_is_compiling_once(hot, served):
    assert hot(served) is served


@pytest.mark.parametrize(
    "arguments",
    [{"mode": "max-autotune"}, {"backend": "eager"}, {"options": {"x": 1}}, {"disable": True}],
    ids=lambda arguments: next(iter(arguments)),
)
@torch.no_grad()
def test_arguments_no_artifact_was_made_for_go_to_torch(hot, net, arguments):
    served = hot(net, **arguments)
    assert not hot.served(lambda: served(torch.randn(4, 16)))
    line = hot.lines[0]
    assert line["outcome"] == "cold"
    assert next(iter(arguments)) in line["reason"]


@torch.no_grad()
def test_arguments_that_change_no_number_are_served(hot, net):
    served = hot(net, fullgraph=True, dynamic=False, backend="inductor", mode="default")
    assert hot.served(lambda: served(torch.randn(4, 16)))


def test_functions_are_torchs_own(hot, net):
    assert hot(lambda x: net(x)).__name__ == "compiled"
    assert hot(torch.relu).__name__ == "compiled"
    assert hot(net.forward).__name__ == "forward", "the module's own call is served"


@torch.no_grad()
def test_module_compile_is_served(hot, net, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda model, **arguments: hot(model, **arguments))
    x = torch.randn(4, 16)
    eager = net(x)
    net.compile()
    assert hot.served(lambda: torch.testing.assert_close(net(x), eager, rtol=1e-4, atol=1e-5))
    assert not hot.served(lambda: net(x, False))
    assert "_compiled_call_impl" not in net.__getstate__()


def test_threads_answer_at_the_same_time(hot, served, net):
    inputs = [torch.randn(2 + number, 16) for number in range(8)]
    with torch.no_grad():
        expected = [net(x) for x in inputs]
    wrong = []

    def work(number):
        with torch.no_grad():
            for _ in range(200):
                answer = served(inputs[number])
                if not torch.allclose(answer["y"], expected[number]["y"], rtol=1e-4, atol=1e-5):
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not hot.fallbacks


def test_weights_change_while_threads_run(hot, served, net):
    x = torch.randn(4, 16)
    stop = threading.Event()
    errors = []

    def work():
        with torch.no_grad():
            while not stop.is_set():
                answer = served(x)["y"]
                if not bool(torch.isfinite(answer).all()):
                    errors.append(answer)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    with torch.no_grad():
        for _ in range(30):
            net.square.weight.data = torch.randn(16, 16)
            served(x)
    stop.set()
    for thread in threads:
        thread.join()
    with torch.no_grad():
        torch.testing.assert_close(served(x), net(x), rtol=1e-4, atol=1e-5)
    assert not errors


@torch.no_grad()
def test_a_library_that_fails_is_dropped_and_eager_then_torch_answers(hot, served, net, monkeypatch):
    from preheat_runtime.native import Library, NativeError

    x = torch.randn(4, 16)
    calls = []

    def broken(self, inputs):
        calls.append(1)
        raise NativeError("out of luck")

    monkeypatch.setattr(Library, "run", broken)
    for _ in range(6):
        torch.testing.assert_close(served(x), net(x))
    assert hot.fallbacks == 3
    assert len(calls) == 3
    assert [line["event"] for line in hot.lines].count("preheat-error") == 1
