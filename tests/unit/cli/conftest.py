"""A store in a folder, and the command line as people call it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from preheat_operator.cli.stores import StoreLocation
from store.local import published

ROOT = Path(__file__).resolve().parents[3]


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
    """A folder with a store in it; `preheat` runs the command there, with nothing of this process's AWS or Preheat."""

    folder: Path

    @property
    def store(self) -> StoreLocation:
        return StoreLocation.parse(str(self.folder / "store"), tenant="local.default")

    def publish(self, **more: Any) -> str:
        self.folder.joinpath("work").mkdir(exist_ok=True)
        return published(self.folder / "work", *self.store.open(writing=True), **more)

    def preheat(self, *words: str, stdin: str = "", **env: str) -> Ended:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PREHEAT_"))}
        inherited |= {
            "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}",
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "preheat_operator.cli", *words], cwd=self.folder, env={**inherited, **env},
            capture_output=True, text=True, timeout=120, input=stdin,
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
