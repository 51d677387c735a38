"""Which versions of torch the compile driver and the runtime work with: each in an environment of its own.

Why it exists: packages rest on parts of torch that no version promises. `features` looks for them by name, and this finds out
whether what has the names also works: a small model to a package served hot, and one that does not export to caches
served warm, both proved by the driver and computed once more in the served process. A version must either do all
that or be refused with a word before anything is compiled; which of the two is pinned for those that were tried before.
Exits 1 when one does otherwise.

    python benchmarks/torch_versions.py 2.14.1 2.15.0 …       # several GB for each, removed afterwards
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
from typing import TYPE_CHECKING, Any

from shared import ROOT, add_out, earlier, origin

import bad_index
from architectures.check import faults
from architectures.job import compile_architecture
from architectures.table import BY_NAME
from lab.paths import cache_root
from lab.venv import ensure_uv
from preheat_runtime.environment import cache_environment

if TYPE_CHECKING:
    from collections.abc import Callable

#: What a CPU's torch does without: see examples/base/Dockerfile.
LEFT_OUT = ("triton", "cuda-toolkit", "cuda-bindings", "cuda-pathfinder")
UNUSED = ("cudnn/lib/libcudnn_*", "nvshmem/lib/*.a", "nvshmem/lib/*.bc", "*/include")
MODELS = ("small_weights", "branching")
#: Minor versions of which it is known. Without these, a part of torch that is looked for under a wrong name would make a
#: version that works a refused one, and nothing would be wrong with that. Others must do either.
MUST_WORK = ("2.13", "2.14", "2.15")
MUST_BE_REFUSED = ("2.9", "2.10", "2.11", "2.12")


def environment(version: str, python: str = sys.executable, *, name: str = "", cache: Path | None = None) -> Path:
    """A virtual environment of that Python with that torch; its folder. Raises CalledProcessError with uv's words.

    What is downloaded is kept in `cache`, and nowhere without it: several GB for each torch.
    """
    place, uv = cache_root() / f"torch-{version}{name}", ensure_uv()
    if not (place / ".complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        env = {**os.environ, "UV_CACHE_DIR": str(cache or f"{place}.uv"), "UV_LINK_MODE": "hardlink"}
        subprocess.run([uv, "venv", "-q", "--python", python, str(place)], check=True, env=env)
        words = [uv, "pip", "compile", "-q", "--no-header", "--no-annotate", "-o", str(place / "requirements.txt"), "-"]
        words += ["--python", str(place / "bin" / "python")]
        words += [f"--no-emit-package={name}" for name in LEFT_OUT]
        asked = f"torch=={version}\nnumpy\nsetuptools\n"
        subprocess.run(words, input=asked, text=True, check=True, env=env, stderr=subprocess.PIPE)
        words = [uv, "pip", "install", "-q", "--no-deps", "--python", str(place / "bin" / "python")]
        subprocess.run([*words, "-r", str(place / "requirements.txt")], check=True, env=env)
        shutil.rmtree(f"{place}.uv", ignore_errors=True)
        for pattern in UNUSED:
            for path in next(place.glob("lib/python3*/site-packages/nvidia")).glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        (place / ".complete").touch()
    return place


def attempt(name: str, python: str) -> dict[str, Any]:
    """What becomes of one architecture with that Python's torch."""
    with tempfile.TemporaryDirectory(prefix="preheat-torch-") as folder:
        try:
            job = compile_architecture(BY_NAME[name], Path(folder) / "job", Path(folder) / "nothing", python=python)
        except AssertionError as error:
            return {"verdict": "refused", "said": str(error)[-1500:], "faults": []}
        try:
            served = job.serve(Path(folder) / "served", Path(folder) / "nothing") if job.target["tier"] else None
        except AssertionError as error:
            return {"verdict": job.target["verdict"], "said": str(error)[-1500:], "faults": [str(error)[-1500:]]}
    target = job.target
    return {
        "verdict": f"{target['verdict']} {target['reason']}",
        "tier": target["tier"],
        "said": target["message"].replace(f"{folder}/job/app/", ""),
        "outcomes": served and served.outcomes,
        "error": served and max(served.answer["errors"]),
        "figures": target["figures"],
        "faults": faults(job, served),
    }


def bad_calls(python: str) -> list[str]:
    """What is not as it must be where calls of a package and of a warm pod are refused for an index out of range."""
    with tempfile.TemporaryDirectory(prefix="preheat-torch-") as folder:
        common = {"PYTHONPATH": str(ROOT / "compiler_job")}
        caches = {**cache_environment(), "TORCHINDUCTOR_CACHE_DIR": str(Path(folder) / "inductor")}
        return [
            *bad_index.faults("package", str(Path(folder) / "package"), python=python, **common),
            *bad_index.faults("warm", python=python, **common, **caches, OMP_NUM_THREADS="2"),
        ]


