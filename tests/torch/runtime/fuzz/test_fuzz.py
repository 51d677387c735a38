"""Small modules are changed and called at random after they were compiled: each answer is eager's, and nothing crashes.

It runs in a process of its own: one that dies is a failure, with the seed and the steps that led to it.
"""

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


def fuzz(tmp_path, *, steps, seconds=None, least=0):
    seed = int(os.environ.get("PREHEAT_FUZZ_SEED") or random.randrange(1 << 30))
    log = tmp_path / "steps.log"
    command = [sys.executable, str(HERE / "worker.py"), "--steps", str(steps), "--seed", str(seed), "--log", str(log)]
    if seconds is not None:
        command += ["--seconds", str(seconds), "--least", str(least)]
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'compiler_job'}:{ROOT / 'tests'}"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    taken = log.read_text() if log.exists() else "none"
    words = f"exit {done.returncode}; again with PREHEAT_FUZZ_SEED={seed}\nlast steps:\n{taken}\n{done.stderr[-6000:]}"
    assert done.returncode == 0, words
    print(f"PREHEAT_FUZZ_SEED={seed}: {done.stdout}")
    return json.loads(done.stdout)


def test_whatever_is_done_to_a_module_it_answers_as_eager_does(tmp_path):
    # What a busy machine does in a minute can be a module or two, which may both be changed before they are called.
    counts = fuzz(tmp_path, steps=1_000, seconds=60, least=300)
    assert counts["calls"] > 20
    assert counts["hot"] * 10 > counts["calls"], (
        f"hardly a call was answered by a package, so little was tested: {counts}"
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ten_thousand_steps(tmp_path):
    counts = fuzz(tmp_path, steps=10_000)
    assert counts["steps"] >= 10_000
    assert counts["kinds"] >= 30
    assert counts["models"] >= 12
    assert counts["hot"] * 10 > counts["calls"]
