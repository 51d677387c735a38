"""Compiling a transformer in regions against compiling it as a whole, in interleaved pairs of fresh processes.

The claim: 24 equal blocks compiled once take at most 0.35 of the time, and answer the same. Both halves of a pair are the
compile Job's own driver with empty caches; compared is what its report says building took. Exits 1 when the target is missed.

    make bench
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from shared import LAUNCHER, add_out, origin, save, vars_of

from preheat_compiler.intervals import median_interval

TARGET = 0.35
MODEL = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width=256, heads=4):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))

class Transformer(nn.Module):
    def __init__(self, depth=24):
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Embedding(1000, 256)
        self.blocks = nn.ModuleList([Block() for _ in range(depth)])
        self.head = nn.Linear(256, 1000)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def load():
    return Transformer()
"""


def build(regions: list[str], folder: Path) -> dict[str, Any]:
    """Compile once, from nothing; the target's record in result.json."""
    app = folder / "app"
    app.mkdir(parents=True)
    (app / "model.py").write_text(MODEL)
    tokens = {"tensor": {"shape": [1, 64], "dtype": "int64", "low": 0, "high": 1000}}
    module = {"name": "main", "path": "", "regions": regions, "buckets": [{"name": "one", "args": [tokens]}]}
    request = {
        "formatVersion": 1, "namespace": "bench", "name": "blocks", "uid": "bench", "revision": "blocks-bench", "image": "bench",
        "hardware": "cpu", "cpuIsa": "X86_64_V3", "timeoutSeconds": 1800, "keepIf": {"minSpeedup": "0"},
        "torch": {"factory": "model:load", "modules": [module]}, "targets": [{"module": "main", "bucket": "one"}],
    }  # fmt: skip
    (app / "request.json").write_text(json.dumps(request))
    env = {k: v for k, v in os.environ.items() if not k.startswith("TORCHINDUCTOR")} | {"TMPDIR": str(folder)}
    words = ["--request", "request.json", "--out", "out", "--termination-log", "message"]
    subprocess.run([sys.executable, str(LAUNCHER), *words], cwd=app, env=env, check=True, stdout=subprocess.DEVNULL)
    target: dict[str, Any] = json.loads((app / "out" / "result.json").read_text())["targets"][0]
    if (target["verdict"], target["tier"]) != ("Kept", "package"):
        raise SystemExit(f"{regions or 'whole'}: {target['verdict']} {target['reason']}: {target['message']}")
    return target


def compare(pairs: int) -> dict[str, Any]:
    """Interleaved pairs of a compile in regions and one of the whole."""
    whole: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for i in range(pairs):
        order: list[tuple[list[dict[str, Any]], list[str]]] = [(whole, []), (parts, ["blocks.*"])]
        for rows, regions in order if i % 2 == 0 else order[::-1]:
            folder = Path(tempfile.mkdtemp(prefix="preheat-regions-"))
            try:
                rows.append(build(regions, folder)["figures"])
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(
            f"pair {i + 1}/{pairs}: whole {whole[-1]['compileSeconds']} s, in regions {parts[-1]['compileSeconds']} s",
            flush=True,
        )

    def middle(rows: list[dict[str, Any]], name: str) -> float:
        return median_interval([float(row[name]) for row in rows]).estimate

    names = ("compileSeconds", "compiledP50Ms", "eagerP50Ms", "speedup", "maxError", "firstAnswerSeconds", "sizeBytes")
    ratio = median_interval(
        [float(p["compileSeconds"]) / float(w["compileSeconds"]) for p, w in zip(parts, whole, strict=True)]
    )
    return {
        "whole": {name: middle(whole, name) for name in names},
        "regions": {name: middle(parts, name) for name in names},
        "compile_regions_over_whole": vars_of(ratio),
    }


def report(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    ratio = results["compile_regions_over_whole"]
    about = (
        f"Commit {results['commit']}, {results['date']}, {results['machine']}. A transformer of 24 equal blocks (width 256, 64 tokens), "
        f"compiled by the compile Job's driver with empty caches, {ratio['samples']} interleaved pairs; medians. `make bench` makes this file."
    )
    rows = (
        ("building the package, s", "compileSeconds", "{:.1f}"), ("steady p50, ms", "compiledP50Ms", "{:.2f}"),
        ("eager p50, ms", "eagerP50Ms", "{:.2f}"), ("largest error", "maxError", "{:.1e}"),
        ("first answer in a fresh process, s", "firstAnswerSeconds", "{:.2f}"), ("size, MB", "sizeBytes", "{:.2f}"),
    )  # fmt: skip
    lines = ["# Regions: 24 equal blocks compiled once", "", about, "", "| | whole | in regions |", "|---|---|---|"]
    for words, name, form in rows:
        scale = 1e-6 if name == "sizeBytes" else 1
        cells = [form.format(results[kind][name] * scale) for kind in ("whole", "regions")]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    interval = f"{ratio['estimate']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
    lines += ["", f"Compiling in regions ÷ as a whole: {interval}. Target: at most {TARGET}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write docs/measured/regions.{json,md}, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    add_out(parser)
    options = parser.parse_args()
    results = {**origin(), **compare(options.pairs)}
    save(options.out, "regions", results, report(results))
    ratio = results["compile_regions_over_whole"]["estimate"]
    print(
        f"regions: compile {ratio:.3f} of the whole's; target at most {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}"
    )
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
