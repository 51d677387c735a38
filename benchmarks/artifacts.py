"""Artifacts of real architectures for benchmarks: made once by the compile Job's own driver, and laid out as in a pod.

Why it exists: compiling takes minutes, and what is measured is a start. An artifact is kept below the work folder, which is
named by everything that it comes from, and used again by the next run and by other benchmarks.
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import torch
from shared import ROOT

from architectures.job import compile_architecture, factory, prepared
from lab.paths import cache_root, tree_key
from lab.venv import packages
from preheat_compiler.decide import Decision, decide
from preheat_compiler.intervals import Interval
from preheat_compiler.request import KeepIf
from preheat_runtime.fingerprint import NATIVE, needed_isa
from preheat_runtime.manifest import Manifest
from preheat_runtime.package import TARGET_FILE

if TYPE_CHECKING:
    from pathlib import Path

    from architectures.table import Architecture

#: Of these an artifact is made.
INPUTS = ("compiler_job", "tests/architectures", "requirements/architectures.txt", "requirements/peers.txt")
#: keepIf.minSpeedup where a CompiledModel gives none.
USUAL_GATE = Decimal("1.05")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """`target` is its part of result.json; `python_path` is what the image has beside torch, without the runtime."""

    architecture: Architecture
    pod: Path
    app: Path
    target: dict[str, Any]
    python_path: tuple[Path, ...]
    rejected: str | None = None
    """The reason when its pods run eager on purpose."""

    @property
    def factory(self) -> str:
        """`torch.factory` of its CompiledModel."""
        return factory(self.architecture)

    def served_environment(self, work: Path) -> dict[str, str]:
        """What injection adds to the container, but for PYTHONPATH, where `pod / "site"` comes first."""
        return {"PREHEAT_DIR": str(self.pod), "PREHEAT_WORK_DIR": str(work), "PREHEAT_MODEL": self.architecture.name}

    @property
    def bytes_moved(self) -> int:
        """All files of the artifact; published ones are compressed, so no pod fetches more."""
        if self.rejected is not None:
            return sum(file.stat().st_size for file in self.pod.glob(f"revision/**/{TARGET_FILE}"))
        return int(self.target["figures"]["sizeBytes"])

    @property
    def outcome(self) -> str:
        """How its pods say that they are served."""
        return "hot" if self.rejected is None else "eager"

    def by_usual_gate(self) -> Artifact:
        """What a user has who gives no `keepIf`: this one, or where the usual gate rejects it, one that says so."""
        gate = usual_gate(self.target)
        if gate is None or gate.verdict == "Kept":
            return self
        pod = self.pod.with_name("pod-by-usual-gate")
        shutil.rmtree(pod, ignore_errors=True)
        shutil.copytree(self.pod, pod)
        place = pod / "revision" / "manifest.json"
        manifest = Manifest.parse(place.read_bytes())
        (entry,) = manifest.targets
        for file in (pod / "revision" / entry.folder).rglob("*"):
            if file.is_file() and file.name != TARGET_FILE:
                file.unlink()
        files = tuple(file for file in entry.files if file.path == TARGET_FILE)
        said = replace(entry, verdict=gate.verdict, reason=gate.reason, message=gate.message, tier=None, files=files)
        place.write_bytes(replace(manifest, targets=(said,)).to_bytes())
        return replace(self, pod=pod, rejected=gate.reason)


def usual_gate(target: dict[str, Any]) -> Decision | None:
    """What the usual gate on speed would have said of these figures; None where no speed was measured."""
    figures = target["figures"]
    if "speedup" not in figures:
        return None
    estimate, low, high = (float(figures[name]) for name in ("speedup", "speedupLow", "speedupHigh"))
    interval = Interval(estimate=estimate, low=low, high=high, samples=0)
    keep_if = KeepIf(min_speedup=USUAL_GATE, max_error=None)
    return decide(keep_if, error=0.0, allowed=1.0, speedup=interval)


def _key(*code: str) -> str:
    # Another Python or CPU refuses what was made for this one.
    return str(tree_key(ROOT, [*INPUTS, *code], torch.__version__, sys.version, needed_isa(NATIVE)))


def work_folder(name: str, *code: str) -> Path:
    """A folder outside the checkout for what a benchmark keeps between runs; another one when its own `code` has changed."""
    key = _key(*(f"benchmarks/{each}" for each in code))
    folder = cache_root() / "benchmarks" / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def artifact(architecture: Architecture) -> Artifact:
    """The artifact of this architecture, Kept whatever its speed; made when it is not there. SystemExit when it is not hot."""
    ready, beside = prepared(replace(architecture, min_speedup="0"))
    ready = replace(ready, environment={**architecture.environment, **ready.environment})
    sites = (beside, packages(ROOT / "requirements" / "peers.txt"))
    folder = cache_root() / "benchmarks" / f"artifact-{architecture.name}-{_key()}"
    done = folder / "target.json"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"{architecture.name}: compiling it as its Job would", flush=True)
        job = compile_architecture(ready, folder, ":".join(map(str, sites)))
        target = job.target
        if (target["verdict"], target["tier"]) != ("Kept", "package"):
            raise SystemExit(f"{architecture.name}: {target['verdict']} {target['tier']}: {target['message']}")
        job.pod(folder)
        done.write_text(json.dumps(target))
    app = folder / "app"
    target = json.loads(done.read_text())
    return Artifact(architecture=ready, pod=folder / "pod", app=app, target=target, python_path=(app, *sites))
