"""What the measurement of `import torch` calls a miss, and that its three kinds of process are told apart."""

from __future__ import annotations

import pytest


@pytest.fixture
def cost(benchmark):
    return benchmark("import_cost")


def results(*, added: float = 1.5, whole_low: float = -40.0) -> dict:
    def interval(estimate: float, low: float) -> dict:
        return {"estimate": estimate, "low": low, "high": estimate + 1, "samples": 25}

    names = ("step", "search", "sources_added", "import_torch", "no_torch")
    clock = {
        "added": interval(added, added - 1),
        "whole": interval(3.0, whole_low),
        **{each: interval(1, 0) for each in names},
    }
    about = {"commit": "c", "date": "d", "machine": "m", "python": "3.11.7", "torch": "2.15.0", "names": 130}
    return {**about, "cpu": clock, "wall": clock}


def test_what_is_within_two_milliseconds_is_met(cost):
    assert cost.misses(results()) == []
    assert cost.report(results(), []).endswith("Target: at most 2 ms. Met.\n")


@pytest.mark.parametrize(
    ("given", "said"), [({"added": 2.1}, "2.10 ms of"), ({"whole_low": 2.5}, "at least 2.5 ms of")]
)
def test_either_clock_and_the_whole_import_can_miss(cost, given, said):
    missed = cost.misses(results(**given))
    assert [each.split(" of ")[1] for each in missed] == ["processor time", "wall time"]
    assert said in cost.report(results(**given), missed)


def test_a_process_that_is_not_what_it_is_called_ends_the_measurement(cost, monkeypatch, tmp_path):
    told = '{"loaded": true, "byte_code": false, "ours": ["preheat_runtime.hook"]}'
    monkeypatch.setattr(cost, "fresh", lambda *_, **__: told)
    assert cost.imported(cost.SOURCES, tmp_path, "[]", tmp_path)["loaded"]
    with pytest.raises(SystemExit, match="not with Preheat as it must be"):
        cost.imported(cost.WITH, tmp_path, "[]", tmp_path)
    with pytest.raises(SystemExit, match="not without Preheat as it must be"):
        cost.imported(cost.WITHOUT, None, "[]", tmp_path)
