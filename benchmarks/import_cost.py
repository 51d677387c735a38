"""What Preheat adds to `import torch` in a process that never calls `torch.compile`, in rounds of fresh processes.

The claim: at most 2 ms, of processor time and of wall time. Importing torch takes a thousand times that and varies by more than it, so the difference of
two whole imports could not tell. Two things are added, and each is timed on its own: the step that `import torch` ends with, in
which torch looks for entry points and calls what it finds (that of a process with Preheat less that of one without), and that
each import, from torch's first to its last, looks into one folder more, the first one of PYTHONPATH (the very names, looked for in it once more).
What two whole imports differ by is told beside it; where its interval lies above the target, that is a miss too.

Preheat lies there as `fetch` leaves it, with the byte code that a revision brings, and once without any, which is only told. Each process
is the first of its container, which also notes that Preheat is there. Exits 1 when the target is missed.

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

from shared import add_out, origin, save, vars_of

from preheat_compiler.intervals import median_interval
from preheat_operator.containers.sources import RUNTIME, write_site
from preheat_runtime import bytecode

TARGET_MS = 2.0
#: Nothing of Preheat; as fetch leaves it; of a revision that brought no byte code for this Python.
WITHOUT, WITH, SOURCES = "without", "with", "sources"
CLOCKS = {"cpu": "processor time", "wall": "wall time"}
IMPORT = """
import json, os, sys, time
now = lambda: (time.process_time(), time.perf_counter())
begin = now()
import torch
before = now()
torch._import_device_backends()  # what import torch ends with; it is switched off here so that it can be timed
end = now()
def taken(begin, end):
    return {clock: (b - a) * 1e3 for clock, a, b in zip(("cpu", "wall"), begin, end)}
found = {"whole": taken(begin, end), "step": taken(before, end), "loaded": hasattr(torch.compile, "_preheat")}
found["ours"] = sorted(name for name in sys.modules if name.startswith("preheat"))
if found["ours"]:
    site, names = sys.argv[1], json.loads(sys.argv[2])
    found["byte_code"] = os.path.exists(sys.modules["preheat_runtime.hook"].__cached__)
    begin = now()
    finder = next(filter(None, (hook(site) for hook in sys.path_hooks if "zip" not in repr(hook))))
    for name in names:
        finder.find_spec(name)
    found["search"] = taken(begin, now())
print(json.dumps(found))
"""
#: What is looked for in the folders of sys.path, each in turn, while torch is imported.
NAMES = """
import _imp, json, sys
names = []
class Notes:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is None and name not in sys.builtin_module_names and not _imp.is_frozen(name):
            names.append(name)
sys.meta_path.insert(0, Notes)
import torch
print(json.dumps(names))
"""
NO_TORCH = "import time; print(time.process_time(), time.perf_counter())"


def fresh(script: str, *words: str, site: Path | None, folder: Path, **more: str) -> str:
    """What a fresh process printed, in a pod's environment where there is a `site`."""
    keep = ("PATH", "LANG", "LD_LIBRARY_PATH", "HOME")
    env = {name: os.environ[name] for name in keep if name in os.environ} | more
    env["PYTHONDONTWRITEBYTECODE"] = "1"  # the volume is read-only in a pod
    with tempfile.TemporaryDirectory(dir=folder) as work:
        if site:
            env |= {"PYTHONPATH": str(site), "PREHEAT_DIR": str(folder), "PREHEAT_WORK_DIR": work}
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    if site and "torch" in script and '"preheat-loaded"' not in done.stderr:
        raise SystemExit(f"Preheat did not say that it is there: {done.stderr[-500:]}")
    return done.stdout


