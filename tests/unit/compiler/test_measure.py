from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_compiler.intervals import MINIMUM_PAIRS, Interval
from preheat_compiler.measure import Budget, measure

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
    assert until_sixty == 60
