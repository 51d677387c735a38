"""A model whose weights are most of the memory: at no time are they there twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.memory import status_bytes
from unit.compiler.jobs import bucket, compile_job, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    # What compiling took, up to half a gigabyte by the machine, is partly still there; a second copy would be more than that.
    assert seen["proved"] < seen["built"] + 1.4 * seen["size"], seen
    assert seen["built"] + 1.4 * seen["size"] < seen["before"] + 2 * seen["size"], seen


MODEL = """
import pathlib
import torch
from torch import nn
from preheat_compiler import accuracy

# A copy in float64 is compared where there is room for it; here is none.
accuracy.free_memory = lambda device: 0.0

class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(160_000, 2048, device="meta")
        self.out = nn.Linear(2048, 8)

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))

class Broken(Large):
    def forward(self, tokens):
        found = self.table(tokens).mean(1)
        print("a graph that is cut has no package, but caches")
        return self.out(found)

def load(kind=Large):
    torch.manual_seed(0)
    net = kind().eval()
    weights = torch.load(pathlib.Path(__file__).parent.parent / "weights.pt", mmap=True, weights_only=True)
    net.table.weight = nn.Parameter(weights["table"], requires_grad=False)
    return net

def broken():
    return load(Broken)
"""


@pytest.mark.parametrize(("factory", "tier"), [("model:load", "package"), ("model:broken", "caches")])
def test_nor_anywhere_in_a_compile_job(tmp_path: Path, factory: str, tier: str) -> None:
    import torch

    table = torch.randn(160_000, 2048)
    torch.save({"table": table}, tmp_path / "weights.pt")
    size = table.nbytes
    del table
    tokens = tensor(4, 16, dtype="int64")
    tokens["tensor"] |= {"low": "0", "high": "160000"}
    modules = {"name": "main", "path": "", "buckets": [bucket("one", tokens)]}
    with anonymous_memory() as seen:
        job = compile_job(tmp_path, MODEL, factory, modules, keepIf={"minSpeedup": "0"})
    assert job.code == 0, job.said
    target = job.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", tier), target["message"]
    # All processes of the Job together; files that are mapped are not counted. What torch itself takes is not the weights'.
    least = 0.5 if tier == "package" else 0  # the proof with other weights makes them the process's own
    assert least * size < max(seen) < size + 1.5e9, (size, max(seen))


WATCHED = """
import pathlib, sys, weakref
import torch
from torch import nn

MADE = []
SEEN = pathlib.Path(__file__).parent / "starts"

def note(event, args):
    if event == "subprocess.Popen" and (role := {"caches", "fresh", "eager"} & set(map(str, args[1]))):
        left = sorted({type(there).__name__ for each in MADE if (there := each()) is not None})
        with SEEN.open("a") as file:
            print(*role, *left, file=file)

sys.addaudithook(note)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        return self.inner(x).relu()

class Broken(Net):
    def forward(self, x):
        x = self.inner(x)
        print("a graph that is cut has no package, but caches")
        return x.relu()

def load(kind=Net):
    torch.manual_seed(0)
    net = kind()
    MADE.extend(map(weakref.ref, [net, *net.modules(), *net.parameters()]))
    return net

def broken():
    return load(Broken)
"""


@pytest.mark.parametrize(
    ("factory", "tier", "starts"),
    [
        ("model:load", "package", ["fresh", "eager", "fresh", "eager"]),
        ("model:broken", "caches", ["caches", "fresh", "eager", "fresh", "eager"]),
    ],
)
def test_nothing_is_left_of_the_model_when_another_process_is_to_load_it(
    tmp_path: Path, factory: str, tier: str, starts: list[str]
) -> None:
    modules = {"name": "main", "path": "", "buckets": [bucket("one", tensor(8, 64))]}
    job = compile_job(tmp_path, WATCHED, factory, modules, keepIf={"minSpeedup": "0"})
    target = job.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", tier), target["message"]
    assert (job.app / "starts").read_text().splitlines() == starts


@contextmanager
def anonymous_memory() -> Iterator[list[int]]:
    """What this process's descendants need together beside files that they map, in bytes, five times a second."""
    seen, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            children = descendants(os.getpid())
            seen.append(sum(status_bytes(Path(f"/proc/{pid}"), "RssAnon") or 0 for pid in children))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


def descendants(pid: int) -> set[int]:
    """All processes below this one, as far as they are still there."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = place.read_text(errors="replace")
            parents[int(place.parent.name)] = int(words.rpartition(") ")[2].split()[1])
    found, more = {pid}, {pid}
    while more := {child for child, parent in parents.items() if parent in more}:
        found |= more
    return found - {pid}
