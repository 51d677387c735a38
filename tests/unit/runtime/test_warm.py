"""Where compiler caches go, and whether they held what was compiled: for this thread, whatever others compile meanwhile."""

from __future__ import annotations

import os
import sys
import threading
import types
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_runtime import warm
from preheat_runtime.environment import CACHE_DIRECTORY, cache_environment
from preheat_runtime.warm import HitCounter, count_by_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Torch:
    """Its figures, and what it gives graphs to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.figures: defaultdict[str, Counter[str]] = defaultdict(Counter)
        module: Any = types.ModuleType("torch._dynamo.utils")
        module.counters = self.figures
        monkeypatch.setitem(sys.modules, "torch._dynamo.utils", module)

        class Backend:
            def __call__(_self, misses: int, *, then: Callable[[], object] = lambda: None) -> str:  # noqa: N805
                """Compile so many graphs that no cache holds."""
                self.figures["inductor"]["fxgraph_cache_miss"] += misses
                then()
                return "compiled"

        monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Backend)
        monkeypatch.setattr(warm, "_counted", [])
        self.backend = Backend


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Torch:
    return Torch(monkeypatch)


def in_another_thread(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_what_another_thread_compiles_meanwhile_is_not_ours(fake: Torch) -> None:
    count_by_thread()
    mine = HitCounter()
    theirs: list[int] = []

    def other() -> None:
        counter = HitCounter()
        assert fake.backend()(2) == "compiled"
        theirs.append(counter.missed())

    in_another_thread(other)
    assert (mine.missed(), theirs) == (0, [2])
    fake.backend()(0)
    assert mine.missed() == 0
    fake.backend()(1)
    assert mine.missed() == 1
    assert HitCounter().missed() == 0


def test_it_is_counted_once_and_also_where_the_compile_fails(fake: Torch) -> None:
    count_by_thread()
    once = fake.backend.__call__
    count_by_thread()
    assert fake.backend.__call__ is once
    counter = HitCounter()

    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fake.backend()(3, then=fail)
    assert counter.missed() == 3


def test_figures_that_are_reset_or_gone_raise_nothing_inside_torch(fake: Torch) -> None:
    count_by_thread()
    counter = HitCounter()
    fake.backend()(2)
    assert fake.backend()(0, then=fake.figures.clear) == "compiled"
    sys.modules["torch._dynamo.utils"].counters = "something else"  # type: ignore[attr-defined]
    assert fake.backend()(0) == "compiled"
    assert counter.missed() == 2


@pytest.mark.parametrize("backend", [None, "something else"])
def test_where_torch_is_otherwise_its_own_figures_stand(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, backend: object
) -> None:
    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", backend)
    count_by_thread()
    counter = HitCounter()
    fake.backend()(1)
    assert counter.missed() == 1


class Pod:
    """One with an artifact's caches, and what torch and Triton have set by then."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.work, self.default = root / "work", root / "torchinductor_me"
        (root / "artifact" / CACHE_DIRECTORY).mkdir(parents=True)
        self._root = root
        for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", *cache_environment()):
            monkeypatch.setenv(name, "")  # so that whatever is set is undone
            monkeypatch.delenv(name)
        monkeypatch.setenv("PREHEAT_WORK_DIR", str(self.work))
        utils = types.SimpleNamespace(default_cache_dir=lambda: str(self.default))
        monkeypatch.setitem(sys.modules, "torch._inductor.runtime.cache_dir_utils", utils)
        for name in ("settle", "count_by_thread", "_set_imported"):
            monkeypatch.setattr(warm, name, lambda *_: None)

    def prepare(self, *devices: str) -> str | None:
        fingerprints = [types.SimpleNamespace(cpu_isa="X86_64_V3", device=device) for device in devices]
        made: Any = [
            types.SimpleNamespace(fingerprint=each, directory=self._root / "artifact") for each in fingerprints
        ]
        return warm.prepare(made, os.environ)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(tmp_path, monkeypatch)


@pytest.mark.parametrize("place", ["", "/triton", "/triton/0"])
def test_what_torch_set_for_triton_at_its_first_kernel_keeps_no_caches_back(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    if place:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(pod.default))
        monkeypatch.setenv("TRITON_CACHE_DIR", f"{pod.default}{place}")
    assert pod.prepare("cuda") is None
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(pod.work / "inductor")
    assert os.environ["TRITON_CACHE_DIR"] == str(pod.work / "inductor" / "triton")


def test_a_place_of_the_pods_own_for_triton_keeps_those_for_a_gpu_back(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine")
    assert pod.prepare("cpu", "cuda") == "the pod sets TRITON_CACHE_DIR itself"
    assert pod.prepare("cpu") is None
    assert os.environ["TRITON_CACHE_DIR"] == "/mine", "for a CPU Triton compiles nothing, and the user's own kernels do"
