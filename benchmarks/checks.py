"""What the checks before each call cost, how long a package in regions takes to load, and what comparing its answer on the side costs.

Claims: the checks of a call take at most 2 % of it for a model of 25 million parameters, and at most 0.3 ms for each model here, also for the
last of as many buckets as a module may have, each a range, called by keyword; a transformer of 24 blocks in regions is opened, bound and has answered within 50 ms of what eager's first answer takes.

Checks and calls alternate in one process, in processor time of the thread for the checks, so that neighbours on the machine do not
count. First answers are pairs of fresh processes. For `verify: After` too: one process of a pair compares its first answer on
the side, the other none; of both, the first answer and the 19 that follow at once, and the processor time of all threads but the one
that answers. Exits 1 when a target is missed.

    make bench
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from regions import MODEL
from shared import ROOT, add_out, origin, save, vars_of

from preheat_compiler.intervals import median_interval
from preheat_compiler.package import ExampleCall, build_package
from preheat_compiler.package_call import plan_call
from preheat_operator.api.inputs import MAX_BUCKETS
from preheat_runtime import fingerprint, identity, serve
from preheat_runtime.manifest import File, Manifest, Piece
from preheat_runtime.manifest import Target as Entry
from preheat_runtime.package import LIBRARY_FILE, TARGET_FILE, DimRange, PackageSpec, RegionSpec, Target

MAX_SHARE, MAX_MS, MAX_LOAD_MS = 0.02, 0.3, 50.0
CALLS_IN_A_ROUND = 50
FIRST = """
import sys, time, torch
sys.path.insert(0, {folder!r})
import model
from preheat_runtime import hook, serve
torch.set_num_threads(1)
net, x = model.load().eval(), torch.randint(0, 1000, (1, 64))
if {hot}:
    hook.autoload()
with torch.inference_mode():
    begin = time.perf_counter()
    (torch.compile(net) if {hot} else net)(x)
    print(time.perf_counter() - begin)
"""
ANSWERS = 20
ASIDE = """
import json, sys, threading, time, torch
sys.path.insert(0, {folder!r})
import model
from preheat_runtime import hook, serve
torch.set_num_threads(1)
net, x = model.load().eval(), torch.randint(0, 1000, (1, 64))
hook.autoload()
compiled = torch.compile(net)
others = lambda: time.process_time() - time.thread_time()
took, before = [], others()
with torch.inference_mode():
    for _ in range({answers}):
        begin = time.perf_counter()
        compiled(x)
        took.append(time.perf_counter() - begin)
for thread in threading.enumerate():
    if thread.name == "preheat-check":
        thread.join()
checked = sum(serve.session().verifier._ended.values())
print(json.dumps({{"took": took, "aside": others() - before, "checked": checked}}))
"""


def transformer() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    space: dict[str, Any] = {"__name__": "model"}
    exec(compile(MODEL, "model.py", "exec", dont_inherit=True), space)  # a pod has other future imports
    return space["load"]().eval(), (torch.randint(0, 1000, (1, 64)),)


def resnet() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    import torchvision

    return torchvision.models.resnet50().eval(), (torch.randn(1, 3, 224, 224),)


def mlp() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8)).eval(), (
        torch.randn(4, 64),
    )


MODELS = {
    "resnet50": resnet, "transformer of 24 blocks, in regions": transformer, "MLP": mlp,
    f"MLP, the last of {MAX_BUCKETS} buckets, ranges, by keyword": mlp,
}  # fmt: skip


def describe(net: torch.nn.Module, example: ExampleCall, out: Path, sizes: DimRange | None = None) -> None:
    """A contract without code: the checks never load the library. `sizes` are those of the first input's first dimension."""
    code = PackageSpec(
        library=LIBRARY_FILE,
        library_outputs=1,
        constants=(),
        out_spec='[1, {"type": null, "context": null, "children_spec": []}]',
        outputs=(0,),
    )
    out.mkdir(parents=True)
    call = plan_call(net, example, {0: {0: sizes}} if sizes else None).spec
    Target(identity=identity.describe(net).identity, call=call, package=code).write(out / TARGET_FILE)


def in_many_buckets(net: torch.nn.Module, out: Path) -> list[dict[str, torch.Tensor]]:
    """A contract for each of MAX_BUCKETS ranges of batch sizes; gives calls of the last of them, each of another size."""
    for i in range(MAX_BUCKETS):
        sizes = DimRange(name="batch", minimum=10 * i + 2, maximum=10 * i + 9)
        example = ExampleCall(kwargs={"input": torch.randn(sizes.maximum, 64)})
        describe(net, example, out / f"bucket{i:02}", sizes)
    return [{"input": torch.randn(size, 64)} for size in range(sizes.minimum, sizes.maximum + 1)]


