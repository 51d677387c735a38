"""The statistics behind a speed verdict.

Why it exists: on a shared machine two runs of the same code differ by tens of per cent, and a gate that compares two
means would keep and reject by chance. Eager and compiled are therefore timed in interleaved pairs, the speedup is the
median of the pairs' ratios (drift hits both halves of a pair), and the interval around it needs no assumption about
the noise: it is the exact order-statistic interval of a median.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Coverage of every interval that is reported.
CONFIDENCE = 0.95
#: Coverage of the interval that may end a measurement early. Whoever looks at a growing sample ten times and stops at
#: the first that pleases is wrong far more often than one look says; nine looks at 0.25 % and a last one at 2.5 % are
#: wrong in at most 5 of 100 measurements.
STOPPING_CONFIDENCE = 0.995
#: Fewer pairs say too little: with 15 the interval is the 4th to the 12th ratio.
MINIMUM_PAIRS = 15


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate with the limits of its 95 % interval; `samples` is how many values it rests on."""

    estimate: float
    low: float
    high: float
    samples: int

    @property
    def relative_width(self) -> float:
        """Half the interval's width over the estimate: 0.03 reads as plus or minus 3 %."""
        return (self.high - self.low) / 2 / self.estimate if self.estimate else math.inf


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of the middle two; ValueError when there is none."""
    if not values:
        raise ValueError("the median of nothing")
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The median of `values` with its exact distribution-free interval.

    The limits are the k-th least and k-th largest value, k as large as the binomial distribution allows at this
    confidence. Fewer than six values cannot give 95 %: the limits are then the least and the largest.
    """
    ordered = sorted(values)
    rank = max(_rank(len(ordered), confidence), 1)
    return Interval(estimate=median(ordered), low=ordered[rank - 1], high=ordered[-rank], samples=len(ordered))


def paired_speedup(eager: Sequence[float], compiled: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """How many times faster `compiled` is, from seconds of interleaved pairs: the median ratio and its interval.

    ValueError when the lists differ in length, are empty, or hold a time that is not positive.
    """
    if len(eager) != len(compiled):
        raise ValueError(f"{len(eager)} eager and {len(compiled)} compiled samples are no pairs")
    if any(second <= 0 for second in [*eager, *compiled]):
        raise ValueError("a sample took no time: the clock is too coarse for it")
    return median_interval([before / after for before, after in zip(eager, compiled, strict=True)], confidence)


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of the values, given in order, that at least `share` of them do not exceed; ValueError when none."""
    if not ordered:
        raise ValueError("the quantile of nothing")
    return ordered[max(math.ceil(round(share * len(ordered), 9)), 1) - 1]


def settled(samples: Sequence[float], *, block: int = 3, tolerance: float = 0.05) -> bool:
    """True when the last two blocks' medians lie within `tolerance`: caches are warm, clocks are up."""
    if len(samples) < 2 * block:
        return False
    before, after = median(samples[-2 * block : -block]), median(samples[-block:])
    return abs(after - before) <= tolerance * before


@lru_cache(maxsize=256)
def _rank(count: int, confidence: float) -> int:
    """The largest k with P(Binomial(count, 1/2) < k) <= (1 - confidence) / 2."""
    allowed = Fraction(str(round(1 - confidence, 6))) / 2 * 2**count
    total, rank = 0, 0
    while total + math.comb(count, rank) <= allowed:
        total += math.comb(count, rank)
        rank += 1
    return rank
