from __future__ import annotations

import random

import pytest

from preheat_compiler.intervals import median, median_interval, paired_speedup, settled


def test_the_interval_of_fifteen_values_is_the_fourth_to_the_twelfth() -> None:
    interval = median_interval([float(value) for value in range(1, 16)])
    assert (interval.low, interval.estimate, interval.high, interval.samples) == (4, 8, 12, 15)


def test_few_values_give_their_whole_range() -> None:
    assert (median_interval([3.0, 1.0, 2.0]).low, median_interval([3.0, 1.0, 2.0]).high) == (1, 3)


def test_drift_that_hits_both_halves_of_a_pair_does_not_matter() -> None:
    drift = [1.0 + 0.2 * turn for turn in range(20)]
    interval = paired_speedup([2 * factor for factor in drift], drift)
    assert interval.low == pytest.approx(2)
    assert interval.high == pytest.approx(2)


def test_single_outliers_do_not_move_the_verdict() -> None:
    eager, compiled = [1.0] * 20, [0.5] * 20
    compiled[3] = 50.0
    eager[7] = 90.0
    interval = paired_speedup(eager, compiled)
    assert (interval.low, interval.estimate, interval.high) == (2, 2, 2)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = random.Random(7)
    covered = 0
    for _ in range(1000):
        values = [rng.lognormvariate(0, 0.3) for _ in range(25)]
        interval = median_interval(values)
        covered += interval.low <= 1.0 <= interval.high
    assert covered >= 930


def test_the_interval_narrows_with_more_samples() -> None:
    rng = random.Random(7)
    values = [rng.lognormvariate(0, 0.3) for _ in range(400)]
    assert median_interval(values).relative_width < median_interval(values[:20]).relative_width


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="no pairs"):
        paired_speedup([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="no time"):
        paired_speedup([1.0], [0.0])
    with pytest.raises(ValueError, match="median of nothing"):
        median([])


def test_warm_up_ends_when_medians_stay() -> None:
    assert not settled([9.0, 8.0, 7.0, 1.0, 1.0, 1.0])
    assert not settled([1.0, 1.0, 1.0])
    assert settled([9.0, 9.0, 9.0, 1.0, 1.01, 1.0, 1.02, 1.0, 1.0])
