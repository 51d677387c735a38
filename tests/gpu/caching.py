"""Experiments on compiler caches: which files, which settings, and what a fresh process still has to do."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context import Context, Experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the product sets on both sides (preheat_runtime/environment.py), so that keys match and nothing is probed.
SETTINGS = {
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "1",
}
#: Programs whose runs are counted; Triton brings its own ptxas and asks the variable for another.
COMPILERS = ("g++", "gcc", "c++", "cc", "clang", "nvcc", "ptxas")


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Path below the folder -> size and time of change, without locks."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }


def by_kind(seen: dict[str, tuple[int, int]]) -> dict[str, str]:
    """Count and bytes by top folder and suffix."""
    kinds: dict[str, list[int]] = {}
    for name, (size, _) in seen.items():
        parts = Path(name).parts
        top = "triton" if parts[0] == "triton" else parts[0] if parts[0] in ("fxgraph", "aotautograd") else "code"
        kinds.setdefault(f"{top}/*{Path(name).suffix}", []).append(size)
    return {kind: f"{len(sizes)} files, {sum(sizes)} bytes" for kind, sizes in sorted(kinds.items())}


def counting(folder: Path) -> dict[str, str]:
    """Environment in which every compiler on PATH notes that it ran, then runs."""
    shims, log = folder / "shims", folder / "log"
    shims.mkdir(parents=True, exist_ok=True)
    # What runs sees PATH without the shims: ccache would take one for the compiler behind it.
    path = os.environ.get("PATH", os.defpath)
    for name in COMPILERS:
        if (real := shutil.which(name)) is not None:
            shim = shims / name
            shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"{log}"\nPATH="{path}" exec "{real}" "$@"\n')
            shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    more = {}
    for variable, name in (("TRITON_PTXAS_PATH", "ptxas"), ("TRITON_PTXAS_BLACKWELL_PATH", "ptxas-blackwell")):
        if (bundled := _bundled(name)) is not None:
            shim = shims / f"triton-{name}"
            shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "ptxas $*" >>"{log}"\nexec "{bundled}" "$@"\n')
            shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
            more[variable] = str(shim)
    return {"PATH": f"{shims}{os.pathsep}{os.environ.get('PATH', '')}", **more}


def _bundled(name: str) -> Path | None:
    import importlib.util

    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.rglob(f"bin/{name}"))), None)


def runs(folder: Path) -> dict[str, int]:
    """How often each compiler ran; asking one for its version is no run. An assembler that is told `-v` assembles, and says how."""
    log = folder / "log"
    counts: dict[str, int] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        words = line.split()
        asked = {"--version"} if words[0] == "ptxas" else {"--version", "-v", "-dumpversion"}
        if not asked & set(words):
            counts[words[0]] = counts.get(words[0], 0) + 1
    log.unlink(missing_ok=True)
    return counts


def places(folder: Path) -> dict[str, str]:
    """The two variables that say where caches lie, as the product sets them, with its settings."""
    return {**SETTINGS, "TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")}


def _answer(
    context: Context, net: str, folder: Path, *, environment: Mapping[str, str | None], **more: str
) -> dict[str, Any]:
    before = files(folder) if folder.exists() else {}
    facts = context.answer_of("compiled", net, environment={**places(folder), **environment}, **more)
    after = files(folder)
    changed = {name: entry for name, entry in after.items() if before.get(name) != entry}
    return {**facts, "filesAll": by_kind(after), "filesNewOrChanged": by_kind(changed)}


def _reuse(net: str) -> Any:
    def run(context: Context) -> None:
        filled = context.work / "filled"
        counts = context.work / "counts"
        environment = counting(counts)
        nothing = context.work / "nothing"
        nothing.mkdir()
        rounds: tuple[tuple[str, str | None, dict[str, str | None]], ...] = (
            ("cold", None, {}),
            ("again in place", None, {}),
            ("copied elsewhere", "all", {}),
            ("copied, without Triton's part", "without", {}),
            ("copied, Triton's part alone", "alone", {}),
            ("copied, no compiler on PATH", "all", {"PATH": str(nothing), "CC": None, "CXX": None}),
            ("copied, settings not as they were", "all", dict.fromkeys(SETTINGS)),
        )
        for number, (name, part, changes) in enumerate(rounds):
            folder = filled if part is None else context.work / f"round-{number}"
            if part is not None:
                _copy(filled, folder, part)
            facts = _answer(context, net, folder, environment={**environment, **changes})
            context.note(**{name: {**facts, "compilerRuns": runs(counts)}})

    return run


def _copy(source: Path, target: Path, part: str) -> None:
    """Copy `all` of a cache directory, or it `without` Triton's part, or that `alone`."""
    if part != "alone":
        without = shutil.ignore_patterns("triton") if part == "without" else None
        shutil.copytree(source, target, ignore=without)
    elif (source / "triton").exists():
        shutil.copytree(source / "triton", target / "triton")
    else:
        target.mkdir()


def autotune(context: Context) -> None:
    """max-autotune: its time, its reuse, and a new shape with and without what was kept."""
    counts = context.work / "counts"
    environment, mode = counting(counts), "max-autotune-no-cudagraphs"
    kept, other = context.work / "kept", context.work / "other"
    for name, folder, batch in (
        ("cold", kept, "2"),
        ("again, fresh process", kept, "2"),
        ("new shape, caches kept", kept, "4"),
        ("new shape, no caches", other, "4"),
    ):
        facts = _answer(context, "block", folder, environment=environment, mode=mode, batch=batch, calls="30")
        context.note(**{name: {**facts, "compilerRuns": runs(counts)}})
    context.note(
        **{
            "default mode, no caches": _answer(
                context, "block", context.work / "plain", environment=environment, calls="30"
            )
        }
    )


def another_torch(context: Context) -> None:
    """A package and a cache made by this torch, met by the one of another interpreter."""
    python = context.options.get("other-python")
    if not python:
        context.note(notRun="no other interpreter was given (--other-python)")
        return
    package = context.shared / "build-block" / "unpacked"
    context.note(package=context.answer_of("package", "block", python=python, package=str(package)))
    folder = context.work / "filled"
    context.note(cold=_answer(context, "block", folder, environment={}))
    context.note(cachesInOther=context.answer_of("compiled", "block", python=python, environment=places(folder)))


EXPERIMENTS = (
    Experiment(name="caches-cnn", question="What of a cache directory does a fresh process reuse? (CNN)", run=_reuse("cnn"), seconds=240),
    Experiment(name="caches-block", question="The same of a transformer block", run=_reuse("block"), seconds=240),
    Experiment(name="autotune", question="Is max-autotune's result reused, and does a new shape gain from it?", run=autotune, seconds=240, alone=True),
    Experiment(name="another-torch", question="What happens under another torch?", run=another_torch, seconds=120, needs=("build-block",)),
)  # fmt: skip
