"""Times eager and compiled against each other.

Why it exists: the figure a gate rests on must be what a pod will see, on a machine that other Jobs share. Calls are
timed in interleaved pairs whose order alternates, after warm-up, for as long as the verdict is open and time is left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_compiler.intervals import MINIMUM_PAIRS, Interval, median, paired_speedup, settled

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds the clock should see at least; faster calls are timed several at a time.
_SHORTEST_SAMPLE = 0.002
_MOST_REPEATS = 200
_MOST_WARMUP_PAIRS = 30
#: The interval of so many is as narrow as the machine's own drift allows.
_MOST_PAIRS = 500
#: Narrower than plus or minus 2 % says nothing more that a user would act on.
_WIDE = 0.02


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Seconds to measure for: `usual` until the interval is narrow, `longest` while the verdict is open."""

    usual: float = 20.0
    longest: float = 90.0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured; `eager` and `compiled` are seconds per call, one of each pair."""

    eager: tuple[float, ...]
    compiled: tuple[float, ...]
    repeats: int
    speedup: Interval

    @property
    def eager_p50(self) -> float:
        """Median seconds of an eager call."""
        return median(self.eager)

    @property
    def compiled_p50(self) -> float:
        """Median seconds of a compiled call."""
        return median(self.compiled)


def measure(
    eager: Callable[[], object],
    compiled: Callable[[], object],
    *,
    open_verdict: Callable[[Interval], bool],
    budget: Budget,
    clock: Callable[[], float] = time.perf_counter,
) -> Speed:
    """Time both calls; each must wait for its own result (a GPU's calls return before they are done).

    Always takes MINIMUM_PAIRS pairs, then goes on while the interval is wide (until `budget.usual`) or
    `open_verdict(interval)` is true (until `budget.longest`).
    """
    begin = clock()
    repeats = _repeats(eager, compiled, clock)
    before: list[float] = []
    after: list[float] = []
    while len(before) < _MOST_WARMUP_PAIRS and clock() - begin < budget.usual / 2:
        _pair(eager, compiled, repeats, len(before), before, after, clock)
        if settled(before) and settled(after):
            break
    before, after = [], []
    while True:
        _pair(eager, compiled, repeats, len(before), before, after, clock)
        if len(before) < MINIMUM_PAIRS or len(before) % 5:
            continue
        speedup = paired_speedup(before, after)
        spent = clock() - begin
        wide = speedup.relative_width > _WIDE and spent < budget.usual
        undecided = open_verdict(speedup) and spent < budget.longest
        if not (wide or undecided) or len(before) >= _MOST_PAIRS:
            return Speed(eager=tuple(before), compiled=tuple(after), repeats=repeats, speedup=speedup)


def _repeats(eager: Callable[[], object], compiled: Callable[[], object], clock: Callable[[], float]) -> int:
    # The first call of each is not looked at: it allocates, plans and binds.
    eager(), compiled()
    quickest = min(_time(eager, 1, clock), _time(compiled, 1, clock))
    return max(1, min(_MOST_REPEATS, round(_SHORTEST_SAMPLE / max(quickest, 1e-7))))


def _pair(
    eager: Callable[[], object],
    compiled: Callable[[], object],
    repeats: int,
    turn: int,
    before: list[float],
    after: list[float],
    clock: Callable[[], float],
) -> None:
    order = ((eager, before), (compiled, after))
    for call, samples in order if turn % 2 == 0 else order[::-1]:
        samples.append(_time(call, repeats, clock))


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    begin = clock()
    for _ in range(repeats):
        call()
    return (clock() - begin) / repeats
