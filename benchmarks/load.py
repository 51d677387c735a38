"""Throughput under load, hot against eager: four client threads of one server process, in interleaved slices of time.

The claim: no error and no wrong answer (each is compared with one that eager gave before), and where the compile Job's usual
gate says Kept, at least eager's throughput. Afterwards the hot one alone is asked for a minute without a pause. Exits 1 on a miss.

    python benchmarks/load.py [--only NAME …] [--pairs 15] [--slice 2] [--unbroken 60]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from artifacts import artifact, usual_gate
from load_server import CLIENTS
from shared import MEASURED, ROOT, origin, out_folder, save, vars_of

from architectures.table import BY_NAME
from preheat_compiler.intervals import median_interval
from preheat_compiler.prove import pod_environment, said_by_runtime

MODELS = ("resnet18", "mobilenet_v3_large", "bert")
#: `usual_gate` says this when it would keep an artifact for its speed.
KEPT = ("Faster",)
SIDES = ("hot", "eager", "unbroken")


def measure(name: str, *, pairs: int, seconds: float, unbroken: float) -> dict[str, Any]:
    """One server process; what it said, with the ratio of rates and what is wrong in words."""
    made = artifact(BY_NAME[name])
    with tempfile.TemporaryDirectory(prefix="preheat-load-") as folder:
        work = Path(folder) / "work"
        work.mkdir()
        path = [made.pod / "site", *made.python_path, ROOT / "compiler_job"]
        env = {
            **pod_environment(Path(folder), os.environ),
            **made.architecture.environment,
            **made.served_environment(work),
        }
        env |= {
            "PYTHONPATH": os.pathsep.join(map(str, path)), "BENCH_FACTORY": made.factory, "BENCH_PATH": made.architecture.path,
            "BENCH_BUCKET": json.dumps(made.architecture.bucket), "BENCH_SIZES": json.dumps(made.architecture.sizes[-1]),
            "BENCH_SLICE": str(seconds), "BENCH_PAIRS": str(pairs), "BENCH_UNBROKEN": str(unbroken),
        }  # fmt: skip
        words = [sys.executable, str(ROOT / "benchmarks" / "load_server.py")]
        limit = 4 * pairs * seconds + 2 * unbroken + 600
        done = subprocess.run(words, cwd=made.app, env=env, capture_output=True, text=True, timeout=limit, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: the server ended with {done.stderr[-3000:]}")
        outcomes = [line.get("outcome") for line in said_by_runtime(work)]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    rates = zip(found["hot"].pop("rates"), found["eager"].pop("rates"), strict=True)
    ratios, per_second = [], {"hot": [], "eager": []}
    for hot, eager in rates:
        ratios.append(hot / eager)
        per_second["hot"].append(hot)
        per_second["eager"].append(eager)
    per_second["unbroken"] = found["unbroken"].pop("rates")
    for side, values in per_second.items():
        found[side]["per_second"] = median_interval(values).estimate
    gate = usual_gate(made.target)
    return found | {"ratio": vars_of(median_interval(ratios)), "outcomes": outcomes, "gate": gate and gate.reason}


def misses(name: str, found: dict[str, Any]) -> list[str]:
    """In what the claim does not hold, in words."""
    missed = [
        f"{name}, {side}: {found[side]['wrong']} wrong: {found[side]['first_wrong']}"
        for side in SIDES
        if found[side]["wrong"]
    ]
    missed += [f"{name}, {side}: nothing was answered" for side in SIDES if not found[side]["answers"]]
    if found["outcomes"] != ["hot"]:
        missed.append(f"{name}: Preheat says {found['outcomes']}")
    if found["gate"] in KEPT and not found["ratio"]["estimate"] >= 1:
        missed.append(
            f"{name}: kept for its speed ({found['gate']}), but {found['ratio']['estimate']:.3f} of eager's throughput under load"
        )
    return missed


def report(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    about = (
        f"Commit {results['commit']}, {results['date']}, {results['machine']}, torch {results['torch']}. {CLIENTS} client threads of one server "
        f"process ask the model as Preheat serves it and its eager twin in turns, in {results['pairs']} interleaved pairs of slices of "
        f"{results['slice']:g} s; then the served one alone without a pause for {results['unbroken']:g} s; every answer is compared with one that eager gave before. The ratio is the median of the pairs', with its 95 % "
        "interval. *Gate* is what the usual `keepIf` says of the compile Job's own figures for single calls. `make bench` makes this file."
    )
    head = ["model", "gate", "eager, answers/s", "hot, answers/s", "hot ÷ eager (95 %)", "p50, eager / hot, ms", "p99, eager / hot, ms", "without a pause: answers/s, p99, ms", "answers", "wrong"]  # fmt: skip
    lines = ["# Under load", "", about, "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, found in results["models"].items():
        eager, hot, ratio = found["eager"], found["hot"], found["ratio"]
        cells = [name, str(found["gate"]), f"{eager['per_second']:.1f}", f"{hot['per_second']:.1f}"]
        cells.append(f"{ratio['estimate']:.3f} ({ratio['low']:.3f}–{ratio['high']:.3f})")
        cells += [f"{eager[p]:.1f} / {hot[p]:.1f}" for p in ("p50_ms", "p99_ms")]
        cells.append(f"{found['unbroken']['per_second']:.1f}, {found['unbroken']['p99_ms']:.1f}")
        cells += [str(sum(found[side][what] for side in SIDES)) for what in ("answers", "wrong")]
        lines.append(f"| {' | '.join(cells)} |")
    verdict = "Met." if not results["misses"] else "MISSED:"
    lines += ["", f"Targets: no error, no wrong answer; hot ÷ eager ≥ 1 where the gate keeps. {verdict}", ""]
    lines += [f"- {miss}" for miss in results["misses"]]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Measure, write docs/measured/load.{json,md}, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(BY_NAME), metavar="NAME", help="some; printed, and kept only with --out"
    )
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--slice", type=float, default=2.0, help="seconds")
    parser.add_argument("--unbroken", type=float, default=60.0, help="seconds")
    parser.add_argument("--out", type=out_folder)
    options = parser.parse_args()
    out = options.out or (None if options.only else MEASURED)
    results: dict[str, Any] = {
        **origin(), "torch": torch.__version__,
        "pairs": options.pairs, "slice": options.slice, "unbroken": options.unbroken, "models": {},
    }  # fmt: skip
    for name in options.only or MODELS:
        results["models"][name] = measure(name, pairs=options.pairs, seconds=options.slice, unbroken=options.unbroken)
        print(f"{name}: {results['models'][name]['ratio']['estimate']:.3f} of eager's throughput", flush=True)
    results["misses"] = [miss for name, found in results["models"].items() for miss in misses(name, found)]
    if out is not None:
        save(out, "load", results, report(results))
    print(report(results))
    return 1 if results["misses"] else 0


if __name__ == "__main__":
    sys.exit(main())
