"""New weights, through the real driver: what an earlier revision has is checked with them, and not compiled again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from unit.compiler.jobs import Job, bucket, compile_job, former, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

# That new weights are carried over, and served hot, gates in tests/e2e/test_weights.py.
pytestmark = [pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(900)]

MODEL = """
import os
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        torch.manual_seed(int(os.environ["WEIGHTS"]))
        self.first, self.last = nn.Linear(16, width), nn.Linear(width, 4)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.first(x)))

class Branching(Net):
    def forward(self, x):
        if x.sum() > 0:
            return self.last(torch.relu(self.first(x)))
        return self.last(torch.sigmoid(self.first(x)))

def load():
    return Net(int(os.environ.get("WIDTH", "64"))).eval()

def branching():
    return Branching().eval()
"""
MODULES = [{"name": "main", "path": "", "buckets": [bucket("one", tensor(2, 16))]}]
ASK = """
import torch, model
net = model.load()
x = torch.linspace(0, 1, 32).reshape(2, 16)
with torch.no_grad():
    assert torch.allclose(torch.compile(net)(x), net(x), atol=1e-4)
"""
# No compiler is to be found: whoever tries to build ends with CompilerMissing.
NO_COMPILER = {"CXX": "/nonexistent/g++"}


def job(
    folder: Path, factory: str = "model:load", base: Path | None = None, modules: list[dict[str, Any]] = MODULES
) -> Job:
    return compile_job(folder, MODEL, factory, *modules, keepIf={"minSpeedup": "0"}, base=base)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIGHTS", "1")
        return job(tmp_path_factory.mktemp("carried-over") / "first")


def files(job: Job) -> dict[str, bytes]:
    root = job.app / "out" / "main" / "one"
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "report.json"
    }


def test_a_package_is_checked_with_the_new_weights_and_is_the_same_to_the_byte(
    first: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert first.target("main", "one")["tier"] == "package", first.said
    base = former(first, "main", "one", tmp_path / "base")
    monkeypatch.setenv("WEIGHTS", "2")
    with monkeypatch.context() as without:
        for name, value in NO_COMPILER.items():
            without.setenv(name, value)
        second = job(tmp_path / "second", base=base)
    target = second.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), second.said
    assert target["message"].startswith("carried over from the revision before, not compiled again: ")
    assert {"speedup", "maxError", "firstAnswerSeconds", "sizeBytes"} <= target["figures"].keys()
    assert "compileSeconds" not in target["figures"]
    assert files(second) == files(first)
    report = second.report("main", "one")
    assert not report.get("compile")
    assert report["proofs"], "fresh processes were served"
    (line, *_) = serve(second, "main", "one", ASK, tmp_path)
    assert line["outcome"] == "hot", "a pod with the new weights"


def test_a_module_that_is_another_one_is_compiled_as_if_there_had_been_nothing(
    first: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = former(first, "main", "one", tmp_path / "base")
    monkeypatch.setenv("WEIGHTS", "2")
    monkeypatch.setenv("WIDTH", "96")
    third = job(tmp_path / "third", base=base)
    target = third.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), third.said
    assert not target["message"].startswith("carried over")
    (fallback,) = third.report("main", "one")["fallbacks"]
    assert fallback["tier"] == "carried over"
    assert "the module is another one" in fallback["why"]


def test_of_a_model_that_got_a_bucket_the_new_one_alone_is_built(
    first: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGHTS", "1")
    base = former(first, "main", "one", tmp_path / "base")
    buckets = [bucket("one", tensor(2, 16)), bucket("two", tensor(5, 16))]
    second = job(tmp_path / "second", base=base, modules=[{"name": "main", "path": "", "buckets": buckets}])
    old, new = (second.target("main", name) for name in ("one", "two"))
    assert (old["verdict"], new["verdict"]) == ("Kept", "Kept"), second.said
    assert old["message"].startswith("carried over")
    assert not new["message"].startswith("carried over")
    assert "compileSeconds" in new["figures"]
    assert files(second) == files(first)


def test_a_damaged_package_is_built_anew(first: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHTS", "1")
    base = former(first, "main", "one", tmp_path / "base")
    library = next(base.rglob("model.so"))
    library.unlink()
    library.write_bytes(b"no library")
    second = job(tmp_path / "second", base=base)
    target = second.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), second.said
    assert "nothing is carried over: it did not stand the check" in second.said
    assert files(second)["model.so"] != b"no library"


def test_caches_are_checked_with_the_new_weights_and_stay_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGHTS", "1")
    first = job(tmp_path / "first", "model:branching")
    assert first.target("main", "one")["tier"] == "caches", first.said
    base = former(first, "main", "one", tmp_path / "base")
    monkeypatch.setenv("WEIGHTS", "2")
    second = job(tmp_path / "second", "model:branching", base=base)
    target = second.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), second.said
    assert target["message"].startswith("carried over"), target["message"]
    assert files(second) == files(first)


LEAVING = """
import os, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.inner = nn.Linear(32, 8)

    def forward(self, batch):
        y = self.inner(batch["x"])
        if os.environ.get("LEAVES"):
            batch["x"] = y
        return y

def load():
    return Net()
"""


def test_one_that_was_built_before_all_was_looked_at_is_looked_at_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = {"dict": [{"key": "x", "tensor": tensor(4, 32)["tensor"]}]}
    module = {"name": "main", "path": "", "buckets": [bucket("one", batch)]}
    first = compile_job(tmp_path / "first", LEAVING, "model:load", module, keepIf={"minSpeedup": "0"})
    assert first.target("main", "one")["tier"] == "package", first.said
    base = former(first, "main", "one", tmp_path / "base")
    # What is read inside `forward` is no part of what a module is known by: to the Job it is the same one.
    monkeypatch.setenv("LEAVES", "1")
    second = compile_job(tmp_path / "second", LEAVING, "model:load", module, base=base, keepIf={"minSpeedup": "0"})
    target = second.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), second.said
    carried, built = second.report("main", "one")["fallbacks"]
    assert carried["tier"] == "carried over"
    assert "it did not stand the check: SideEffect: forward puts another ['x'] into" in carried["why"]
    assert "SideEffect: forward puts another ['x'] into" in built["why"]
