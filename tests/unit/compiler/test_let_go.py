"""A model's weights are held by one process at a time: a GPU may have room for them once and not twice."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from preheat_compiler import carry, devices, judge, target
from preheat_compiler import package as packages
from preheat_compiler.caches import CachesError
from preheat_compiler.loaded import Loaded
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError
from preheat_compiler.work import Work
from preheat_runtime.bind import Mismatch
from preheat_runtime.package import Target
from unit.compiler import gpus, requests
from unit.compiler.jobs import bucket, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Broken(Net):
    """What torch.export refuses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.sum()) > 1e9:
            return x
        return self.inner(x)


class BrokenAndCounting(Broken):
    """What changes when it runs as well, so it is loaded once more."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x)


class Model:
    """A target, and what there still is of the modules and weights that its factory made."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Net]) -> None:
        self._made: list[weakref.ref[Any]] = []
        self.kind = kind
        self.loads = 0
        theirs = ModuleType("their_model")
        theirs.load = self.load  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "their_model", theirs)
        modules = [{"name": "main", "path": "", "buckets": [bucket("one", tensor(2, 4))]}]
        raw = requests.make(
            torch={"factory": "their_model:load", "modules": modules}, keepIf={"minSpeedup": "0"},
            targets=[{"module": "main", "bucket": "one"}],
        )  # fmt: skip
        request = parse_request(raw)
        module, one = request.target("main", "one")
        self.work = Work(
            launcher=folder, request_file=folder / "request.json", request=request, module=module, bucket=one,
            folder=folder / "work", deadline=time.monotonic() + 5, report=Report(target="main/one"),
        )  # fmt: skip
        for name in (self.work.artifact, self.work.described):
            name.mkdir(parents=True)

    def load(self) -> Net:
        assert not self.left(), "one is loaded while another is still there"
        net = self.kind()
        self.loads += 1
        self._made += [weakref.ref(net), weakref.ref(net.inner.weight)]
        return net

    def left(self) -> list[str]:
        return [type(there).__name__ for each in self._made if (there := each()) is not None]


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """What was left of the modules whenever other processes were to be started: see `watch`."""
    seen: list[list[str]] = []
    gc.disable()  # or chance decides
    yield seen
    gc.enable()


def watch(model: Model, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    def caches(**_: Any) -> Any:
        starts.append(model.left())
        raise CachesError("CompileFailed", "not here")

    def fresh(*_: Any) -> Any:
        starts.append(model.left())
        raise TargetError("ProofFailed", "not here")

    monkeypatch.setattr(judge, "compile_caches", caches)
    monkeypatch.setattr(judge, "_first_answers", fresh)


@pytest.mark.parametrize(("kind", "loads"), [(Broken, 1), (BrokenAndCounting, 2)])
def test_no_module_is_left_when_another_process_fills_the_caches(
    kind: type[Net], loads: int, tmp_path: Path, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(tmp_path, monkeypatch, kind)
    watch(model, starts, monkeypatch)
    with pytest.raises(TargetError, match="not as a package"):
        target._decide(model.work)
    assert (starts, model.loads) == ([[]], loads)


def answer_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that is no more than the module itself: nothing is compiled."""

    def build(work: Work, module: nn.Module) -> None:
        Target.read(work.described / "target.json").write(work.artifact / "target.json")

    monkeypatch.setattr(target, "build", build)
    monkeypatch.setattr(packages, "load_package", lambda _, module: module)


def test_no_module_is_left_when_fresh_processes_prove_a_package(
    tmp_path: Path, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(tmp_path, monkeypatch, Net)
    watch(model, starts, monkeypatch)
    answer_eagerly(monkeypatch)
    with pytest.raises(TargetError, match="not here"):
        target._decide(model.work)
    assert (starts, model.loads) == ([[]], 1)


def test_nor_when_a_package_stops_answering_and_caches_are_next(
    tmp_path: Path, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(tmp_path, monkeypatch, Net)
    watch(model, starts, monkeypatch)
    answer_eagerly(monkeypatch)

    def mismatch(_: Path, module: nn.Module) -> nn.Module:
        raise Mismatch("IdentityDiffers", "it is another one")

    monkeypatch.setattr(packages, "load_package", mismatch)
    with pytest.raises(TargetError, match="not as a package"):
        target._decide(model.work)
    assert starts == [[]]


def test_nor_when_the_caches_of_an_earlier_revision_are_tried_or_it_is_built_after_all(
    tmp_path: Path, starts: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(tmp_path, monkeypatch, Broken)
    watch(model, starts, monkeypatch)
    model.work.request = replace(model.work.request, base="sha256:0")

    class Former:
        folder = tmp_path
        entry = type("Entry", (), {"verdict": "Kept", "tier": "caches"})

        def copy_to(self, folder: Path) -> None: ...

    monkeypatch.setattr(carry, "find", lambda *_: Former())
    with pytest.raises(TargetError, match="not as a package"):
        target._decide(model.work)
    assert (starts, model.loads) == ([[], []], 2)


@pytest.mark.parametrize("initialised", [True, False])
def test_what_torch_keeps_of_a_gpu_is_given_back_and_no_gpu_is_begun_with_for_it(
    initialised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = gpus.use(monkeypatch, initialised=initialised)
    loaded = Loaded(nn.Linear(1, 1))
    there = weakref.ref(loaded.module)
    loaded.let_go()
    assert there() is None
    assert [name for name, _ in cuda.asked] == ["empty_cache"] * initialised
    with pytest.raises(ValueError, match="let go"):
        _ = loaded.module
    loaded.let_go()
    devices.give_back()
