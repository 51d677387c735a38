"""What torch.compile returns in a pod, beside what the real one returns: each row is done to both, and must look the same.

The real one compiles with the backend `eager`, which changes nothing about the object it returns.
"""

import functools
import pickle
import sys
import types
import warnings

import pytest
import torch

from preheat_runtime import serve
from surface import ROWS, X, answer

pytestmark = pytest.mark.torch

REAL = torch.compile


@pytest.fixture
def classes(nets, monkeypatch):
    """Trap, importable under its module's name, as pickles need it."""
    monkeypatch.setitem(sys.modules, nets.__name__, nets)
    return nets


@pytest.fixture
def both(hot, monkeypatch, classes):
    """`both(row)`: what the row sees of the real torch.compile, and of ours."""

    def ours(model=None, **arguments):
        if model is None:
            return functools.partial(ours, **arguments)
        hot.fallbacks = 0

        def real(model, **given):
            return REAL(model, **{**given, "backend": "eager"})

        return serve.serve(real, model, arguments)

    def theirs(model=None, **arguments):
        return REAL(model, **{**arguments, "backend": "eager"})

    def run(row):
        seen = []
        for compile_ in (theirs, ours):
            torch._dynamo.reset()
            with monkeypatch.context() as patch, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                patch.setattr(torch, "compile", compile_)
                try:
                    seen.append(row(compile_, classes.trap(seed=3)))
                except Exception as error:
                    seen.append(type(error))
        return seen

    return run


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_it_looks_like_the_real_one(both, row):
    theirs, ours = both(row)
    assert ours == theirs


def test_a_pickle_can_be_read_where_preheat_is_not(hot, classes, monkeypatch):
    monkeypatch.setattr(torch, "compile", functools.wraps(REAL)(lambda model, **given: hot(model, **given)))
    net = classes.trap(seed=3)
    data = pickle.dumps([hot(net), hot(net, dynamic=False)])
    assert b"preheat" not in data
    first, second = pickle.loads(data)
    assert answer(first) == answer(second) == answer(net)
    assert not hot.fallbacks


def test_other_arguments_compile_what_was_compiled_anew(hot, classes):
    net = classes.trap(seed=3)
    served = hot(net)
    assert hot(served) is served
    other = hot(served, dynamic=True)
    assert other is not served
    assert other._orig_mod is net
    assert hot(served, backend="eager").__name__ == "compiled"


@torch.no_grad()
def test_a_modules_own_forward_is_served_and_another_is_not(hot, classes):
    net = classes.trap(seed=3)
    forward, call = hot(net.forward), hot(net.__call__)
    assert hot.served(lambda: forward(X))
    assert hot.served(lambda: call(X))
    net.forward = types.MethodType(lambda self, x: {"y": x}, net)
    assert hot(net.forward).__name__ == "compiled"
    assert not hot.served(lambda: forward(X))

    class Louder(classes.Trap):
        def __call__(self, *args):
            return super().__call__(*args)["y"]

    assert hot(Louder().forward).__name__ == "compiled"


def test_functions_go_to_torch_with_a_reason(hot, classes):
    assert hot(classes.helper).__name__ == "compiled"
    (line,) = hot.lines
    assert (line["outcome"], line["class"]) == ("cold", "helper")
    assert "artifacts are of modules" in line["reason"]


@pytest.mark.parametrize("name", ["TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"])
def test_who_switches_compiling_off_gets_torch(hot, classes, monkeypatch, name):
    monkeypatch.setenv(name, "1")
    assert hot(classes.trap()).__name__ == "compiled"
    assert f"{name}=1 is set" in hot.lines[0]["reason"]


@torch.no_grad()
def test_a_submodule_that_answers_otherwise_is_not_passed_over(hot, classes):
    net = classes.trap(seed=3)
    served = hot(net)
    assert hot.served(lambda: served(X)), hot.lines
    net.narrow._compiled_call_impl = lambda x: torch.zeros(4, 8)
    assert not hot.served(lambda: torch.testing.assert_close(served(X), net(X)))
    assert "narrow is compiled on its own" in hot.lines[-1]["reason"]
