"""Later answers are timed for a while, told once beside the Job's, and only where the two can be compared."""

import types

import pytest

from preheat_runtime.package import TargetUnreadable
from preheat_runtime.steady import SKIPPED, TIMED, Steady, steady_of


def steady(job_ms=2.0):
    return Steady(module="main", bucket="one", hardware="cpu", job_ms=job_ms)


def test_the_median_of_later_answers_once():
    timed = steady()
    assert not any(timed.add(99.0) for _ in range(SKIPPED)), "the first ones are not timed"
    seconds = [0.003] * (TIMED // 2 + 1) + [0.001] * (TIMED // 2 - 2)
    assert not any(timed.add(each) for each in seconds)
    assert timed.add(50.0)
    assert not timed.add(50.0), "once"
    assert timed.median_ms == 3.0
    assert timed.times_the_jobs == 1.5


def candidate(figures, kind="package", dims=(), unreadable=False):
    class Candidate:
        entry = types.SimpleNamespace(module="main", bucket="one", hardware="cpu", figures=figures)

        @property
        def target(self):
            if unreadable:
                raise TargetUnreadable("x")
            return types.SimpleNamespace(call=types.SimpleNamespace(dims=dims))

    found = Candidate()
    found.kind = kind
    return found


@pytest.mark.parametrize(
    ("made", "compared"),
    [
        (candidate({"compiledP50Ms": "2.5"}), True),
        (candidate({}), False),
        (candidate({"compiledP50Ms": "0"}), False),
        (candidate({"compiledP50Ms": "x"}), False),
        (candidate({"compiledP50Ms": "2.5"}, kind="caches"), False),
        (candidate({"compiledP50Ms": "2.5"}, dims=("batch",)), False),
        (candidate({"compiledP50Ms": "2.5"}, unreadable=True), False),
    ],
)
def test_only_where_the_two_can_be_compared(made, compared):
    assert (steady_of(made) is not None) is compared
