"""What a new bucket of a known model could gain from what compiling another bucket left behind.

Why it exists: carrying compilers' caches from one compile Job to the next costs bytes and trust, so it has to be worth it.
Measured is the most that could be gained: all that Inductor keeps (its code, its autotuning) and, by ccache, all that
the C++ compiler made, copied from the one bucket's build to the other's. Builds are fresh processes, in interleaved
rounds of three: from nothing, with the caches of another bucket, and, to show that caches are found at all, with those of
the same bucket. It compares and has no target.

    python benchmarks/new_bucket.py
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from shared import add_out, origin, save, vars_of

from preheat_compiler.intervals import median_interval

MODES = ("default", "max-autotune-no-cudagraphs")
#: The known bucket's smallest and largest batch, and the new one's.
BUCKETS = {"one size": ((2, 2), (4, 4)), "a range": ((2, 8), (16, 64))}
CCACHE = Path("/usr/lib/ccache")
#: What is there before: nothing, or what building the known or the new bucket left.
WAYS = {"nothing": None, "another bucket's": 0, "the same bucket's": 1}


def build(low: int, high: int, mode: str) -> float:
    """Seconds that one package takes in this process, once torch is there."""
    import torch
    from torch import nn

    from preheat_compiler.package import DimRange, ExampleCall, build_package
    from preheat_runtime.levers import Levers

    class Block(nn.Module):
        def __init__(self, width: int = 256, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            b, t, c = x.shape
            q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.before(x)).chunk(3, -1))
            y = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
            return x + self.down(nn.functional.gelu(self.up(self.between(x))))

    net = nn.Sequential(Block(), Block()).eval()
    example = ExampleCall(args=(torch.randn(low, 64, 256),))
    ranges = None if low == high else {"input": {0: DimRange(name="batch", minimum=low, maximum=high)}}
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as out, torch.no_grad():
        build_package(net, example, dynamic_shapes=ranges, out=Path(out), cpu_isa="X86_64_V3", levers=Levers(mode=mode))
    return time.perf_counter() - begin


def in_a_process(sizes: tuple[int, int], mode: str, work: Path) -> float:
    """The same in a fresh process, whose caches are below `work`."""
    place = work / "build"
    for folder in ("inductor", "ccache", "tmp"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHINDUCTOR", "CCACHE"))} | {
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"), "CCACHE_DIR": str(place / "ccache"), "TMPDIR": str(place / "tmp"),
        "CCACHE_NOHASHDIR": "1", "CCACHE_BASEDIR": str(place), "PATH": f"{CCACHE}{os.pathsep}{os.environ['PATH']}", "PREHEAT_DISABLE": "1",
    }  # fmt: skip
    words = [sys.executable, __file__, "--child", *map(str, sizes), mode]
    done = subprocess.run(words, env=env, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def compare(shape: str, mode: str, rounds: int, shuffle: random.Random) -> dict[str, Any]:
    """Seconds of each way, and its ratio to building from nothing."""
    root = Path(tempfile.mkdtemp(prefix="preheat-new-bucket-"))
    try:
        left: list[Path] = []
        for sizes in BUCKETS[shape]:
            work = root / "work"
            in_a_process(sizes, mode, work)
            left.append(work.rename(root / f"left-{len(left)}"))
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for turn in range(rounds):
            for way, source in shuffle.sample(sorted(WAYS.items()), len(WAYS)):
                work = root / "work"  # one path for all: some of it is in the keys
                if source is not None:
                    shutil.copytree(left[source], work, symlinks=True)
                seconds[way].append(in_a_process(BUCKETS[shape][1], mode, work))
                shutil.rmtree(work)
            last = ", ".join(f"{way} {seconds[way][-1]:.1f} s" for way in WAYS)
            print(f"{mode}, {shape} {turn + 1}/{rounds}: {last}", flush=True)
        size = sum(file.stat().st_size for file in left[0].rglob("*") if file.is_file())
    finally:
        shutil.rmtree(root, ignore_errors=True)
    ratios = {
        way: vars_of(median_interval([a / b for a, b in zip(taken, seconds["nothing"], strict=True)]))
        for way, taken in seconds.items()
        if way != "nothing"
    }
    return {
        "mode": mode,
        "bucket": shape,
        "seconds": {way: median_interval(taken).estimate for way, taken in seconds.items()},
        "ratios": ratios,
        "bytes": size,
    }


def report(results: dict[str, Any]) -> str:
    """The figures as Markdown."""
    lines = [
        "# A new bucket of a known model",
        "",
        (
            f"Commit {results['commit']}, {results['date']}, {results['machine']}. Two transformer blocks (width 256, 64 tokens), a package for batch "
            f"4, or 16 to 64; {results['rounds']} interleaved rounds, medians; seconds once torch is imported. Carried over are all caches of Inductor and of "
            f"the C++ compiler, left by batch 2, or 2 to 8, or by the same package. `python benchmarks/new_bucket.py` makes this file."
        ),
        "",
        "| mode | bucket | from nothing, s | with another bucket's caches, ÷ nothing | with the same bucket's, ÷ nothing | caches, MB |",
        "|---|---|---|---|---|---|",
    ]
    for seen in results["rows"]:
        cells = [
            f"{ratio['estimate']:.2f} ({ratio['low']:.2f} to {ratio['high']:.2f})"
            for ratio in (seen["ratios"][way] for way in ("another bucket's", "the same bucket's"))
        ]
        lines.append(
            f"| {seen['mode']} | {seen['bucket']} | {seen['seconds']['nothing']:.1f} | {' | '.join(cells)} | {seen['bytes'] / 1e6:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure and write docs/measured/new-bucket.{json,md}."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", nargs="+", default=MODES)
    add_out(parser)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(build(int(options.child[0]), int(options.child[1]), options.child[2]))
        return 0
    if not CCACHE.is_dir():
        raise SystemExit("ccache is not installed (Debian: ccache); the lab installs it: make cluster-up")
    shuffle = random.Random(options.seed)
    rows = [compare(shape, mode, options.rounds, shuffle) for mode in options.modes for shape in BUCKETS]
    results = {**origin(), "rounds": options.rounds, "seed": options.seed, "rows": rows}
    save(options.out, "new-bucket", results, report(results))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
