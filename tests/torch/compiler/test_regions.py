"""Regions: equal blocks compiled once, through the real driver and into a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from preheat_runtime.package import Target
from unit.compiler.documented import undocumented
from unit.compiler.jobs import Job, bucket, compile_job, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = '''
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, scale=1.0, place=0):
        super().__init__()
        self.place = place  # as `layer_idx` in many models: other for each, and not read
        self.norm = nn.LayerNorm(32)
        self.into, self.out = nn.Linear(32, 64), nn.Linear(64, 32)
        self.scale = scale

    def forward(self, x, *, mask):
        return x + self.out(torch.nn.functional.gelu(self.into(self.norm(x)))) * mask.unsqueeze(-1) * self.scale

class Net(nn.Module):
    """The loop around the blocks is the user's own Python, which no export would take: it branches on content."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Linear(8, 32)
        self.blocks = nn.ModuleList([Block(place=i) for i in range(4)] + [Block(scale=0.5)])
        self.seen = []

    def forward(self, x, mask):
        y = self.embed(x)
        for block in self.blocks:
            y = block(y, mask=mask)
        if y.isnan().any():
            raise KeyError("the user's own")
        return y

class Uneven(nn.Module):
    """Calls its one block with two shapes, of which code for the first cannot answer the second."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block()])

    def forward(self, x):
        ones = torch.ones(x.shape[:1])
        return self.blocks[0](self.blocks[0](x, mask=ones)[:2], mask=ones[:2])

def load():
    return Net()

class Parts:
    def __init__(self):
        self.net, self.uneven = Net(), Uneven()

def load_parts():
    return Parts()
'''
RANGE = [{"name": "n", "min": 2, "max": 12}]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    one = bucket("range", tensor("n", 8), tensor("n"), dims=RANGE)
    return compile_job(
        tmp_path_factory.mktemp("regions"), MODEL, "model:load_parts",
        {"name": "net", "path": "net", "regions": ["blocks.*"], "buckets": [one]},
        {"name": "typo", "path": "net.embed", "regions": ["block.*"], "buckets": [bucket("one", tensor(4, 8))]},
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip


def test_equal_blocks_are_compiled_once_and_others_on_their_own(job: Job) -> None:
    target = job.target("net", "range")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    content = Target.read(job.app / "out/net/range/target.json")
    assert content.package is None
    assert [region.paths for region in content.regions] == [tuple(f"blocks.{i}" for i in range(4)), ("blocks.4",)]
    assert target["files"] == ["bytecode.zip", "region-0.so", "region-1.so", "report.json", "target.json"]
    assert [each["paths"] for each in job.report("net", "range")["regions"]] == [
        list(region.paths) for region in content.regions
    ]


def test_all_that_reports_hold_is_documented(job: Job) -> None:
    assert undocumented(job) == []


def test_a_pattern_that_means_nothing_says_what_there_is(job: Job) -> None:
    target = job.target("typo", "one")
    assert (target["verdict"], target["reason"]) == ("Failed", "ModuleNotFound")
    assert "no submodule is 'block.*'" in target["message"]


SCRIPT = """
import copy, pickle, sys, torch, model
net = model.load().eval()
other = model.load().eval()
fast = torch.compile(net)
def same(n):
    x, mask = torch.randn(n, 8), torch.rand(n)
    torch.testing.assert_close(fast(x, mask), other(x, mask))
    torch.testing.assert_close(net(x, mask), other(x, mask))
with torch.no_grad():
    {body}
assert "torch._inductor.compile_fx" not in sys.modules
"""


def served(job: Job, body: str, folder: Path) -> set[tuple[str, str]]:
    said = serve(job, "net", "range", SCRIPT.format(body=body.strip().replace("\n", "\n    ")), folder)
    return {(line["outcome"], line["reason"]) for line in said}


def test_a_pod_is_served_hot_at_every_size(job: Job, tmp_path: Path) -> None:
    assert served(job, "for n in range(2, 13): same(n)", tmp_path) == {("hot", "package")}


def test_blocks_have_each_their_own_weights_also_after_they_changed(job: Job, tmp_path: Path) -> None:
    body = """
