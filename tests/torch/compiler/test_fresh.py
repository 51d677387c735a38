"""The program of a fresh process: it says what it saw around it, and compares what was asked of both alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from unit.compiler import requests
from unit.compiler.jobs import bucket, tensor
from unit.compiler.toolkits import LAUNCH

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

#: It has three kernels assembled when it is loaded, and one by each call.
MODEL = """
import torch

def assemble(lines):
    with open("noted", "a") as file:
        file.write(lines)

class InPlace(torch.nn.Module):
    def forward(self, x):
        assemble("-")
        x.mul_(3)
        return x + 1

def load():
    assemble("---")
    return InPlace()
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process said of a module that writes to its input; something lies in its home."""
    folder = tmp_path_factory.mktemp("fresh")
    (folder / "model.py").write_text(MODEL)
    dims = [{"name": "n", "min": 2, "max": 8, "multipleOf": 1}]
    module = {"name": "main", "path": "", "buckets": [bucket("one", tensor("n", 16), dims=dims)]}
    raw = requests.make(
        torch={"factory": "model:load", "modules": [module]}, targets=[{"module": "main", "bucket": "one"}]
    )
    (folder / "request.json").write_text(json.dumps(raw))
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    (folder / "home" / ".profile").touch()
    words = [
        "--request",
        "request.json",
        "--module",
        "main",
        "--bucket",
        "one",
        "--sizes",
        '[{"n": 4}, {"n": 2}, {"n": 8}]',
    ]
    words += ["--compile", "yes", "--compare", "yes", "--started", "0", "--answer", "answer.json"]
    words += ["--seal", "no", "--writable", ".", "--noted", "noted"]
    # torch.compile answers with the module itself: nothing is compiled.
    environment = {
        **os.environ, "HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "TORCHDYNAMO_DISABLE": "1",
        "PREHEAT_DISABLE": "1",
    }  # fmt: skip
    command = [sys.executable, str(LAUNCH / "compile.py"), "fresh", *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=280)
    answer: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return answer


def test_a_module_that_writes_to_its_inputs_is_compared_on_inputs_of_its_own(seen: dict[str, Any]) -> None:
    assert (float(seen["maximum"]), seen["why"]) == (0.0, "")


def test_it_says_what_it_found_in_its_home_and_which_compiler_runs(seen: dict[str, Any]) -> None:
    assert (seen["notEmpty"], seen["compiler"]) == (["HOME"], "g++")


def test_it_says_which_part_of_the_notes_is_of_its_first_answers(seen: dict[str, Any]) -> None:
    assert seen["noted"] == [3, 6], "of three sizes, and neither of loading nor of comparing"
