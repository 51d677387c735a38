"""Tuning of kernels in a real compile: it takes place, and it ends in time.

On a CPU that is in the caches tier, for products of what is no weight: what would be tried for weights keeps them packed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.compiler.jobs import Job, bucket, compile_job, tensor

if TYPE_CHECKING:
    from pathlib import Path

# Each kernel that is tried is compiled, which takes seconds.
pytestmark = [pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(900)]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, y, z):
        a = torch.relu(torch.bmm(x, y))
        if a.sum() > 1e9:
            a = a - 1
        return torch.bmm(a, z)

def load():
    return Net()
"""


def tuned_for(seconds: int, folder: Path) -> tuple[Job, dict[str, str]]:
    products = bucket("one", tensor(4, 64, 256), tensor(4, 256, 192), tensor(4, 192, 128))
    job = compile_job(
        folder, MODEL, "model:load", {"name": "net", "path": "", "buckets": [products]},
        torch={"mode": "MaxAutotune", "autotuneTimeoutSeconds": seconds}, keepIf={"minSpeedup": "0"},
    )  # fmt: skip
    target = job.target("net", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    report = job.report("net", "one")
    fresh = [proof for proof in report["proofs"] if proof["name"] == "fresh process"]
    assert {line["outcome"] for proof in fresh for line in proof["said"]} == {"warm"}
    assert {proof["compilerRuns"] for proof in fresh} == {0}
    (tuning,) = report["tuning"]
    return job, tuning


def test_all_is_tuned_where_there_is_time(tmp_path: Path) -> None:
    job, tuning = tuned_for(800, tmp_path)
    assert int(tuning["tuned"]) >= 2
    assert tuning["untuned"] == "0"
    assert "autotuneTimeoutSeconds" not in job.said


def test_what_is_not_tuned_in_time_has_torch_s_own_kernel_and_is_kept(tmp_path: Path) -> None:
    job, tuning = tuned_for(1, tmp_path)
    # One that has begun is tuned to its end, and compiling what is tried for it takes longer than the limit.
    assert int(tuning["tuned"]) >= 1
    assert int(tuning["untuned"]) >= 1
    assert f"(1) were over: {tuning['tuned']} operations were tuned, {tuning['untuned']} have torch's own" in job.said
