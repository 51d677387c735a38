"""Small modules are changed and called at random after they were compiled: each answer is eager's, and nothing crashes.

It runs in a process of its own: one that dies is a failure, with the seed and the steps that led to it.
"""

import ast
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

HERE = Path(__file__).parent
ROOT = HERE.parents[3]


def fuzz(tmp_path, *more, steps, seconds=None, least=0):
    seed = int(os.environ.get("PREHEAT_FUZZ_SEED") or random.randrange(1 << 30))
    log = tmp_path / "steps.log"
    words = ["--steps", str(steps), "--seed", str(seed), "--log", str(log), *more]
    command = [sys.executable, str(HERE / "worker.py"), *words]
    if seconds is not None:
        command += ["--seconds", str(seconds), "--least", str(least)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'compiler_job'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    taken = log.read_text() if log.exists() else "none"
    words = f"exit {done.returncode}; again with PREHEAT_FUZZ_SEED={seed}\nlast steps:\n{taken}\n{done.stderr[-6000:]}"
    assert done.returncode == 0, words
    print(f"PREHEAT_FUZZ_SEED={seed}: {done.stdout}")
    return json.loads(done.stdout)


def enough_was_tested(counts):
    assert counts["calls"] > 100
    assert sum(counts["hot"].values()) * 10 > counts["calls"], f"hardly a call was answered by a package: {counts}"


def test_whatever_is_done_to_a_module_it_answers_as_eager_does(tmp_path):
    # A busy machine does a dozen modules in a minute, with some forty kinds of changes.
    counts = fuzz(tmp_path, steps=1_000, seconds=60, least=300)
    enough_was_tested(counts)
    assert sum(map(bool, counts["done"].values())) >= 30
    assert sum(map(bool, counts["hot"].values())) >= 4


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_steps_do_everything_to_some_module_and_call_each(tmp_path):
    counts = fuzz(tmp_path, "--all", steps=10_000)
    enough_was_tested(counts)
    assert counts["steps"] >= 10_000
    assert [kind for kind, times in counts["done"].items() if not times] == []
    assert [model for model, times in counts["hot"].items() if times < 20] == []
    assert max(counts["begun"].values()) * 5 < sum(counts["begun"].values()), f"it was mostly one module: {counts}"


def test_there_is_as_much_of_it_as_the_documents_say():
    (of_modules,) = (
        node.value.keys
        for node in ast.parse((HERE / "models.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MODELS"
    )
    ways = sum(path.read_text().count("\n@mutation\n") for path in HERE.glob("mutations_of_*.py"))
    assert (len(of_modules), ways) == (12, 70)
    assert "twelve small modules, changed in seventy ways" in (ROOT / "docs" / "testing.md").read_text()