def in_regions(net: torch.nn.Module, args: tuple[Any, ...], out: Path) -> tuple[torch.Tensor, ...]:
    """The transformer's package, its block compiled once; gives what the blocks are called with."""
    hidden = torch.randn(1, 64, 256)
    part = out / "part"
    build_package(
        net.get_submodule("blocks.0"), ExampleCall(args=(hidden,)), dynamic_shapes=None, out=part, cpu_isa="X86_64_V3"
    )
    made = Target.read(part / TARGET_FILE)
    (part / LIBRARY_FILE).rename(out / "region-0.so")
    (part / TARGET_FILE).unlink()
    part.rmdir()
    paths = tuple(f"blocks.{i}" for i in range(24))
    region = RegionSpec(paths=paths, call=made.call, package=replace(made.package, library="region-0.so"))
    call = plan_call(net, ExampleCall(args=args), None).spec
    Target(identity=identity.describe(net).identity, call=call, regions=(region,)).write(out / TARGET_FILE)
    return (hidden,)


def pod(root: Path, folders: list[Path]) -> None:
    """A folder as fetch leaves it, with a package in a bucket of its own from each of `folders`."""
    entries = tuple(placed(root, folder) for folder in folders)
    manifest = Manifest(
        namespace="bench", name="m", uid="u", revision="m-1", image="i", image_python_path=None, targets=entries
    )
    (root / "revision" / "manifest.json").write_bytes(manifest.to_bytes())


