"""How often noise makes a verdict wrong, on machines whose noise and drift are known.

Wrong is: Rejected although it reaches the minimum, or Kept although it is slower than eager. What lies between the two
may end either way; neither breaks a promise.
"""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal

import pytest

from preheat_compiler.decide import decide, undecided
from preheat_compiler.measure import Budget, measure
from preheat_compiler.request import KeepIf

RUNS = 300
#: The bound that docs/compile-job.md states is 5 %; of 300 runs that may be 24 by chance (3 standard deviations).
ALLOWED = 0.05 * RUNS + 3 * (0.05 * 0.95 * RUNS) ** 0.5
KEEP_IF = KeepIf(min_speedup=Decimal("1.05"), max_error=None)


class NoisyMachine:
    """Calls of a known length on a machine with noise, drift and, now and then, a neighbour who takes it all."""

    def __init__(self, seed: int, *, spread: float) -> None:
        self._rng = random.Random(seed)
        self._spread = spread
        self._now = 0.0

    def clock(self) -> float:
        return self._now

    def call(self, seconds: float) -> None:
        drift = 1 + 0.3 * (int(self._now / 7) % 3)
        neighbour = 5 if self._rng.random() < 0.02 else 1
        self._now += seconds * drift * neighbour * self._rng.lognormvariate(0, self._spread)


def verdicts(ratio: float, *, spread: float, seconds: float = 0.05) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for seed in range(RUNS):
        machine = NoisyMachine(seed, spread=spread)
        speed = measure(
            lambda machine=machine: machine.call(seconds * ratio),
            lambda machine=machine: machine.call(seconds),
            open_verdict=lambda interval: undecided(KEEP_IF, interval),
            budget=Budget(usual=10.0, longest=60.0),
            clock=machine.clock,
        )
        decision = decide(KEEP_IF, error=0.0, allowed=1e-3, speedup=speed.speedup)
        found[decision.verdict, decision.reason] += 1
    return found


@pytest.mark.parametrize("spread", [0.02, 0.1])
@pytest.mark.parametrize("ratio", [1.05, 1.07, 1.2, 2.0])
def test_what_reaches_the_minimum_is_not_rejected(ratio: float, spread: float) -> None:
    found = verdicts(ratio, spread=spread)
    assert sum(count for (verdict, _), count in found.items() if verdict == "Rejected") <= ALLOWED, found


@pytest.mark.parametrize("spread", [0.02, 0.1])
@pytest.mark.parametrize("ratio", [0.46, 0.9, 0.97])
def test_what_is_slower_than_eager_is_not_kept(ratio: float, spread: float) -> None:
    found = verdicts(ratio, spread=spread)
    assert sum(count for (verdict, _), count in found.items() if verdict == "Kept") <= ALLOWED, found


def test_so_much_noise_that_nothing_can_be_told_is_said_to_be_that() -> None:
    # Slow calls: the time allows for no more than the least number of pairs.
    found = verdicts(1.06, spread=0.3, seconds=3.0)
    assert sum(count for (verdict, _), count in found.items() if verdict == "Rejected") <= RUNS / 2, found
    assert found["Kept", "NoDifference"] > found["Rejected", "SpeedupBelowMinimum"], found
    assert found["Rejected", "SpeedupBelowMinimum"] <= ALLOWED, found
