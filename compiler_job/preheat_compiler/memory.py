"""How much memory a process needs at its peak while it answers.

Why it exists: a pod is killed at its peak, not at its average, and the kernel's own peak counters only ever rise: read
after a call, they may tell of the model's loading, or of an earlier call. So peaks are read in fresh processes that do
nothing but load the model and answer, and the counter is set back before the calls where the kernel allows it. What is
read, and what it does not say, is told in docs/report.md.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler.devices import Gpus
from preheat_compiler.intervals import median

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PROCESS = Path("/proc/self")
_NONE = Gpus()
#: What sets VmHWM back to the present size: proc(5), clear_refs.
_RESET_PEAK = "5"


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Bytes of one process.

    `before`: resident when the model was loaded and nothing had run; None where the kernel does not say.
    `peak`: the most that was resident during the calls, or, where the counter could not be set back (`reset` False),
    since the process began. `device`: the most the CUDA allocator had handed out during the calls, on all devices of the
    model; None without CUDA.
    """

    before: int | None
    peak: int
    reset: bool
    device: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as processes hand it to each other."""
        return {"before": self.before, "peak": self.peak, "reset": self.reset, "device": self.device}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Peak:
        """The record read back; raises KeyError when it is not one of ours."""
        return cls(before=record["before"], peak=record["peak"], reset=record["reset"], device=record["device"])


@dataclass(frozen=True, kw_only=True)
class MemoryGrowth:
    """What a compiled process needs beside an eager one, in bytes; `of` says in words what the two figures are."""

    eager: float
    compiled: float
    of: str

    @property
    def ratio(self) -> float:
        """The compiled peak over the eager one."""
        return self.compiled / self.eager


class PeakMeter:
    """Reads the peak of this process's calls, and of the devices of a model."""

    def __init__(self, gpus: Gpus = _NONE, process: Path = _PROCESS) -> None:
        self._process = process
        self._gpus = gpus
        self._before = status_bytes(process, "VmRSS")

    def of(self, calls: Callable[[], object]) -> Peak:
        """Run `calls` (which wait for their results) and return the peak meanwhile."""
        self._gpus.begin_peak()
        reset = reset_peak(self._process)
        calls()
        peak = status_bytes(self._process, "VmHWM")
        if peak is None:
            # In KiB on Linux. It may even be the parent's from before this program was executed: an upper bound.
            peak, reset = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, False
        return Peak(before=self._before, peak=peak, reset=reset, device=self._gpus.peak())


def reset_peak(process: Path = _PROCESS) -> bool:
    """Set the kernel's peak of this process back to its present size; False where that is not allowed or not known."""
    present = status_bytes(process, "VmRSS")
    with suppress(OSError):
        (process / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        peak = status_bytes(process, "VmHWM")
        # Some sandboxes take the word and do nothing.
        return present is not None and peak is not None and peak <= present * 1.05 + (1 << 20)
    return False


def status_bytes(process: Path, name: str) -> int | None:
    """A size from /proc/<pid>/status in bytes; None where it is not there."""
    with suppress(OSError, ValueError):
        for line in (process / "status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def growth(eager: Sequence[Peak], compiled: Sequence[Peak]) -> MemoryGrowth | None:
    """The two kinds of processes compared by the medians of their peaks; None when there is nothing to compare.

    Where both used a CUDA device its memory counts, since that is what runs out first; else the resident set.
    """
    if not eager or not compiled:
        return None
    if all(each.device is not None for each in (*eager, *compiled)):
        of = "allocated on the device during calls"
        first, second = ([float(each.device or 0) for each in side] for side in (eager, compiled))
    else:
        reset = all(each.reset for each in (*eager, *compiled))
        of = "resident during calls" if reset else "resident since the process began"
        first, second = ([float(each.peak) for each in side] for side in (eager, compiled))
    return MemoryGrowth(eager=median(first), compiled=median(second), of=of) if min(first) > 0 else None