def imported(kind: str, site: Path | None, names: str, folder: Path) -> dict[str, Any]:
    """One import of torch in a fresh process, seen to be what it is called."""
    found: dict[str, Any] = json.loads(
        fresh(IMPORT, str(site), names, site=site, folder=folder, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    )
    seen = (found["loaded"], found.get("byte_code"))
    if seen != {WITHOUT: (False, None), WITH: (True, True), SOURCES: (True, False)}[kind]:
        raise SystemExit(f"not {kind} Preheat as it must be: {found}")
    return found


def bare(site: Path | None, folder: Path) -> dict[str, float]:
    """A Python without torch, from its start to its first line; milliseconds."""
    begin = time.perf_counter()
    cpu, at = map(float, fresh(NO_TORCH, site=site, folder=folder).split())
    return {"cpu": cpu * 1e3, "wall": (at - begin) * 1e3}


def measure(rounds: int, folder: Path) -> dict[str, Any]:
    """All figures, from rounds in which every kind of process starts once, in turns."""
    sites: dict[str, Path | None] = {WITHOUT: None, WITH: folder / WITH, SOURCES: folder / SOURCES}
    for site in filter(None, sites.values()):
        write_site(site)
    bytecode.unpack(bytecode.pack(), folder / WITH / RUNTIME)
    names = fresh(NAMES, site=None, folder=folder)
    rows, pythons = [], []
    for i in range(rounds):
        kinds = list(sites)[i % 3 :] + list(sites)[: i % 3]
        rows.append({kind: imported(kind, sites[kind], names, folder) for kind in kinds})
        pythons.append({kind: bare(sites[kind], folder) for kind in ((WITH, WITHOUT) if i % 2 else (WITHOUT, WITH))})
        print(f"round {i + 1}/{rounds}", flush=True)

    def step(row: dict[str, Any], kind: str, clock: str) -> float:
        return float(row[kind]["step"][clock] - row[WITHOUT]["step"][clock])

    def figures(clock: str) -> dict[str, Any]:
        values = {
            "added": [step(row, WITH, clock) + row[WITH]["search"][clock] for row in rows],
            "step": [step(row, WITH, clock) for row in rows],
            "search": [row[WITH]["search"][clock] for row in rows],
            "sources_added": [step(row, SOURCES, clock) + row[SOURCES]["search"][clock] for row in rows],
            "whole": [row[WITH]["whole"][clock] - row[WITHOUT]["whole"][clock] for row in rows],
            "import_torch": [row[WITHOUT]["whole"][clock] for row in rows],
            "no_torch": [pair[WITH][clock] - pair[WITHOUT][clock] for pair in pythons],
        }
        return {name: vars_of(median_interval(each)) for name, each in values.items()}

    return {"names": len(json.loads(names)), **{clock: figures(clock) for clock in CLOCKS}}


def misses(results: dict[str, Any]) -> list[str]:
    """The targets that were missed, in words."""
    found = []
    for clock, words in CLOCKS.items():
        added, whole = results[clock]["added"], results[clock]["whole"]
        if added["estimate"] > TARGET_MS:
            found.append(f"{added['estimate']:.2f} ms of {words}")
        if whole["low"] > TARGET_MS:
            found.append(f"whole imports differ by at least {whole['low']:.1f} ms of {words}")
    return found


def report(results: dict[str, Any], missed: list[str]) -> str:
    """The figures as Markdown."""
    about = (
        f"Commit {results['commit']}, {results['date']}, {results['machine']}, Python {results['python']}, torch {results['torch']}. "
        f"{results['cpu']['added']['samples']} rounds of fresh processes in turns, medians with 95 % intervals, milliseconds. Each is the first "
        "process of its container and never calls `torch.compile`. `make bench` makes this file."
    )
    rows = {
        "added": "**what Preheat adds to `import torch`**",
        "step": "… the step that loads entry points, with Preheat less without",
        "search": f"… looking for {results['names']} modules in one folder more",
        "sources_added": "the same where the revision brought no byte code",
        "whole": "two whole imports differ by",
        "import_torch": "`import torch` without Preheat",
        "no_torch": "a Python without torch: with Preheat's folder less without, of the whole start",
    }
    head = ["", *CLOCKS.values()]
    lines = ["# What Preheat adds to `import torch`", "", about, "", f"| {' | '.join(head)} |", "|---|---|---|"]
    for name, words in rows.items():
        digits = 0 if name in ("whole", "import_torch") else 2
        cells = [
            f"{each['estimate']:.{digits}f} ({each['low']:.{digits}f} to {each['high']:.{digits}f})"
            for each in (results[clock][name] for clock in CLOCKS)
        ]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    lines += ["", f"Target: at most {TARGET_MS:.0f} ms. " + (f"MISSED: {'; '.join(missed)}." if missed else "Met.")]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write docs/measured/import-cost.{json,md}, and say whether the target is met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    add_out(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="preheat-import-") as folder:
        measured = measure(options.rounds, Path(folder))
    import torch

    results = {
        **origin(), "python": ".".join(map(str, sys.version_info[:3])), "torch": torch.__version__, **measured,
    }  # fmt: skip
    missed = misses(results)
    results["met"] = not missed
    save(options.out, "import-cost", results, report(results, missed))
    print(report(results, missed))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
