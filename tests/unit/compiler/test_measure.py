from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_compiler.intervals import MINIMUM_PAIRS, Interval
from preheat_compiler.measure import Budget, Latency, Speed, measure

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """Time that passes only while something runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, seconds: Callable[[int], float]) -> Callable[[], None]:
        calls = 0

        def run() -> None:
            nonlocal calls
            self.now += seconds(calls)
            self.log.append(name)
            calls += 1

        return run


def never(interval: Interval) -> bool:
    return False


def test_steady_calls_take_the_least_number_of_pairs_in_alternating_order() -> None:
    clock = Clock()
    eager, compiled = clock.work("e", lambda _: 0.02), clock.work("c", lambda _: 0.01)
    speed = measure(eager, compiled, open_verdict=never, budget=Budget(), clock=clock)
    assert speed.speedup.samples == MINIMUM_PAIRS == len(speed.eager)
    assert abs(speed.speedup.estimate - 2) < 1e-6
    assert "".join(clock.log[-4:]) in {"ecce", "ceec"}


def test_slow_first_calls_are_warm_up() -> None:
    clock = Clock()
    eager = clock.work("e", lambda _: 0.02)
    compiled = clock.work("c", lambda call: 5.0 if call < 3 else 0.01)
    speed = measure(eager, compiled, open_verdict=never, budget=Budget(usual=60.0, longest=60.0), clock=clock)
    assert max(speed.compiled) < 0.02


def test_quick_calls_are_timed_several_at_a_time() -> None:
    clock = Clock()
    eager, compiled = clock.work("e", lambda _: 2e-5), clock.work("c", lambda _: 1e-5)
    speed = measure(eager, compiled, open_verdict=never, budget=Budget(), clock=clock)
    assert speed.repeats == 200
    assert abs(speed.compiled_p50 - 1e-5) < 1e-8


def test_an_open_verdict_is_measured_longer_but_not_for_ever() -> None:
    def run(open_verdict: Callable[[Interval], bool]) -> tuple[int, float]:
        clock = Clock()
        eager, compiled = clock.work("e", lambda _: 0.01), clock.work("c", lambda _: 0.01)
        speed = measure(eager, compiled, open_verdict=open_verdict, budget=Budget(usual=1.0, longest=10.0), clock=clock)
        return speed.speedup.samples, clock.now

    pairs, _ = run(never)
    more, seconds = run(lambda interval: True)
    assert more > 10 * pairs
    assert 10.0 <= seconds < 10.5
    until_sixty, _ = run(lambda interval: interval.samples < 60)
    # Looked at rarely, since every look is a chance to be wrong.
    assert 60 <= until_sixty < 90


def test_what_ends_a_measurement_is_surer_than_what_is_reported() -> None:
    rng = random.Random(3)
    clock = Clock()
    eager = clock.work("e", lambda _: 0.01 * rng.lognormvariate(0, 0.2))
    seen: list[Interval] = []

    def look(interval: Interval) -> bool:
        seen.append(interval)
        return False

    speed = measure(eager, eager, open_verdict=look, budget=Budget(usual=0.1, longest=1.0), clock=clock)
    assert seen[-1].low < speed.speedup.low < speed.speedup.high < seen[-1].high


def test_latencies_are_of_single_calls_also_where_several_make_a_sample() -> None:
    clock = Clock()
    eager = clock.work("e", lambda call: 1e-3 if call % 100 == 50 else 2e-5)
    speed = measure(eager, clock.work("c", lambda _: 1e-5), open_verdict=never, budget=Budget(), clock=clock)
    assert speed.eager_latency is not None
    assert speed.compiled_latency is not None
    latency = speed.eager_latency
    assert latency.calls == len(speed.eager) * speed.repeats
    assert latency.p50 == speed.eager_p50 == pytest.approx(2e-5)
    assert latency.p99 == pytest.approx(2e-5)
    assert latency.quantiles[-1] == pytest.approx(1e-3)
    assert latency.throughput == pytest.approx(1 / latency.mean)
    assert speed.compiled_latency.deviation == pytest.approx(0, abs=1e-12)


def test_a_speed_survives_the_trip_through_json() -> None:
    clock = Clock()
    eager, compiled = clock.work("e", lambda call: 0.02 + call * 1e-5), clock.work("c", lambda _: 0.01)
    speed = measure(eager, compiled, open_verdict=never, budget=Budget(), clock=clock)
    assert Speed.from_json(json.loads(json.dumps(speed.to_json()))) == speed
    plain = replace(speed, eager_latency=None, compiled_latency=None)
    assert Speed.from_json(json.loads(json.dumps(plain.to_json()))) == plain


@given(st.lists(st.floats(min_value=1e-7, max_value=1e3), min_size=1, max_size=300))
def test_percentiles_are_values_that_were_seen_and_rise(calls: list[float]) -> None:
    latency = Latency.of(calls)
    assert {latency.p95, latency.p99, *latency.quantiles} <= set(calls)
    assert min(calls) == latency.quantiles[0] <= latency.p50 <= latency.p95 <= latency.p99 <= latency.quantiles[-1]
    assert list(latency.quantiles) == sorted(latency.quantiles)
    assert latency.quantiles[-1] == max(calls)
    assert sum(call <= latency.p95 for call in calls) >= 0.95 * len(calls) - 1e-6
    assert latency.variation >= 0
