"""One target while it is compiled: what was asked, where it lies, and what is known so far.

Why it exists: the steps of a compile add to the same few facts (figures, fingerprint, tier), and a verdict needs them
all however early the compile ends.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preheat_compiler.inputs import unserved
from preheat_compiler.report import decimal
from preheat_runtime.levers import Levers

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.measure import Speed
    from preheat_compiler.report import Report
    from preheat_compiler.request import Module, Request
    from preheat_runtime.compare import Difference


@dataclass(kw_only=True)
class Work:
    """One target while it is compiled: what was asked, where it lies, and what is known so far."""

    launcher: Path
    request_file: Path
    request: Request
    module: Module
    bucket: Bucket
    folder: Path
    deadline: float
    report: Report
    #: Where inputs go, and the kind of device that is computed on: see `devices.kind_of`.
    device: str = "cpu"
    kind: str = "cpu"
    levers: Levers = field(default_factory=Levers)
    fingerprint: dict[str, Any] = field(default_factory=dict)
    request_key: str | None = None
    allowed: float = 0.0
    figures: dict[str, str] = field(default_factory=dict)
    tier: str | None = None
    narrowing: str = ""
    #: Of what the code came from, as it was when it was first imported: see `ingredients`.
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def artifact(self) -> Path:
        """The folder of what is kept."""
        return self.folder / "artifact"

    @property
    def described(self) -> Path:
        """The folder of a `target.json` that tells the module and no code."""
        return self.folder / "described"

    def serve_only(self, bucket: Bucket) -> None:
        """Go on with the sizes that are really served."""
        self.narrowing = unserved(self.bucket, bucket)
        self.bucket = bucket

    def left(self) -> float:
        """Seconds until this target's time is over."""
        return self.deadline - time.monotonic()

    def figure(self, **values: float) -> None:
        """Record figures; what is no number is left out."""
        self.figures.update({name: text for name, value in values.items() if (text := decimal(value)) is not None})

    def error_figures(self, error: Difference) -> None:
        """Record how far answers were from eager's."""
        self.figure(maxError=error.maximum, meanError=error.mean)

    def speed_figures(self, speed: Speed) -> None:
        """Record what was timed."""
        interval = speed.speedup
        self.figure(eagerP50Ms=speed.eager_p50 * 1e3, compiledP50Ms=speed.compiled_p50 * 1e3)
        self.figure(speedup=interval.estimate, speedupLow=interval.low, speedupHigh=interval.high)