same(3)
for module in (net, other):
    torch.manual_seed(9)
    with torch.no_grad():
        module.blocks[1].into.weight = torch.nn.Parameter(torch.randn(64, 32))
        module.blocks[2].out.bias.data = torch.randn(32)
        module.blocks[3].norm.weight.mul_(3)
    torch.manual_seed(10)
same(3)
"""
    assert served(job, body, tmp_path) == {("hot", "package")}


def test_copies_and_pickles_of_the_module_go_on_alone(job: Job, tmp_path: Path) -> None:
    body = """
same(3)
x, mask = torch.randn(3, 8), torch.rand(3)
for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
    assert not any(block.__dict__.get("_compiled_call_impl") for block in twin.modules())
    torch.testing.assert_close(twin(x, mask), other(x, mask))
"""
    assert served(job, body, tmp_path) == {("hot", "package")}


def test_what_the_module_itself_raises_is_raised_and_torch_is_not_asked(job: Job, tmp_path: Path) -> None:
    body = """
same(3)
try:
    fast(torch.full((3, 8), float("nan")), torch.rand(3))
except KeyError as error:
    assert error.args == ("the user's own",) and error.__cause__ is None and error.__context__ is None
else:
    raise SystemExit("nothing was raised")
same(4)
"""
    assert served(job, body, tmp_path) == {("hot", "package")}


def test_a_region_whose_code_fails_runs_as_it_is(job: Job, tmp_path: Path) -> None:
    body = """
from preheat_runtime import bind, native
run, failed = bind.BoundCode.run, []
def break_once(self, tensors):
    if not failed:
        failed.append(self)
        raise native.NativeError("made up")
    return run(self, tensors)
bind.BoundCode.run = break_once
same(3)
same(4)
assert len(failed) == 1
"""
    said = served(job, body, tmp_path)
    assert [outcome for outcome, _ in said] == ["hot"]
    ((_, reason),) = said
    assert reason == "package, but not of region blocks.0: NativeError: made up"


WRONG = """
from preheat_runtime import native
bind = native.Library.bind
def others(self, tensors):
    # Other weights than it says that it has.
    bind(self, {name: each.detach() * 1.5 for name, each in tensors.items()})
    self.has, self._bound = self._bound, [tensors[name].detach() for name in self.constants]
native.Library.bind = others
same(3)
same(4)
"""


def test_what_wrong_regions_make_of_the_whole_answer_is_compared(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREHEAT_SERVING", "verify=Before")
    said = serve(job, "net", "range", SCRIPT.format(body=WRONG.strip().replace("\n", "\n    ")), tmp_path)
    assert [(line["event"], line.get("outcome")) for line in said] == [("preheat-mismatch", None), ("preheat", "eager")]
    assert float(said[0]["error"]) > float(said[0]["allowed"]) == 1e-3


def test_weights_of_regions_that_change_meanwhile_make_the_check_void(job: Job, tmp_path: Path) -> None:
    body = """
import threading
from preheat_runtime import examine
held, real, runs = threading.Event(), examine.run, []
def run(module, *more):
    held.wait(60)
    runs.append(module)
    return real(module, *more)
examine.run = run
x, mask = torch.randn(3, 8), torch.rand(3)
fast(x, mask)
for module in (net, other):
    module.blocks[1].into.weight.data.mul_(2)  # torch does not count it
held.set()
for thread in threading.enumerate():
    if thread.name == "preheat-check":
        thread.join()
assert len(runs) == 2 and not any(module is net for module in runs)
same(4)
"""
    assert served(job, body, tmp_path) == {("hot", "package")}


@pytest.mark.soak
def test_a_region_that_is_called_in_another_way_is_not_packaged(tmp_path: Path) -> None:
    uneven = compile_job(
        tmp_path, MODEL, "model:load_parts",
        {"name": "u", "path": "uneven", "regions": ["blocks.*"], "buckets": [bucket("one", tensor(4, 32))]},
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip
    target = uneven.target("u", "one")
    assert target["tier"] == "caches", target["message"]
    assert (
        "the region blocks.0 is also called otherwise than at first: argument x: has shape (2, 32)" in target["message"]
    )
