"""Lays out one target's artifact as a serving pod would have it.

Why it exists: the last proof of an artifact is a process that meets it exactly as a pod does: through the entry point
of `preheat_runtime`, a manifest, and files below `revision/`; anything less would prove another code path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import preheat_runtime
from preheat_runtime import bytecode
from preheat_runtime.manifest import MAX_PIECE_BYTES, File, Manifest, Piece, Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_compiler.request import Request

#: Words that start a compiler. In a serving pod none may run.
COMPILERS = (
    "g++",
    "gcc",
    "c++",
    "cc",
    "clang",
    "clang++",
    "cc1plus",
    "ld",
    "as",
    "nvcc",
    "ptxas",
    "ninja",
    "icpx",
    "g++-12",
    "g++-13",
)
#: Triton's assemblers by the variables that name others to it: it runs its own by their paths, whatever PATH says.
ASSEMBLERS = {"TRITON_PTXAS_PATH": "ptxas", "TRITON_PTXAS_BLACKWELL_PATH": "ptxas-blackwell"}
#: Asked so, a program compiles nothing.
_QUESTIONS = frozenset({"--version", "-v", "-dumpversion", "--help", "-t", "-Wl,-t"})
#: An assembler that is told `-v` assembles, and says how.
_QUESTIONS_TO_ASSEMBLERS = frozenset({"--version", "-V", "--help", "-h"})
#: What a compiler may take to say its version.
_ANSWER_SECONDS = 20


def lay_out(
    folder: Path, artifact: Path, *, request: Request, module: str, bucket: str, tier: str,
    request_key: str, fingerprint: Mapping[str, Any],
) -> Path:  # fmt: skip
    """Make `folder` what `/opt/preheat` is in a pod with this one artifact, Kept; returns `folder`.

    Files are linked where the file system can, else copied.
    """
    target = folder / "revision" / module / bucket / request.hardware
    shutil.copytree(artifact, target, copy_function=_link)
    manifest = Manifest(
        namespace=request.namespace,
        name=request.name,
        uid=request.uid,
        revision=request.revision,
        image=request.image,
        image_python_path=os.environ.get("PYTHONPATH") or None,
        targets=(
            Target(
                module=module, bucket=bucket, hardware=request.hardware, verdict="Kept", reason="GatesMet", message="",
                tier=tier, request_key=request_key, fingerprint=fingerprint, figures={}, files=_files(target),
            ),
        ),
    )  # fmt: skip
    (folder / "revision" / "manifest.json").write_bytes(manifest.to_bytes())
    _install_runtime(folder / "site")
    return folder


def shims(folder: Path, *, log: Path, pass_on: bool) -> Path:
    """A folder for the front of PATH whose compilers note in `log` that they ran, then fail, or (`pass_on`) do run.

    What does run sees PATH without this folder: ccache and its like look there for the compiler behind them, and would
    find these shims, which call ccache, without end.
    """
    folder.mkdir(parents=True)
    path = shlex.quote(os.environ.get("PATH", os.defpath))
    for name in COMPILERS:
        real = shutil.which(name)
        if pass_on and real is None:
            continue
        then = (
            f'PATH={path} exec {shlex.quote(real)} "$@"'
            if real and pass_on
            else f'echo "preheat: {name} is not there in a pod" >&2; exit 127'
        )
        _note_and_run(folder / name, name=name, log=log, then=then)
    return folder


def assembler_shims(folder: Path, *, log: Path) -> dict[str, str]:
    """Variables that have Triton run its assemblers through shims in `folder`, which note in `log` that they ran, and run them.

    Of the version that the real ones say, which is part of Triton's keys; none where there is no Triton.
    """
    folder.mkdir(parents=True)
    # Not imported: that takes long, and looks for a GPU.
    found = importlib.util.find_spec("triton")
    bundled = [Path(found.origin).parent / "backends" / "nvidia" / "bin"] if found and found.origin else []
    variables = {}
    for variable, name in ASSEMBLERS.items():
        # As Triton has it: its own where the one that it is told to take does not run.
        given = [os.environ[variable]] if variable in os.environ else []
        real = [each for each in (*given, *(str(place / name) for place in bundled)) if os.access(each, os.X_OK)]
        if real:
            _note_and_run(folder / name, name=name, log=log, then=f'exec {shlex.quote(real[0])} "$@"')
            variables[variable] = str(folder / name)
    return variables


def _note_and_run(shim: Path, *, name: str, log: Path, then: str) -> None:
    shim.write_text(f'#!/bin/sh\nprintf "%s\\n" "{name} $*" >>"{log}"\n{then}\n', encoding="utf-8")
    shim.chmod(0o755)


def answering_compiler() -> str | None:
    """The first of `COMPILERS` on this process's PATH that runs, None when none does; asking leaves no compile in `shims`' log."""
    for name in COMPILERS:
        with suppress(OSError, subprocess.TimeoutExpired):
            asked = subprocess.run(
                [name, "--version"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                timeout=_ANSWER_SECONDS, check=False,
            )  # fmt: skip
            if asked.returncode == 0:
                return name
    return None


def compiler_runs(log: Path, begin: int = 0, end: int | None = None) -> int:
    """How many compiles the shims saw; of a part of the log, where it is given from which byte to which.

    Asking a compiler for its version is none, nor is asking it or the linker where a library lies, as Python's
    `ctypes.util.find_library` does (for a CUDA torch's `cuda.pathfinder`, at `import torch`).
    """
    try:
        lines = log.read_bytes()[begin:end].decode("utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return 0
    return sum(1 for line in lines if not _is_question(line.split()))


def _is_question(words: list[str]) -> bool:
    asked = _QUESTIONS_TO_ASSEMBLERS if words[:1] and words[0] in ASSEMBLERS.values() else _QUESTIONS
    return bool(asked.intersection(words[1:]))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def _install_runtime(site: Path) -> None:
    source = Path(preheat_runtime.__file__).resolve().parent
    shutil.copytree(source, site / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    bytecode.unpack(bytecode.pack(), site / source.name)
    info = site / f"{source.name}-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: preheat-runtime\nVersion: 0\n", encoding="ascii")
    (info / "entry_points.txt").write_text(
        "[torch.backends]\npreheat = preheat_runtime.hook:autoload\n", encoding="ascii"
    )


def _files(folder: Path) -> tuple[File, ...]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(_file(path, path.relative_to(folder).as_posix()) for path in paths)


def _file(path: Path, name: str) -> File:
    whole = hashlib.sha256()
    pieces: list[Piece] = []
    with path.open("rb") as file:
        while data := file.read(MAX_PIECE_BYTES):
            whole.update(data)
            digest = hashlib.sha256(data).hexdigest()
            pieces.append(Piece(sha256=digest, size=len(data), stored_size=len(data), encoding="identity"))
    return File(path=name, size=sum(piece.size for piece in pieces), sha256=whole.hexdigest(), pieces=tuple(pieces))
