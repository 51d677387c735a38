"""Writes report.json: everything that was seen on the way to a target's verdict.

Why it exists: the verdict's message holds 1024 characters; a person who wants to know why a model is slower compiled,
or which file kept it from being exported, needs the rest. The schema is told in docs/report.md. Numbers are decimal
strings, as everywhere in Preheat's files.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler.intervals import median
from preheat_compiler.progress import say
from preheat_runtime.processors import processors
from preheat_runtime.redaction import printable, redact, redacted, redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from preheat_compiler.measure import Latency, Speed
    from preheat_compiler.memory import Peak
    from preheat_compiler.verdict import TargetResult
    from preheat_runtime.compare import Difference

FILE = "report.json"
#: Stages in which code of the user's runs; a process that ends there was ended by it.
LOADING, LOADING_AGAIN, LOADING_TO_BIND = "loading the model", "loading the model again", "loading the model to bind"
RUNNING = "running eager"
_MOST_SAMPLES = 200


def decimal(value: float, digits: int = 4) -> str | None:
    """`value` as a decimal string; very small or large ones with an exponent; None for what is no number."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return None
    if value != 0 and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{digits}f}"


class Report:
    """Collects what is seen while a target is compiled; tells the driver, through `stage_file`, what is going on."""

    def __init__(self, *, target: str, stage_file: Path | None = None) -> None:
        self._target = target
        self._stage_file = stage_file
        self._stages: list[dict[str, Any]] = []
        self._content: dict[str, Any] = {}
        #: What requestKey is the hash of; None when the target ended before it was known.
        self.asked: dict[str, Any] | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A part of the work, said aloud and timed, however it ends."""
        say(f"{self._target}: {name}")
        if self._stage_file is not None:
            self._stage_file.write_text(name, encoding="utf-8")
        begin = time.monotonic()
        try:
            yield
        finally:
            self._stages.append({"name": name, "seconds": decimal(time.monotonic() - begin, 3)})

    def seconds(self, name: str) -> float:
        """Seconds spent in the stage of that name, 0 when it did not run."""
        return sum(float(stage["seconds"]) for stage in self._stages if stage["name"] == name)

    def note(self, section: str, **facts: Any) -> None:
        """Append one record to a list of the report."""
        self._content.setdefault(section, []).append(facts)

    @property
    def sections(self) -> dict[str, Any]:
        """All records noted so far, by section."""
        return self._content

    def merge(self, sections: dict[str, Any]) -> None:
        """Append the records of another process's report."""
        for section, records in sections.items():
            self._content.setdefault(section, []).extend(records)

    def carry(self, former: Mapping[str, Any] | None, *, base: str | None) -> None:
        """Take over what an earlier report says was seen, and note of which revision; `former` is None where there is none.

        The stages stay this process's own. What was carried over before is still of the revision that saw it.
        """
        if former is None:
            self.note("carriedOver", base=base, why="the earlier revision has no report that can be read")
            return
        sections = {name: each for name, each in former.items() if name != "stages" and isinstance(each, list)}
        sections.setdefault("carriedOver", [{"base": base, "environment": former.get("environment")}])
        self.merge(sections)

    def difference(self, what: str, seen: Difference) -> None:
        """A comparison with eager."""
        self.note(
            "errors", inputs=what, maximum=decimal(seen.maximum), mean=decimal(seen.mean), why=seen.why,
            nonFinite=str(seen.odd), nonFiniteApart=str(seen.odd_apart),
        )  # fmt: skip

    def speed(self, sizes: str, seen: Speed) -> None:
        """One measurement with its samples (at most 200 of them)."""
        interval = seen.speedup
        self.note(
            "speed",
            inputs=sizes,
            eagerP50Ms=decimal(seen.eager_p50 * 1e3),
            compiledP50Ms=decimal(seen.compiled_p50 * 1e3),
            speedup=decimal(interval.estimate),
            speedupLow=decimal(interval.low),
            speedupHigh=decimal(interval.high),
            pairs=interval.samples,
            callsPerSample=seen.repeats,
            **_latency("eager", seen.eager_latency),
            **_latency("compiled", seen.compiled_latency),
            eagerMs=_milliseconds(seen.eager),
            compiledMs=_milliseconds(seen.compiled),
        )

    def memory(self, *, eager: Sequence[Peak], compiled: Sequence[Peak]) -> None:
        """The peaks of fresh processes, by medians."""
        for kind, peaks in (("eager", eager), ("compiled", compiled)):
            if peaks:
                before = [float(each.before) for each in peaks if each.before is not None]
                peak = median([float(each.peak) for each in peaks])
                device = [float(each.device) for each in peaks if each.device is not None]
                self.note(
                    "memory",
                    kind=kind,
                    processes=str(len(peaks)),
                    peakOf="calls" if all(each.reset for each in peaks) else "process",
                    beforeBytes=_bytes(median(before)) if before else None,
                    peakBytes=_bytes(peak),
                    growthBytes=_bytes(peak - median(before)) if before else None,
                    devicePeakBytes=_bytes(median(device)) if device else None,
                )

    def write(self, folder: Path, result: TargetResult, *, hardware: str) -> None:
        """Write report.json into `folder`; raises OSError."""
        content = {
            "formatVersion": 1,
            "hardware": hardware,
            **{key: value for key, value in result.to_json().items() if key not in {"directory", "files"}},
            "message": redact(result.message),
            "asked": self.asked,
            "stages": self._stages,
            **redacted(self._content, redactor()),
            "environment": redacted(environment(), printable),
        }
        text = json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False)
        write_atomically(folder / FILE, text + "\n")


def environment() -> dict[str, Any]:
    """The machine and the interpreter: facts, no environment variables (they may hold secrets)."""
    return {
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "processor": _processor(),
        "processors": processors(),
        "nodeProcessors": os.cpu_count(),
    }


def write_atomically(path: Path, text: str) -> None:
    """Write `text` so that `path` is either the old file or the whole new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _latency(kind: str, seen: Latency | None) -> dict[str, Any]:
    if seen is None:
        return {}
    return {
        f"{kind}Calls": seen.calls,
        f"{kind}P95Ms": decimal(seen.p95 * 1e3),
        f"{kind}P99Ms": decimal(seen.p99 * 1e3),
        f"{kind}MeanMs": decimal(seen.mean * 1e3),
        f"{kind}CallsPerSecond": decimal(seen.throughput),
        f"{kind}DeviationMs": decimal(seen.deviation * 1e3),
        f"{kind}Variation": decimal(seen.variation),
        f"{kind}QuantilesMs": [decimal(each * 1e3) for each in seen.quantiles],
    }


def _bytes(size: float) -> str:
    return str(round(size))


def _milliseconds(samples: Sequence[float]) -> list[str | None]:
    return [decimal(sample * 1e3) for sample in samples[-_MOST_SAMPLES:]]


def _processor() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
