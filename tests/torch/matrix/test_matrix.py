"""Real architectures through the real compile driver: each ends as it must, for the right reason, with right numbers.

What is quick gates, one of each way to be served and one that Fails; `make soak` runs all. What is promised of each is in
`architectures.table`; how far a served answer is from eager's is computed here by other code than the driver's
(`architectures.answer`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import kept
from architectures.check import MAX_ERROR, faults
from architectures.job import HERE, compile_architecture, compiled, prepared
from architectures.table import ARCHITECTURES, Architecture

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.matrix, pytest.mark.timeout(1800)]

#: What an outcome comes from, beside what it is called with and the packages of its image.
INPUTS = ("compiler_job", "tests/architectures", "examples/pitch/model.py")


def _parameter(each: Architecture) -> pytest.ParameterSet:
    return pytest.param(each, id=each.name, marks=() if each.gates else pytest.mark.soak)


@pytest.mark.parametrize("architecture", [_parameter(each) for each in ARCHITECTURES])
def test_it_ends_as_it_must_with_right_numbers(architecture: Architecture, tmp_path: Path) -> None:
    ready, packages = prepared(architecture)
    folder = tmp_path / "job"
    said = kept.made(
        folder, lambda place: compile_architecture(ready, place, packages).said, "architecture", repr(ready), str(packages),
        inputs=INPUTS,
    )  # fmt: skip
    job = compiled(ready, folder, said)
    served = job.serve(tmp_path / "served", packages) if job.target["tier"] else None
    assert faults(job, served) == [], job.said[-3000:]


FORGETFUL = """
import torch
made = []

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(256, 4)

    def forward(self, x):
        return {"first": x.sum(), "rest": [self.inner(x)]}

def load():
    torch.manual_seed(0)
    net = Net().eval()
    made.append(net)
    if len(made) == 2:
        net.inner.bias.data[3] += OFF
    return net
"""


@pytest.mark.parametrize(("off", "low", "high"), [("0.0", 0.0, 0.0), ("0.01", MAX_ERROR, 0.1)])
def test_one_wrong_number_of_a_served_answer_is_seen(off: str, low: float, high: float, tmp_path: Path) -> None:
    (tmp_path / "forgetful.py").write_text(FORGETFUL.replace("OFF", off))
    row = {"tensor": {"shape": [8, 256], "dtype": "float32"}}
    words = ["forgetful:load", "", json.dumps({"args": [row], "kwargs": []}), "[{}]"]
    done = subprocess.run(
        [sys.executable, "-m", "architectures.answer", *words], cwd=tmp_path, check=True, capture_output=True, text=True,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(HERE.parent)},
    )  # fmt: skip
    (error,) = json.loads(done.stdout)["errors"]
    assert low <= error <= high
