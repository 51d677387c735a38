"""Serving processes of a pod on this CPU or on another."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import emulation
from preheat_compiler.prove import pod_environment, said_by_runtime

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Ended:
    """One process: how it ended, the JSON it printed (None without any), what the runtime reported, its stderr."""

    code: int
    printed: Any
    said: list[dict[str, Any]]
    stderr: str


@pytest.fixture(scope="session")
def serve() -> Callable[..., Ended]:
    """Run a script as the container of a pod would, without a compiler, on another CPU or on this machine's own."""
    emulation.install()

    def run(script: str, *, pod: Path, code: Path, work: Path, cpu: str | None = None) -> Ended:
        nothing = work / "bin"
        nothing.mkdir(parents=True)
        environment = pod_environment(work, os.environ)
        environment.update(
            PREHEAT_DIR=str(pod),
            PREHEAT_WORK_DIR=str(work),
            PREHEAT_MODEL="vision",
            PYTHONPATH=f"{pod / 'site'}:{code}",
            PATH=str(nothing),
            CUDA_VISIBLE_DEVICES="",
            OMP_NUM_THREADS="1",
        )
        done = subprocess.run(
            [*emulation.command(cpu), sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        printed = json.loads(done.stdout) if done.stdout.strip() else None
        return Ended(code=done.returncode, printed=printed, said=said_by_runtime(work), stderr=done.stderr[-3000:])

    return run
