"""Whether the caches held what was compiled: for this thread, whatever others compile meanwhile."""

from __future__ import annotations

import sys
import threading
import types
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_runtime import warm
from preheat_runtime.warm import HitCounter, count_by_thread

if TYPE_CHECKING:
    from collections.abc import Callable


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
