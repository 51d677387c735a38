"""Times a package's later answers for a while, so that a pod can say how it does beside the compile Job.

Why it exists: that a package is faster was measured once, on one node, with nothing else on it. A fleet whose answers
take twice that has nodes that are slower or busier, or fewer CPUs than somebody thinks; nobody looks for that. It is
told once, after a few dozen answers, and then no more is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .package import TargetUnreadable

if TYPE_CHECKING:
    from .revision import Candidate

#: Answers that are not timed: caches and clocks are still getting up to speed.
SKIPPED = 8
#: Answers that are.
TIMED = 64


class Steady:
    """The times of one package's answers in this process. Threads may add at the same time; one more or less is no matter."""

    def __init__(self, *, module: str, bucket: str, hardware: str, job_ms: float) -> None:
        """`job_ms` is the median that the compile Job measured, in milliseconds."""
        self.module = module
        self.bucket = bucket
        self.hardware = hardware
        self._job_ms = job_ms
        self._seen = 0
        self._seconds: list[float] = []

    def add(self, seconds: float) -> bool:
        """Take an answer's time; True once, when there are enough."""
        self._seen += 1
        if self._seen > SKIPPED and len(self._seconds) < TIMED:
            self._seconds.append(seconds)
            return len(self._seconds) == TIMED
        return False

    @property
    def median_ms(self) -> float:
        """The median, in milliseconds."""
        return sorted(self._seconds)[len(self._seconds) // 2] * 1e3

    @property
    def times_the_jobs(self) -> float:
        """The median as a multiple of the Job's."""
        return self.median_ms / self._job_ms


def steady_of(candidate: Candidate) -> Steady | None:
    """What to time a package with; None where nothing can be compared: no figure, or sizes that vary from call to call."""
    entry = candidate.entry
    try:
        job_ms = float(entry.figures.get("compiledP50Ms", "0"))
        if job_ms <= 0 or candidate.kind != "package" or candidate.target.call.dims:
            return None
    except (TargetUnreadable, ValueError):
        return None
    return Steady(module=entry.module, bucket=entry.bucket, hardware=entry.hardware, job_ms=job_ms)
