"""What nobody holds any more is gone, weights and inputs, also in a server that has switched off the search for cycles."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_runtime import choosing, fallback, serve, trial
from preheat_runtime.choosing import Choice
from preheat_runtime.levers import Levers
from preheat_runtime.native import NativeError
from preheat_runtime.policy import NotServed, Serving
from preheat_runtime.regions import _Region

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def _nobody_looks_for_cycles() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise IndexError("index 1000 is out of range")
        return x


class Candidate:
    entry = SimpleNamespace(module="main", bucket="one", hardware="cpu", figures={})
    target = SimpleNamespace(levers=SimpleNamespace(plain=False, arguments=dict))
    size = 1


class Package:
    missed: dict[str, str] = {}  # noqa: RUF012
    runs_the_module = False

    def answer(self, *_: object) -> torch.Tensor:
        try:
            raise OSError("out of luck")
        except OSError as error:
            raise NativeError("out of luck") from error


class Silent:
    """As a Reporter."""

    def __init__(self) -> None:
        self.by_artifact, self.model = 0, "vision"

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def served(on_miss: str = "Compile") -> Callable[..., Any]:
    """A Net's server."""
    shared: Any = SimpleNamespace(
        reporter=Silent(),
        serving=Serving(on_miss=on_miss),
        revision=SimpleNamespace(candidates=(), reason="there is none"),
    )
    net = Net()
    server = serve.Server(net, functools.partial(lambda model, **_: model.forward, net), net, {}, shared)
    return serve.PreheatedModule(net, server, {})


CHOICES = {
    "never called": None,
    "cold": Choice(outcome="cold", reason="no artifact"),
    "warm": Choice(outcome="warm", reason="compiler caches", candidate=Candidate()),  # type: ignore[arg-type]
    "eager": Choice(outcome="eager", reason="rejected"),
    "hot": Choice(outcome="hot", reason="package", candidate=Candidate(), package=Package(), tensors=[]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES.keys())
def test_the_weights_go_with_the_last_name(monkeypatch: pytest.MonkeyPatch, choice: Choice | None) -> None:
    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    monkeypatch.setattr(choosing.Chooser, "choose", lambda *_: choice)
    compiled = served()
    weight = weakref.ref(compiled.weight)  # type: ignore[attr-defined]
    for _ in range(3 if choice else 0):
        compiled(torch.zeros(2))
    del compiled
    assert weight() is None


@pytest.mark.parametrize("on_miss", ["Compile", "Eager", "Fail"])
@pytest.mark.parametrize("value", [0.0, float("nan")], ids=["eager answers", "eager refuses"])
def test_the_inputs_of_a_call_that_a_package_refused_go_with_it(
    monkeypatch: pytest.MonkeyPatch, on_miss: str, value: float
) -> None:
    monkeypatch.setattr(choosing.Chooser, "choose", lambda *_: CHOICES["hot"])
    monkeypatch.setattr(choosing.Chooser, "failed", lambda *_: None)
    _refuses(served(on_miss), value)


def test_the_inputs_of_a_call_that_could_not_be_looked_at_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Choice:
        raise KeyError("of ours")

    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    monkeypatch.setattr(choosing.Chooser, "choose", broken)
    _refuses(served(), float("nan"))


def _refuses(compiled: Callable[..., Any], value: float) -> None:
    x = torch.full((2,), value)
    given = weakref.ref(x)
    with contextlib.suppress(IndexError, NotServed):
        compiled(x)
    del x
    assert given() is None


def test_a_region_does_not_hold_its_package() -> None:
    class Regions:
        def __init__(self) -> None:
            self.state, self.levers = SimpleNamespace(requires_grad=False), Levers()
            self.missed: dict[str, str] = {}
            code = SimpleNamespace(match=lambda *_: "another call", run=None)
            self.region = _Region(code, torch.nn.Identity(), "part", self)  # type: ignore[arg-type]

    package = Regions()
    package.region((torch.zeros(2),), {})
    assert package.missed == {"part": "another call"}
    gone = weakref.ref(package)
    del package
    assert gone() is None


def test_what_a_check_ran_with_goes_where_it_may_not_run() -> None:
    class Drawing(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.rand(2)

    def refused(x: torch.Tensor) -> None:
        try:
            trial.run(Drawing(), (x,), {}, lambda: False)
        except trial.NotRepeatable:
            return
        pytest.fail("it ran")

    x = torch.zeros(2)
    given = weakref.ref(x)
    refused(x)
    del x
    assert given() is None
