"""What the comparison of first answers calls a miss, from rounds that are written out."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest


@pytest.fixture
def report(benchmark):
    return benchmark("peer_report")


def row(total: float, after: float, *faults: str) -> dict:
    return {
        "total_seconds": total,
        "after_import_seconds": after,
        "p50_ms": 1.0,
        "compiler_runs": 0,
        "faults": list(faults),
    }


def rounds(count: int = 15, **ways: dict) -> list[dict]:
    """Rounds on a machine that becomes slower and slower: only ratios within a round mean something."""
    slower = [1 + number / 3 for number in range(count)]
    return [
        {
            way: {name: each * by if isinstance(each, float) else each for name, each in of.items()}
            for way, of in ways.items()
        }
        for by in slower
    ]


GOOD = {"eager": row(4.0, 1.0), "warm": row(8.0, 5.0), "preheat": row(4.1, 1.04), "cold": row(30.0, 27.0)}


def judged(report, ways: dict) -> list[str]:
    return report.judge({"model": report.summary(rounds(**ways), {})})


def test_ratios_are_to_the_same_rounds_eager_start(report):
    found = report.summary(rounds(**GOOD), {"preheat": 7})
    ratio = found["preheat"]["over_eager"]["total_seconds"]
    assert ratio["estimate"] == pytest.approx(4.1 / 4.0)
    assert (ratio["low"], ratio["high"]) == pytest.approx((4.1 / 4.0, 4.1 / 4.0))
    assert found["warm"]["preheat_over_it"]["after_import_seconds"]["estimate"] == pytest.approx(1.04 / 5.0)
    assert found["preheat"]["bytes_moved"] == 7
    assert found["eager"]["bytes_moved"] is None


def test_a_way_that_is_not_in_every_round_is_compared_in_those_it_is_in(report):
    some = rounds(**GOOD)
    for each in some[2:]:
        del each["cold"]
    found = report.summary(some, {})
    assert found["cold"]["samples"] == 2
    assert found["cold"]["over_eager"]["total_seconds"]["estimate"] == pytest.approx(30 / 4)


def test_nothing_is_missed_when_it_is_near_eager_and_ahead_of_all(report):
    assert judged(report, GOOD) == []


@pytest.mark.parametrize(
    ("way", "values", "words"),
    [
        ("preheat", row(4.3, 1.0), "from the start of the process: Preheat is 1.075"),
        ("preheat", row(4.0, 1.2), "after `import torch`: Preheat is 1.200"),
        ("warm", row(4.05, 5.0), "times warm cache directory"),
        ("preheat", row(4.0, 1.0, "a compiler ran 2 times"), "Preheat: a compiler ran 2 times"),
        ("warm", row(8.0, 5.0, "0 hits"), "warm cache directory: 0 hits"),
    ],
)
def test_each_kind_of_miss_is_said(report, way, values, words):
    (miss,) = judged(report, {**GOOD, way: values})
    assert words in miss


def test_table_and_plot_show_every_way_and_every_miss(report):
    subjects = {"model": report.summary(rounds(**{**GOOD, "preheat": row(4.3, 1.0)}), {"preheat": 2_500_000})}
    results = {
        "commit": "abc", "date": "2026-01-01", "machine": "m", "torch": "2", "seed": 1,
        "subjects": subjects, "misses": report.judge(subjects), "failing": {"model": {"traced": "NameError: no such name"}},
        "rejected": {"model": "SpeedupBelowMinimum"},
    }  # fmt: skip
    text = report.table(results)
    assert "| model | eager | 13.33 | 1 |" in text
    assert "**2.50**" in text
    assert "MISSED" in text
    assert "- model, the same, `TORCH_CACHING_PRECOMPILE`: `NameError: no such name`" in text
    assert "| **Preheat, eager by its gate** |" in text
    assert "- model: SpeedupBelowMinimum" in text
    assert "Preheat is 1.075" in text
    plot = ElementTree.fromstring(report.chart(results))
    assert "Preheat" in "".join(plot.itertext())
    assert not list(plot.iter("{http://www.w3.org/2000/svg}script"))
