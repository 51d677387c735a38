"""A store in a folder, and the command line as people call it."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from preheat_operator.cli.main import main
from preheat_operator.cli.stores import StoreLocation
from store.kit import artifact, target, write_out
from store.local import Out, here, published
from unit.plan.simulation import spec

ROOT = Path(__file__).resolve().parents[3]


def document(*, hardware: tuple[str, ...] = ("cpu",), **more: Any) -> dict[str, Any]:
    body = spec(hardware=hardware, **more)
    del body["workloadRef"]
    return {"apiVersion": "preheat.dev/v1alpha1", "kind": "CompiledModel", "metadata": {"name": "vision"}, "spec": body}


@dataclass
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Place:
    """A folder with a store in it, where the command is called, with nothing of this process's AWS or Preheat."""

    folder: Path
    capture: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    @property
    def store(self) -> StoreLocation:
        return StoreLocation.parse(str(self.folder / "store"), tenant="local.default")

    def publish(self, **more: Any) -> str:
        self.folder.joinpath("work").mkdir(exist_ok=True)
        return published(self.folder / "work", *self.store.open(writing=True), **more)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PREHEAT_"))}
        path = f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}"
        return inherited | {"PYTHONPATH": path, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def preheat(self, *words: str, stdin: str = "", **env: str) -> Ended:
        """Call the command, in this process."""
        with self.monkeypatch.context() as patch:
            patch.chdir(self.folder)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
            for name in [name for name in os.environ if name.startswith(("AWS_", "PREHEAT_"))]:
                patch.delenv(name)
            for name, value in {**self.environment, **env}.items():
                patch.setenv(name, value)
            self.capture.readouterr()
            try:
                code = main(words)
            except SystemExit as end:
                code = int(end.code or 0)
        said = self.capture.readouterr()
        return Ended(code, said.out, said.err)

    def process(self, *words: str, **env: str) -> Ended:
        """Call the command in a process of its own, which `run` needs: it becomes another program."""
        done = subprocess.run(
            [sys.executable, "-m", "preheat_operator.cli", *words], cwd=self.folder, env={**self.environment, **env},
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def place(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, capfd, monkeypatch)


@pytest.fixture
def finished(place: Place) -> str:
    """A Python that leaves what a compile left before, since no torch is here: one target kept, one failed."""
    targets = [target(bucket="one", fingerprint=here()), target(bucket="two", verdict="Failed", reason="InputsRefused",
               message="the model refused\nthem", tier=None, fingerprint=None, requestKey=None, figures={}, files=[])]  # fmt: skip
    made = place.folder / "made"
    files = {path.replace("main/batch", "main/one"): data for path, data in artifact(b"code" * 1000).items()}
    write_out(Out(made), files, targets)  # type: ignore[arg-type]
    python = place.folder / "python"
    python.write_text(f'#!/bin/sh\nexec cp -r {made}/out/. "$5/"\n')
    python.chmod(0o755)
    (place.folder / "cm.yaml").write_text(yaml.safe_dump(document(buckets=("one", "two"))))
    return str(python)
