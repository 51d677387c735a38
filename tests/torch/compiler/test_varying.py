"""A range that is served from compiler caches: warm with whatever size a pod begins, and nothing is compiled at any size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.compiler.jobs import Job, bucket, compile_job, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = """
import torch
from torch import nn

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x, y):
        h = torch.relu(self.first(x))
        if h.sum() > 1e9:
            h = h - 1
        return self.second(h).softmax(-1) + y.mean(1, keepdim=True)

def load():
    return Branching()
"""
CALLS = """
import torch, model
from torch._dynamo.utils import counters
net = model.load().eval()
fast = torch.compile(net)
with torch.no_grad():
    for batch, length in {sizes}:
        x, y = torch.randn(batch, length, 16), torch.randn(batch, length, 16)
        torch.testing.assert_close(fast(x, y), net(x, y), rtol=1e-4, atol=1e-5)
assert (counters["inductor"]["fxgraph_cache_miss"], counters["inductor"]["fxgraph_cache_hit"] > 0) == (0, True), counters
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    dims = [{"name": "b", "min": 2, "max": 4, "multipleOf": 1}, {"name": "n", "min": 8, "max": 64, "multipleOf": 8}]
    ranged = bucket("ranged", tensor("b", "n", 16), tensor("b", "n", 16), dims=dims)
    return compile_job(
        tmp_path_factory.mktemp("varying"), MODEL, "model:load", {"name": "main", "path": "", "buckets": [ranged]},
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip


def test_its_job_keeps_it_and_has_seen_another_size_come_first(job: Job) -> None:
    target = job.target("main", "ranged")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    assert "Pods are warm where" not in target["message"]
    proofs = job.report("main", "ranged")["proofs"]
    assert [[line["outcome"] for line in proof["said"]] for proof in proofs] == [["warm"]] * len(proofs)
    assert {proof["name"] for proof in proofs} == {"fresh process", "another size first"}
    (graphs,) = job.report("main", "ranged")["graphs"]
    assert graphs["graphs"] == 2


@pytest.mark.parametrize(
    "sizes", [[(2, 8), (4, 64), (3, 16)], [(4, 40), (2, 24), (3, 32)]], ids=["an end", "in between"]
)
def test_a_pod_that_begins_with_another_size_compiles_nothing(
    job: Job, tmp_path: Path, sizes: list[tuple[int, int]]
) -> None:
    said = serve(job, "main", "ranged", CALLS.format(sizes=sizes), tmp_path)
    assert [line["outcome"] for line in said] == ["warm"], said