def placed(root: Path, folder: Path) -> Entry:
    """A bucket called as its folder, where the manifest says that it lies."""
    files = []
    for path in sorted(folder.iterdir()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        size = path.stat().st_size
        piece = Piece(sha256=digest, size=size, stored_size=size, encoding="identity")
        files.append(File(path=path.name, size=size, sha256=digest, pieces=(piece,)))
    entry = Entry(
        module="main", bucket=folder.name, hardware="cpu", verdict="Kept", reason="Faster", message="", tier="package", request_key="0" * 64,
        fingerprint=fingerprint.observe(cpu_isa="X86_64_V3").to_json(), figures={}, files=tuple(files),
    )  # fmt: skip
    place = root / "revision" / entry.folder
    place.parent.mkdir(parents=True)
    place.symlink_to(folder)
    return entry


def checks(name: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds of all checks of one call, and of the module's own call, in alternating rounds."""
    net, args = MODELS[name]()
    block, folders = None, [folder / "package"]
    asked: list[dict[str, torch.Tensor]] = []
    if "regions" in name:
        block = in_regions(net, args, folders[0])
    elif "buckets" in name:
        asked = in_many_buckets(net, folder / "packages")
        folders = sorted((folder / "packages").iterdir())
    else:
        describe(net, ExampleCall(args=args), folders[0])
    pod(folder / "pod", folders)
    # In turns: where sizes vary, no call is remembered.
    turns = itertools.cycle([((), each) for each in asked] or [(args, {})])
    os.environ["PREHEAT_DIR"] = str(folder / "pod")
    serve.session.cache_clear()
    served = serve.serve(lambda model, **_: model, net, {})
    server = served._preheat_server
    torch.set_num_threads(1)
    spent, calls = [], []
    with torch.inference_mode():
        choice = server.chooser.choose(*next(turns))
        if (choice.outcome, choice.candidate and choice.candidate.entry.bucket) != ("hot", folders[-1].name):
            raise SystemExit(f"{name}: {choice.reason}")
        for _ in range(rounds):
            begin = time.thread_time()
            for _ in range(CALLS_IN_A_ROUND):
                server.chooser.choose(*next(turns))
                if block is not None:
                    choice.package.regions_check(block)
            spent.append((time.thread_time() - begin) / CALLS_IN_A_ROUND)
            number = 1 if name == "resnet50" else 10
            begin = time.thread_time()
            for _ in range(number):
                net(*args)
            calls.append((time.thread_time() - begin) / number)
    size = sum(parameter.numel() for parameter in net.parameters())
    ratio = median_interval([s / c for s, c in zip(spent, calls, strict=True)])
    ms = median_interval([s * 1e3 for s in spent])
    call_ms = median_interval([c * 1e3 for c in calls])
    return {"parameters": size, "checks_ms": vars_of(ms), "call_ms": vars_of(call_ms), "share": vars_of(ratio)}


def started(folder: Path, script: str, *, hot: bool, verify: str = "After") -> str:
    """What a fresh process printed. SystemExit when it was not served as said."""
    env = {
        **os.environ,
        "PREHEAT_DIR": str(folder / "pod"),
        "PREHEAT_LOG": "json",
        "PREHEAT_SERVING": f"verify={verify}",
        "PYTHONPATH": str(ROOT / "compiler_job"),
    }
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    if hot and '"outcome": "hot"' not in done.stderr:
        raise SystemExit(done.stderr)
    return done.stdout


def aside(folder: Path, pairs: int) -> dict[str, Any]:
    """Pairs of fresh processes: what comparing the first answer on the side takes, and adds to the first 20 answers."""
    script = ASIDE.format(folder=str(folder), answers=ANSWERS)
    first, others, busy = [], [], []
    for i in range(pairs):
        pair = {}
        for verify in ("After", "Never") if i % 2 else ("Never", "After"):
            pair[verify] = json.loads(started(folder, script, hot=True, verify=verify))
            if pair[verify]["checked"] != (verify == "After"):
                raise SystemExit(f"verify {verify}: {pair[verify]['checked']} answers were compared")
        after, never = pair["After"], pair["Never"]
        first.append((after["took"][0] - never["took"][0]) * 1e3)
        others.append((sum(after["took"][1:]) - sum(never["took"][1:])) * 1e3 / (ANSWERS - 1))
        busy.append((after["aside"] - never["aside"]) * 1e3)
    figures = {"first_ms": first, "others_ms": others, "busy_ms": busy}
    return {name: vars_of(median_interval(values)) for name, values in figures.items()}


def first_answers(folder: Path, pairs: int) -> dict[str, Any]:
    """Pairs of fresh processes: first answer of the transformer in regions, less eager's."""
    rows: dict[bool, list[float]] = {True: [], False: []}
    for i in range(pairs):
        for hot in (True, False) if i % 2 else (False, True):
            script = FIRST.format(folder=str(folder), hot=hot)
            rows[hot].append(float(started(folder, script, hot=hot)) * 1e3)
    extra = median_interval([hot - eager for hot, eager in zip(rows[True], rows[False], strict=True)])
    return {
        "hot_ms": vars_of(median_interval(rows[True])), "eager_ms": vars_of(median_interval(rows[False])), "extra_ms": vars_of(extra),
    }  # fmt: skip


def report(results: dict[str, Any], missed: list[str]) -> str:
    """The figures as Markdown."""

    def shown(row: dict[str, float], digits: int, scale: float = 1) -> str:
        return f"{row['estimate'] * scale:.{digits}f} ({row['low'] * scale:.{digits}f} to {row['high'] * scale:.{digits}f})"

    lines = [
        "# What the checks cost", "",
        (f"Commit {results['commit']}, {results['date']}, {results['machine']}, Python {results['python']}. Medians with 95 % intervals; processor time, one "
        "thread, the module's own call beside it. `make bench` makes this file."), "",
        "| | parameters, millions | checks of a call, ms | a call, ms | share, % |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for name, row in results["checks"].items():
        cells = [
            f"{row['parameters'] / 1e6:.1f}",
            shown(row["checks_ms"], 3),
            shown(row["call_ms"], 2),
            shown(row["share"], 2, 100),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    load, beside = results["load"], results["aside"]
    lines += [
        "", (f"First answer of the transformer in regions, in {load['extra_ms']['samples']} pairs of fresh processes: hot {shown(load['hot_ms'], 1)} ms, eager "
        f"{shown(load['eager_ms'], 1)} ms, the difference of a pair {shown(load['extra_ms'], 1)} ms. Importing the runtime is not in it."), "",
        (f"Its first answer compared on the side (`verify: After`) against not at all, in {beside['first_ms']['samples']} pairs: the first answer takes "
        f"{shown(beside['first_ms'], 1)} ms longer, each of the {ANSWERS - 1} that follow at once {shown(beside['others_ms'], 1)} ms; all of it is "
        f"{shown(beside['busy_ms'], 0)} ms of processor time, once in a process."), "",
        f"Targets: checks at most {MAX_MS} ms, and {MAX_SHARE:.0%} of a call for 25 million parameters; {MAX_LOAD_MS:.0f} ms to load. "
        + (f"Missed: {'; '.join(missed)}." if missed else "All met."),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def misses(results: dict[str, Any]) -> list[str]:
    """The targets that were missed, in words."""
    found = []
    for name, row in results["checks"].items():
        if row["checks_ms"]["estimate"] > MAX_MS:
            found.append(f"{name}: {row['checks_ms']['estimate']:.3f} ms")
        if row["parameters"] > 25e6 and row["share"]["estimate"] > MAX_SHARE:
            found.append(f"{name}: {row['share']['estimate']:.1%} of a call")
    if results["load"]["extra_ms"]["estimate"] > MAX_LOAD_MS:
        found.append(f"load: {results['load']['extra_ms']['estimate']:.0f} ms")
    return found


def main() -> int:
    """Measure, write docs/measured/checks.{json,md}, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--pairs", type=int, default=15)
    add_out(parser)
    options = parser.parse_args()
    results: dict[str, Any] = {
        **origin(), "python": ".".join(map(str, sys.version_info[:2])), "checks": {},
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="preheat-checks-") as folder:
        for number, name in enumerate(MODELS):
            results["checks"][name] = checks(name, Path(folder) / str(number), options.rounds)
            print(name, results["checks"][name]["checks_ms"], flush=True)
            if "regions" in name:
                place = Path(folder) / str(number)
                (place / "model.py").write_text(MODEL)
                results["load"] = first_answers(place, options.pairs)
                results["aside"] = aside(place, options.pairs)
    missed = misses(results)
    save(options.out, "checks", results, report(results, missed))
    print("missed: " + "; ".join(missed) if missed else "all targets met")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
