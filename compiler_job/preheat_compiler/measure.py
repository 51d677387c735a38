"""Times eager and compiled against each other.

Why it exists: the figure a gate rests on must be what a pod will see, on a machine that other Jobs share. Calls are
timed in interleaved pairs whose order alternates, after warm-up, for as long as the verdict is open and time is left.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from preheat_compiler.intervals import (
    MINIMUM_PAIRS,
    STOPPING_CONFIDENCE,
    Interval,
    median,
    paired_speedup,
    quantile,
    settled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

#: Seconds the clock should see at least; faster calls are timed several at a time.
_SHORTEST_SAMPLE = 0.002
_MOST_REPEATS = 200
_MOST_WARMUP_PAIRS = 30
#: The interval of so many is as narrow as the machine's own drift allows.
_MOST_PAIRS = 500
#: Looks at the interval: at 15 pairs, and each time there are half as many more. See STOPPING_CONFIDENCE.
_GROWTH = 1.5
#: Narrower than plus or minus 2 % says nothing more that a user would act on.
_WIDE = 0.02


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Seconds to measure for: `usual` until the interval is narrow, `longest` while the verdict is open."""

    usual: float = 20.0
    longest: float = 90.0


@dataclass(frozen=True, kw_only=True)
class Latency:
    """How long single calls took, in seconds; `deviation` is their standard deviation.

    Percentiles are values that were seen (nearest rank): of fewer than 100 calls p99 is the slowest one.
    """

    calls: int
    p50: float
    p95: float
    p99: float
    mean: float
    deviation: float
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, calls: Sequence[float]) -> Latency:
        """Sum up `calls`; ValueError when there is none."""
        ordered = sorted(calls)
        return cls(
            calls=len(ordered),
            p50=median(ordered),
            p95=quantile(ordered, 0.95),
            p99=quantile(ordered, 0.99),
            mean=fmean(ordered),
            deviation=stdev(ordered) if len(ordered) > 1 else 0.0,
            quantiles=tuple(quantile(ordered, step / 100) for step in range(101)),
        )

    @property
    def throughput(self) -> float:
        """Calls per second, one after the other."""
        return 1 / self.mean if self.mean > 0 else math.inf

    @property
    def variation(self) -> float:
        """The standard deviation over the mean."""
        return self.deviation / self.mean if self.mean > 0 else 0.0


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured; `eager` and `compiled` are seconds per call, one of each pair.

    The latencies are of the single calls behind them, None where only the pairs are known.
    """

    eager: tuple[float, ...]
    compiled: tuple[float, ...]
    repeats: int
    speedup: Interval
    eager_latency: Latency | None = None
    compiled_latency: Latency | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as processes hand it to each other."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Speed:
        """The record read back; raises KeyError or TypeError when it is not one of ours."""
        latencies = {
            side: Latency(**{**seen, "quantiles": tuple(seen["quantiles"])}) if (seen := record[side]) else None
            for side in ("eager_latency", "compiled_latency")
        }
        return cls(
            eager=tuple(record["eager"]),
            compiled=tuple(record["compiled"]),
            repeats=record["repeats"],
            speedup=Interval(**record["speedup"]),
            **latencies,
        )

    @property
    def eager_p50(self) -> float:
        """Median seconds of an eager call."""
        return self.eager_latency.p50 if self.eager_latency else median(self.eager)

    @property
    def compiled_p50(self) -> float:
        """Median seconds of a compiled call."""
        return self.compiled_latency.p50 if self.compiled_latency else median(self.compiled)


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
    `open_verdict` is true of an interval that is sure enough to stop at (until `budget.longest`).
    """
    begin = clock()
    repeats = _repeats(eager, compiled, clock)
    before, after = _Side(eager, repeats, clock), _Side(compiled, repeats, clock)
    for turn in range(_MOST_WARMUP_PAIRS):
        if clock() - begin >= budget.usual / 2 or (settled(before.samples) and settled(after.samples)):
            break
        _pair(before, after, turn)
    before, after = _Side(eager, repeats, clock), _Side(compiled, repeats, clock)
    look = MINIMUM_PAIRS
    while True:
        _pair(before, after, len(before.samples))
        pairs, spent = len(before.samples), clock() - begin
        last = pairs >= _MOST_PAIRS or spent >= budget.longest
        if pairs < MINIMUM_PAIRS or (pairs < look and not last):
            continue
        look = min(math.ceil(pairs * _GROWTH), _MOST_PAIRS)
        speedup = paired_speedup(before.samples, after.samples)
        wide = speedup.relative_width > _WIDE and spent < budget.usual
        undecided = open_verdict(paired_speedup(before.samples, after.samples, STOPPING_CONFIDENCE))
        if last or not (wide or undecided):
            return Speed(
                eager=tuple(before.samples),
                compiled=tuple(after.samples),
                repeats=repeats,
                speedup=speedup,
                eager_latency=Latency.of(before.calls),
                compiled_latency=Latency.of(after.calls),
            )


class _Side:
    """Eager or compiled: seconds of each call, and per sample of `repeats` calls their mean."""

    def __init__(self, call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> None:
        self._call = call
        self._repeats = repeats
        self._clock = clock
        self.samples: list[float] = []
        self.calls: list[float] = []

    def sample(self) -> None:
        """Take one sample."""
        clock, call = self._clock, self._call
        marks = [clock()]
        for _ in range(self._repeats):
            call()
            marks.append(clock())
        self.samples.append((marks[-1] - marks[0]) / self._repeats)
        self.calls.extend(after - before for before, after in itertools.pairwise(marks))


def _repeats(eager: Callable[[], object], compiled: Callable[[], object], clock: Callable[[], float]) -> int:
    # The first call of each is not looked at: it allocates, plans and binds.
    eager(), compiled()
    sides = _Side(eager, 1, clock), _Side(compiled, 1, clock)
    for side in sides:
        side.sample()
    quickest = min(side.samples[0] for side in sides)
    return max(1, min(_MOST_REPEATS, round(_SHORTEST_SAMPLE / max(quickest, 1e-7))))


def _pair(before: _Side, after: _Side, turn: int) -> None:
    for side in (before, after) if turn % 2 == 0 else (after, before):
        side.sample()
