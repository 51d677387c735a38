"""Which submodules a pattern means, and which of their inputs' sizes vary."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from preheat_compiler import regions
from preheat_compiler.package import ExampleCall, NotPackageable
from preheat_compiler.regions import region_paths, varying
from preheat_compiler.verdict import TargetError
from preheat_runtime.levers import Levers
from preheat_runtime.package import DimRange
from preheat_runtime.regions import CHANGED


def net() -> nn.Module:
    block = lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())  # noqa: E731
    return nn.ModuleDict({"encoder": nn.ModuleList([block(), block()]), "head": nn.Linear(2, 2)})


@pytest.mark.parametrize(
    ("patterns", "paths"),
    [
        (["encoder.*"], ("encoder.0", "encoder.1")),
        (["encoder.1", "encoder.*"], ("encoder.0", "encoder.1")),
        (["*.*.0"], ("encoder.0.0", "encoder.1.0")),
        (["head", "encoder.0"], ("encoder.0", "head")),
    ],
)
def test_a_star_stands_for_a_name_at_one_level(patterns: list[str], paths: tuple[str, ...]) -> None:
    assert region_paths(net(), patterns) == paths


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        (["encodr.*"], "no submodule is 'encodr.*'; did you mean encoder"),
        (["encoder.**.9"], "no submodule is"),
        (["encoder.*", "encoder.0.1"], "encoder.0.1 lies in encoder.0"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(patterns: list[str], says: str) -> None:
    with pytest.raises(TargetError) as error:
        region_paths(net(), patterns)
    assert error.value.reason == "ModuleNotFound"
    assert says in str(error.value)


def call(*shapes: tuple[int, ...], **kwargs: Any) -> ExampleCall:
    return ExampleCall(args=tuple(torch.zeros(shape) for shape in shapes), kwargs=kwargs)


BATCH = DimRange(name="batch", minimum=2, maximum=16, multiple_of=2)


def test_sizes_that_go_together_are_one_size_and_known_ones_keep_their_range() -> None:
    calls = [call((n, 3 * n, 7), mask=torch.zeros(3 * n)) for n in (8, 2, 16)]
    found = varying(calls, {(8, 2, 16): BATCH})
    assert found is not None
    thrice = found[0,][1]
    assert found == {(0,): {0: BATCH, 1: thrice}, ("mask",): {0: thrice}}
    assert (thrice.minimum, thrice.maximum, thrice.multiple_of) == (6, 48, 1)
    assert thrice.name != BATCH.name


def test_nothing_varies_where_there_is_one_size() -> None:
    assert varying([call((4, 3))], {}) is None
    assert varying([call((4, 3)), call((4, 3))], {}) is None


@pytest.mark.parametrize(
    "calls",
    [
        [call((4, 3)), call((4, 3), (1,))],
        [call((4, 3)), call((2, 4, 3))],
        [call((4, 3), x=[torch.zeros(1)]), call((4, 3), x={"a": torch.zeros(1)})],
    ],
)
def test_calls_that_differ_otherwise_are_no_region(calls: list[ExampleCall]) -> None:
    with pytest.raises(NotPackageable):
        varying(calls, {})


def test_a_region_that_is_set_while_its_module_runs_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Opened:
        def __init__(self, *_: Any) -> None:
            self.missed = {"blocks.0": CHANGED}

        def __call__(self) -> None:
            pass

    monkeypatch.setattr(regions.package, "load_package", Opened)
    monkeypatch.setattr(regions, "pick_sizes", lambda _: [None])
    monkeypatch.setattr(regions, "build_call", lambda *_, **__: ExampleCall())
    work = SimpleNamespace(levers=Levers(), device="cpu", kind="cpu", artifact=None)
    with pytest.raises(NotPackageable, match=r"blocks\.0 is set to something else while its module runs: pass it"):
        regions._require_served(work, nn.Identity(), None)  # type: ignore[arg-type]
