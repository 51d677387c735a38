"""A model whose weights are most of the memory: at no time are they there twice."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(1800)]

SCRIPT = """
import json, pathlib, sys
import torch
from torch import nn
from preheat_compiler import package
from preheat_compiler.memory import reset_peak, status_bytes

class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(160_000, 2048, dtype=torch.float32, device="meta")
        self.out = nn.Linear(2048, 8)

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))

folder = pathlib.Path(sys.argv[1])
weights = folder / "weights.pt"
torch.save({"table": torch.randn(160_000, 2048)}, weights)
process = pathlib.Path("/proc/self")
net = Large().eval()
net.table.weight = nn.Parameter(torch.load(weights, mmap=True, weights_only=True)["table"], requires_grad=False)
size = net.table.weight.nbytes
tokens = torch.randint(0, 160_000, (4, 16))
warm = nn.Linear(4, 4).eval()  # what a compile takes anyway is not this model's
package.build_package(
    warm, package.ExampleCall(args=(torch.randn(2, 4),), kwargs={}), dynamic_shapes=None, out=folder / "warm", cpu_isa="X86_64_V3"
)
before = status_bytes(process, "RssAnon")
assert reset_peak(process)
example = package.ExampleCall(args=(tokens,), kwargs={})
out = folder / "out"
info = package.build_package(net, example, dynamic_shapes=None, out=out, cpu_isa="X86_64_V3")
built = status_bytes(process, "VmHWM")
with torch.no_grad():
    compiled = package.load_package(out, net)
    package.randomise_(net, 3)
    apart = float((package.load_package(out, net)(tokens) - net(tokens)).abs().max())
print(json.dumps({
    "size": size, "before": before, "built": built, "proved": status_bytes(process, "VmHWM"), "apart": apart,
    "constants": len(info.constants), "bytes": info.size_bytes,
}))
"""


def test_the_weights_are_never_in_memory_twice(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True, timeout=900
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["size"] > 1.3e9
    assert seen["constants"] == 3
    assert seen["bytes"] < 5e6
    assert seen["apart"] < 1e-3
    # Read once by the proof with other weights, they are there once; mapped, before that, hardly at all.
    assert seen["built"] < seen["before"] + 0.5 * seen["size"], seen
    assert seen["proved"] < seen["before"] + 1.4 * seen["size"], seen
