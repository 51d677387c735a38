"""What waits for a GPU is run on the CPU as far as that goes: nobody can afford to mend it once a GPU is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(1800)]

TESTS = Path(__file__).parents[2]

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "CUDA_VISIBLE_DEVICES")}
    return subprocess.run(
        [sys.executable, *command], env={**given, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True, text=True, timeout=1700,
    )  # fmt: skip


def numbers(facts: Any, name: str) -> list[float]:
    """All values under this name, however deep."""
    if not isinstance(facts, dict):
        return []
    found = [float(facts[name])] if name in facts else []
    return found + [each for value in facts.values() for each in numbers(value, name)]


def test_every_experiment_that_needs_no_gpu_answers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = run([
        str(TESTS / "gpu" / "spike.py"), "--device", "cpu", "--out", str(out), "--limit", "1500", "--pairs", "1",
        "--lanes", "1",
    ])  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = {each["experiment"]: each for each in json.loads((out / "cuda.json").read_text())["records"]}
    skipped = {name for name, each in records.items() if each["error"] == "it needs a CUDA device"}
    assert skipped == {"streams", "another-device", "device-by-uuid", "triton-operator", "graphs"}
    # The C interface is given nothing to call an operator written in Python with; that it fails is the answer.
    unwell = {name: each["error"] for name, each in records.items() if each["status"] != "ok" and name not in skipped}
    assert set(unwell) <= {"python-operator-c"}, unwell
    for name in ("build-cnn", "build-block"):
        facts = records[name]["facts"]["cInterface"]
        assert facts["weightsNotAmongThem"] == []
        assert max(facts["error"], facts["errorAfterOtherWeights"]) < 1e-3
    for name in ("caches-cnn", "caches-block", "autotune", "first-answers"):
        assert max(numbers(records[name]["facts"], "difference")) < 1e-3
    assert records["caches-block"]["facts"]["copied elsewhere"]["compilerRuns"] == {}


def test_the_acceptance_suite_can_be_run(tmp_path: Path) -> None:
    suite = TESTS / "gpu"
    done = run(
        ["-m", "pytest", "-c", str(suite / "pytest.ini"), str(suite), "--basetemp", str(tmp_path / "base"), "-q"],
        PREHEAT_GPU_TESTS="cpu",
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "6 passed" in done.stdout