def row(version: str) -> dict[str, Any]:
    """What that version can do; its environment is removed."""
    place = environment(version)
    try:
        probe = "import sys, json; sys.path.insert(0, sys.argv[1])\nfrom preheat_compiler.features import find\nprint(json.dumps(vars(find())))"
        python = str(place / "bin" / "python")
        words = [python, "-c", probe, str(ROOT / "compiler_job")]
        found = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
        models = {} if found["reason"] else {name: attempt(name, python) for name in MODELS}
        bad = None if found["reason"] else bad_calls(python)
    finally:
        shutil.rmtree(place)
    return {
        "version": version,
        "features": found,
        "models": models,
        "badCalls": bad,
        **origin(),
        "python": "{}.{}.{}".format(*sys.version_info),
    }


def works(each: dict[str, Any]) -> bool:
    """Whether all that was tried was as it must be; calls that must be refused are not tried with each Python."""
    return (
        bool(each["models"])
        and not each.get("badCalls")
        and not any(found["faults"] for found in each["models"].values())
    )


def misses(each: dict[str, Any]) -> str | None:
    """What is wrong with what became of that version, in words; None when it is as it must be."""
    minor, refused = ".".join(each["version"].split(".")[:2]), each["features"]["reason"]
    if works(each):
        return "works, and must be refused" if minor in MUST_BE_REFUSED else None
    if not refused:
        return "neither works nor is refused"
    return "is refused, and must work" if minor in MUST_WORK else None


def of_models(each: dict[str, Any]) -> list[str]:
    """What became of each model in one row, a cell each."""
    cells = []
    for name in MODELS:
        found = each["models"].get(name, {})
        outcomes = ", ".join(dict.fromkeys(found.get("outcomes") or ()))
        error = f", error {found['error']:.0e}" if found.get("error") is not None else ""
        cells.append(f"{found['verdict']}: {outcomes or 'not served'}{error}" if found else "–")
    return cells


def faults_of(rows: list[dict[str, Any]]) -> list[str]:
    """What was not as it must be, a line each."""
    return [
        f"- {each['version']}, {name}: {' '.join(' '.join(said).split())[:700]}"
        for each in rows
        for name, said in (
            *((f"`{name}`", found["faults"]) for name, found in each["models"].items()),
            ("an index out of range", each.get("badCalls")),
        )
        if said
    ]  # fmt: skip


def write(place: Path, rows: dict[str, dict[str, Any]], table: Callable[[list[dict[str, Any]]], str]) -> None:
    """Write the rows, by version, to `place` and as Markdown beside it."""
    ordered = sorted(rows.values(), key=lambda each: [int(part) for part in each["version"].split(".")])
    # What torch says names files below the cache.
    place.write_text(json.dumps(ordered, indent=2).replace(str(cache_root()), "$PREHEAT_CACHE") + "\n")
    place.with_suffix(".md").write_text(table(json.loads(place.read_text())))


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    about = (
        "Each version of torch from the package registry's default wheels (CUDA builds, run on a CPU) in an environment of its own: a small model "
        "with the weights that compilers bake in, to a package served hot, and one with control flow on values, to caches served warm; and calls "
        "with an index out of range, which must be refused and leave the process as it was, in a package and in a warm pod. "
        "*Error* is the largest relative error that an independent calculation saw in the served process. "
        "`python benchmarks/torch_versions.py VERSION …` makes this file. A version that lacks what packages need is refused "
        "(`TorchUnsupported`), by looking for it, not by its number."
    )
    lines = [
        "# Versions of torch",
        "",
        about,
        "",
        "| torch | features | package | caches | an index out of range | works | measured |",
        "|" + "---|" * 7,
    ]
    for each in rows:
        cells = [each["version"], each["features"]["reason"] or "all there"]
        cells += of_models(each)
        cells.append("–" if each["badCalls"] is None else "see below" if each["badCalls"] else "refused")
        cells += [f"NO: {missed}" if (missed := misses(each)) else "yes" if works(each) else "refused"]
        cells += [f"{each['commit']}, {each['date']}, {each['machine']}, Python {each['python']}"]
        lines.append(f"| {' | '.join(cells)} |")
    words = [f"- {each['version']}: {each['features']['message']}" for each in rows if each["features"]["reason"]]
    words += faults_of(rows)
    return "\n".join([*lines, *(["", "## What was not as it must be", "", *words] if words else []), ""])


def main() -> int:
    """Try the versions, renew their rows, and say whether each works or is refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    add_out(parser)
    arguments = parser.parse_args()
    place = arguments.out / "torch-versions.json"
    rows = earlier(place, "version")
    for version in arguments.versions:
        rows[version] = found = row(version)
        said = [misses(found) or ("works" if works(found) else "is refused"), found["features"]["message"]]
        print(f"torch {version}: {': '.join(filter(None, said))}", flush=True)
        write(place, rows, table)
    return 1 if any(misses(each) for each in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
