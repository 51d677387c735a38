"""What became of each architecture: a table of real models through the real compile driver.

Why it exists: a claim about "models" is worth what the list of models is worth. Each row comes from the driver's own files
and from a fresh process that was served the artifact; speed is this machine's, all else is held to `architectures.table`.
Rows are written as they come, so `--only` renews some and keeps the rest; each says commit, date and machine. Exits 1 when a
row is not as the table of expectations says.

    python benchmarks/matrix.py [--only NAME …]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from artifacts import usual_gate
from shared import add_out, earlier, origin

from architectures.check import faults
from architectures.job import compile_architecture, prepared
from architectures.table import ARCHITECTURES, BY_NAME, Architecture


def row(architecture: Architecture) -> dict[str, Any]:
    """Compile it, serve it, and say what was seen."""
    with tempfile.TemporaryDirectory(prefix="preheat-matrix-") as folder:
        ready, packages = prepared(architecture)
        job = compile_architecture(ready, Path(folder) / "job", packages)
        served = job.serve(Path(folder) / "served", packages) if job.target["tier"] else None
    target, report = job.target, job.report
    built = "package" if "package" in report else "caches" if "speed" in report else None
    return {
        "name": architecture.name,
        "real_size": architecture.real_size,
        "tier": built if "fallbacks" not in report else "caches",
        "verdict": target["verdict"],
        "reason": target["reason"],
        "message": target["message"].replace(f"{folder}/job/app/", "").replace(f"{packages}/", ""),
        "min_speedup": architecture.min_speedup,
        "usual_gate": (gate := usual_gate(target)) and gate.reason,
        "figures": target["figures"],
        "constants": report.get("package", [{}])[0].get("constants"),
        "served": served and {"outcomes": served.outcomes, **served.answer},
        "faults": faults(job, served),
        **origin(),
        "torch": torch.__version__,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    about = (
        "Real architectures through the compile driver, each in a Job of its own, and then served in a fresh process that sees the artifact "
        "alone. `python benchmarks/matrix.py` makes this file; what is expected of each, and why, is in `tests/architectures/table.py`, and "
        "`tests/torch/matrix` holds every change to it. Weights are random from a fixed seed, but for `crepe`, whose pretrained ones are in a "
        "package. **Bold**: the architecture at its real size; the others are small configurations. Only speed is the machine's: "
        '`minSpeedup` was "0" where it is not said, so that everything was proved; *at 1.05* is what the usual gate would have said. '
        "*Error* is the largest that the driver saw, and the largest that an independent calculation saw in the served process. "
        "First answers are from the start of the process, which takes most of it to import torch and the model's library."
    )
    head = ["architecture", "parameters", "tier", "verdict", "at 1.05", "eager p50, ms", "compiled p50, ms", "speedup (95 %)", "error", "first answer eager / served, s", "compile, s", "artifact, KB", "tensors bound"]  # fmt: skip
    lines = ["# Architectures", "", about, "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(cells(each))} |" for each in rows]
    others = [f"- `{each['name']}`: {' '.join(each['message'].split())}" for each in rows if each["tier"] != "package"]
    lines += ["", "## Why not a package, and why Failed", "", *others] if others else []
    lines += ["", "## On what", ""]
    places: dict[str, list[str]] = {}
    for each in rows:
        place = f"commit {each['commit']}, {each['date']}, {each['machine']}, torch {each['torch']}"
        places.setdefault(place, []).append(each["name"])
    lines += [f"- {place}: {', '.join(names)}" for place, names in places.items()]
    return "\n".join([*lines, ""])


def cells(each: dict[str, Any]) -> list[str]:
    """One line of the table."""
    figures, served = each["figures"], each["served"]

    def figure(name: str, form: str = "{:.1f}", scale: float = 1.0) -> str:
        return form.format(float(figures[name]) * scale) if name in figures else "–"

    speedup = "–"
    if "speedup" in figures:
        speedup = f"{figure('speedup', '{:.2f}')} ({figure('speedupLow', '{:.2f}')}–{figure('speedupHigh', '{:.2f}')})"
    error = figure("maxError", "{:.0e}") + (f", {max(served['errors']):.0e}" if served else "")
    gate = "" if each["min_speedup"] == "0" else f" (minSpeedup {each['min_speedup']})"
    return [
        f"**{each['name']}**" if each["real_size"] else each["name"],
        millions(served["parameters"]) if served else "–",
        each["tier"] or "–",
        f"{each['verdict']} {each['reason']}{gate}",
        {"Faster": "Kept", "SpeedupBelowMinimum": "Rejected"}.get(each["usual_gate"], "–"),
        figure("eagerP50Ms", "{:.2f}"),
        figure("compiledP50Ms", "{:.2f}"),
        speedup,
        error,
        f"{figure('eagerFirstAnswerSeconds')} / {figure('firstAnswerSeconds')}",
        figure("compileSeconds", "{:.0f}"),
        figure("sizeBytes", "{:.0f}", 1e-3),
        str(each["constants"] or "–"),
    ]


def millions(parameters: int) -> str:
    """`4.4 M`; small ones in full."""
    return f"{parameters / 1e6:.1f} M" if parameters > 100_000 else f"{parameters:,}"


def main() -> int:
    """Run the architectures, renew their rows, and say whether all are as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(BY_NAME), default=list(BY_NAME), metavar="NAME")
    add_out(parser)
    arguments = parser.parse_args()
    place = arguments.out / "architectures.json"
    rows = earlier(place, "name")
    bad = []
    for name in arguments.only:
        begin = time.monotonic()
        found = rows[name] = row(BY_NAME[name])
        print(
            f"{name}: {found['verdict']} {found['reason']} {found['tier']}, {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        for fault in found["faults"]:
            bad.append(name)
            print(f"  NOT AS EXPECTED: {fault}", flush=True)
        ordered = [rows[each.name] for each in ARCHITECTURES if each.name in rows]
        place.write_text(json.dumps(ordered, indent=2) + "\n")
        place.with_suffix(".md").write_text(table(ordered))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
