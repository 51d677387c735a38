"""Whole reports, written by the compiler's own writer, as the page and the table get them."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from preheat_compiler.intervals import paired_speedup
from preheat_compiler.measure import Latency, Speed
from preheat_compiler.memory import Peak
from preheat_compiler.report import Report
from preheat_compiler.submodules import ranked
from preheat_compiler.verdict import TargetResult
from preheat_runtime.compare import Difference

MIB = 2**20
PARTS = ("stem", "encoder.layers.0.attention", "encoder.layers.0.mlp", "encoder.layers.1.attention", "head")


def speed(ratio: float, *, seed: int, scale: float = 0.01) -> Speed:
    rng = random.Random(seed)
    eager = [scale * ratio * rng.lognormvariate(0, 0.05) for _ in range(120)]
    compiled = [scale * rng.lognormvariate(0, 0.05) for _ in range(120)]
    return Speed(
        eager=tuple(eager), compiled=tuple(compiled), repeats=1, speedup=paired_speedup(eager, compiled),
        eager_latency=Latency.of(eager), compiled_latency=Latency.of(compiled),
    )  # fmt: skip


def kept(**changes: Any) -> dict[str, Any]:
    """The report of a target that was kept, measured at both ends of its range; `changes` replace what is in it."""
    return {**json.loads(_kept()), **changes}


@cache
def _kept() -> str:
    report = Report(target="main/batch")
    for name in ("loading the model", "building the package", "measuring"):
        with report.stage(name):
            pass
    for inputs, ratio, seed in (("low", 1.4, 1), ("high", 1.8, 2)):
        report.speed(inputs, speed(ratio, seed=seed))
        report.difference(f"{inputs}, seed 1", Difference(maximum=2.1e-6, mean=3e-8, odd=4))
        for kind, error in (("eager", 1.1e-6), ("compiled", 9.8e-7)):
            report.note(
                "reference", inputs=f"{inputs}, seed 1", kind=kind, dtype="float64", maximum=str(error), mean="1e-8"
            )
    for stage, seconds in (("trace", "2.100"), ("lowering", "1.400"), ("compiler", "8.300"), ("other", "5.100")):
        report.note("compile", tier="package", stage=stage, seconds=seconds)
    report.memory(
        eager=[Peak(before=300 * MIB, peak=350 * MIB, reset=True)],
        compiled=[Peak(before=301 * MIB, peak=340 * MIB, reset=True)],
    )
    report.note("firstAnswers", served=["2.100", "2.000", "2.300"], eager=["2.200", "2.250", "2.150"])
    seconds = {name: 0.1 / (index + 1) for index, name in enumerate(PARTS)}
    report.note(
        "submodules", kind="eager", inputs="high", calls="10", callMs="24.1",
        entries=[{**row, "type": "Linear"} for row in ranked(seconds, 0.25, 10)],
    )  # fmt: skip
    report.note(
        "submodules", kind="compiled", inputs="high", calls="10", callMs="13.2", generatedMs="4.1",
        entries=ranked({"aten::addmm": 0.08}, 0.132, 10), why="compiled code has no submodules",
    )  # fmt: skip
    report.note("proofs", name="random weights", answerMoved="0.83")
    report.note(
        "proofs", name="fresh process", said=[{"outcome": "hot"}], compilerRuns=0, imported=[],
        conditions={"emptyHome": True, "noCompiler": True, "readOnlyFileSystem": True, "nonRoot": False, "why": ["no"]},
    )  # fmt: skip
    figures = {
        "speedup": "1.4021", "speedupLow": "1.3800", "speedupHigh": "1.4200", "eagerP50Ms": "14.0210",
        "compiledP50Ms": "10.0012", "maxError": "2.100e-06", "firstAnswerSeconds": "2.1000",
        "eagerFirstAnswerSeconds": "2.2000", "compileSeconds": "17.1000", "sizeBytes": "1900000",
        "eagerPeakBytes": str(350 * MIB), "compiledPeakBytes": str(340 * MIB), "memoryGrowth": "0.9714",
    }  # fmt: skip
    return json.dumps(_written(report, verdict="Kept", reason="Faster", tier="package", figures=figures))


def cut() -> dict[str, Any]:
    """The report of a target with graph breaks, regions, tuned kernels and random draws."""
    breaks = [
        {"where": "/app/model.py:12", "reason": "call of print", "remedy": "take it out of forward"},
        {"where": "/app/model.py:37", "reason": "branch on a tensor", "remedy": "use torch.where"},
    ]
    paths = [f"blocks.{number}" for number in range(24)]
    return kept(
        graphs=[{"graphs": 3, "breaks": breaks, "recompiles": 2}],
        package=[{"constants": 9, "files": [], "draws": ["aten.rand /app/model.py:9"]}],
        regions=[{"paths": paths, "library": "region-0.so", "seconds": "4.100", "sizeBytes": 81234,
                  "draws": ["aten.rand /app/model.py:9", "aten.bernoulli /app/model.py:30"]}],
        tuning=[{"tuned": "6", "untuned": "2", "seconds": "12.500"}],
    )  # fmt: skip


def failed() -> dict[str, Any]:
    """The report of a target that ended before anything was measured."""
    return _written(Report(target="main/batch"), verdict="Failed", reason="FactoryFailed", tier=None, figures={})


def _written(report: Report, *, verdict: str, reason: str, tier: str | None, figures: dict[str, str]) -> dict[str, Any]:
    result = TargetResult(
        module="main", bucket="batch", verdict=verdict, reason=reason, message="what was found, in words", tier=tier,
        figures=figures, fingerprint={"torch": "2.15.0", "settings": {"deterministic": "false"}},
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        report.write(Path(folder), result, hardware="cpu")
        content: dict[str, Any] = json.loads((Path(folder) / "report.json").read_text())
    return content


def data(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()
