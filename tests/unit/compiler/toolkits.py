"""The toolkit folder of a compile pod, with roles that need no torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import preheat_compiler
import preheat_runtime

LAUNCH = Path(preheat_compiler.__file__).parent / "launch"


def make(folder: Path, **roles: str) -> Path:
    """A copy of what the toolkit container lays out; `roles` replaces modules of the compiler by other sources."""
    folder.mkdir()
    for package in (preheat_compiler, preheat_runtime):
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("compile.py", "compile.sh"):
        shutil.copy(LAUNCH / name, folder / name)
    for module, source in roles.items():
        (folder / "preheat_compiler" / f"{module}.py").write_text(source)
    return folder


def start(toolkit: Path, directory: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """The driver on `request.json` of `directory`, with an image's PYTHONPATH only where one is given."""
    around = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, str(toolkit / "compile.py"), "--request", "request.json", "--out", "out"]
    return subprocess.Popen(
        [*command, "--termination-log", "termination", *arguments],
        cwd=directory, env={**around, **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(toolkit: Path, directory: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """The driver's exit code and everything it said."""
    process = start(toolkit, directory, *arguments, **environment)
    said, _ = process.communicate(timeout=540)
    return process.returncode, said
