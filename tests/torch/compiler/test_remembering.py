"""Modules whose own Python changes something, through the real driver: served where that is right, and never a fault of ours."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from unit.compiler.jobs import Job, bucket, compile_job, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = '''
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x):
        return x + torch.relu(self.inner(x))

class Sized(nn.Module):
    """Keeps the size of the last batch: after each run another object, of the same value."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.blocks, self.last = nn.ModuleList([Block(), Block()]), (4, 32)

    def forward(self, x):
        self.last = tuple(x.shape)
        for block in self.blocks:
            x = block(x)
        return x

class Taking(nn.Module):
    """Takes its input out of the caller's dict and puts its answer there."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.inner = nn.Linear(32, 8)

    def forward(self, batch):
        batch["y"] = self.inner(batch.pop("x"))
        return batch["y"] * 2

class Parts:
    def __init__(self):
        self.sized, self.taking = Sized(), Taking()

def load():
    return Parts()
'''


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    batch = {"dict": [{"key": "x", "tensor": tensor(4, 32)["tensor"]}]}
    return compile_job(
        tmp_path_factory.mktemp("remembering"), MODEL, "model:load",
        {"name": "sized", "path": "sized", "buckets": [bucket("one", tensor(4, 32))]},
        {"name": "regions", "path": "sized", "regions": ["blocks.*"], "buckets": [bucket("one", tensor(4, 32))]},
        {"name": "taking", "path": "taking", "buckets": [bucket("one", batch)]},
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip


def test_an_attribute_that_each_run_replaces_is_no_hindrance(job: Job, tmp_path: Path) -> None:
    target = job.target("sized", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    script = """
import torch, model
net = model.load().sized.eval()
fast, x = torch.compile(net), torch.randn(4, 32)
with torch.no_grad():
    for _ in range(3):
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)
"""
    said = serve(job, "sized", "one", script, tmp_path)
    assert [line["outcome"] for line in said] == ["hot"]


def test_regions_of_a_module_that_no_pod_would_know_again_go_on_as_caches(job: Job) -> None:
    target = job.target("regions", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    assert "the module's own Python runs, and changes the module" in target["message"]


def test_what_is_put_into_the_callers_dict_is_there_with_caches_too(job: Job, tmp_path: Path) -> None:
    target = job.target("taking", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    assert "SideEffect: forward " in target["message"]
    script = """
import json, torch, model
net = model.load().taking.eval()
fast, x = torch.compile(net), torch.randn(4, 32)
with torch.no_grad():
    batch, plain = {"x": x}, {"x": x}
    torch.testing.assert_close(fast(batch), net(plain))
    torch.testing.assert_close(batch["y"], plain["y"])
    assert list(batch) == list(plain) == ["y"], batch
"""
    said = serve(job, "taking", "one", script, tmp_path)
    assert [line["outcome"] for line in said] == ["warm"], json.dumps(said)
