"""Real models through the real driver: what a compile container does, from request.json to result.json."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from preheat_operator.report import render
from preheat_runtime.package import Target
from unit.compiler.documented import undocumented
from unit.compiler.jobs import Job, bucket, compile_job, lay_down, run_driver, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = '''
import os
import torch
from torch import nn

class Net(nn.Module):
    """Weights of the kinds that were seen baked in: a small bias, a scalar, a small norm."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 128)
        self.outer = nn.Linear(128, 8)
        self.norm = nn.BatchNorm1d(8)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x, double: bool = False):
        y = self.norm(self.outer(torch.relu(self.inner(x)))) * self.scale.exp()
        return {"classes": y.softmax(-1), "twice": y + y if double else y}

class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 64)

    def forward(self, x):
        y = self.inner(x)
        if y.sum() > 1e9:
            y = y - 1
        return torch.relu(y)

class Noisy(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)

class Greedy(nn.Module):
    def forward(self, x):
        return x + torch.empty(1 << 46)

class Crashing(nn.Module):
    def forward(self, x):
        os.abort()

class Parts:
    def __init__(self):
        torch.manual_seed(3)
        self.net, self.branching = Net(), Branching()
        self.noisy, self.greedy, self.crashing = Noisy(), Greedy(), Crashing()

def load():
    return Parts()

def load_net():
    return load().net

def load_token():
    raise OSError("cannot reach https://me:secret@weights.example/net?signature=abc with " + os.environ["HF_TOKEN"])
'''


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Good and bad targets of one request."""
    ranged = bucket(
        "ranged", tensor("n", 64), dims=[{"name": "n", "min": 1, "max": 16, "multipleOf": 1}],
        kwargs=[{"name": "double", "const": {"type": "Bool", "value": "true"}}],
    )  # fmt: skip
    return compile_job(
        tmp_path_factory.mktemp("mixed"),
        MODEL,
        "model:load",
        {"name": "net", "path": "net", "buckets": [ranged, bucket("wrong", tensor(4, 63))]},
        {"name": "noisy", "path": "noisy", "buckets": [bucket("one", tensor(4, 64))]},
        {"name": "greedy", "path": "greedy", "buckets": [bucket("one", tensor(4, 64))]},
        {"name": "crashing", "path": "crashing", "buckets": [bucket("one", tensor(4, 64))]},
        {"name": "typo", "path": "brancing", "buckets": [bucket("one", tensor(4, 64))]},
        {"name": "branching", "path": "branching", "buckets": [bucket("one", tensor(4, 64))]},
        keepIf={"minSpeedup": "0", "maxError": "0.0004"},
    )


def test_a_module_that_exports_becomes_a_proved_package(mixed: Job) -> None:
    target = mixed.target("net", "ranged")
    assert (target["verdict"], target["reason"], target["tier"]) == ("Kept", "GatesMet", "package"), mixed.said
    assert target["files"] == ["bytecode.zip", "model.so", "report.json", "target.json"]
    figures = {name: float(value) for name, value in target["figures"].items()}
    assert figures["speedupLow"] <= figures["speedup"] <= figures["speedupHigh"]
    assert figures["maxError"] <= 1e-3
    assert min(figures[name] for name in ("eagerP50Ms", "compiledP50Ms", "firstAnswerSeconds", "compileSeconds")) > 0
    assert figures["sizeBytes"] >= (mixed.app / "out/net/ranged/model.so").stat().st_size
    assert target["fingerprint"]["cpuIsa"] == "X86_64_V3"
    assert len(target["requestKey"]) == 64
    assert "of n only 2 to 16 is served; for 1 give a bucket of its own" in target["message"]


def test_the_error_that_was_allowed_is_what_pods_hold_its_answers_to(mixed: Job) -> None:
    contract = mixed.app / "out/net/ranged/target.json"
    assert json.loads(contract.read_text())["max_error"] == "0.0004"
    assert Target.read(contract).allowed_error == 4e-4  # of float32 it would be 1e-3 by default


def test_the_package_was_proved_in_every_way(mixed: Job) -> None:
    report = mixed.report("net", "ranged")
    compared = [entry["inputs"] for entry in report["errors"]]
    assert [each for each in compared if each.startswith(("typical", "high"))]
    assert "low, seed 1" in compared
    assert any("random weights" in each for each in compared)
    weights, *fresh = report["proofs"]
    assert float(weights["answerMoved"]) > 1e-2
    assert fresh
    for proof in fresh:
        assert (proof["compilerRuns"], proof["imported"]) == (0, [])
        assert {line["outcome"] for line in proof["said"]} == {"hot"}
    assert {entry["inputs"] for entry in report["speed"]} == {"low", "high"}
    assert all(int(entry["pairs"]) >= 15 for entry in report["speed"])


def test_the_report_has_every_measurement(mixed: Job) -> None:
    report = mixed.report("net", "ranged")
    for entry in report["speed"]:
        for kind in ("eager", "compiled"):
            p50, p95, p99 = (float(entry[f"{kind}P{rank}Ms"]) for rank in (50, 95, 99))
            assert 0 < p50 <= p95 <= p99
            assert float(entry[f"{kind}CallsPerSecond"]) > 0
            assert float(entry[f"{kind}Variation"]) >= 0
            assert len(entry[f"{kind}QuantilesMs"]) == 101
            assert entry[f"{kind}Calls"] == entry["pairs"] * entry["callsPerSample"]
    stages = {entry["stage"]: float(entry["seconds"]) for entry in report["compile"]}
    assert set(stages) == {"trace", "lowering", "compiler", "other"}
    assert min(stages.values()) > 0
    assert sum(stages.values()) == pytest.approx(float(report["figures"]["compileSeconds"]), rel=0.05)
    eager, compiled = report["memory"]
    assert (eager["kind"], compiled["kind"]) == ("eager", "compiled")
    for entry in (eager, compiled):
        # Importing torch alone takes more than this.
        assert int(entry["peakBytes"]) > 100 * 2**20
        assert int(entry["growthBytes"]) == int(entry["peakBytes"]) - int(entry["beforeBytes"]) >= 0
    assert report["figures"]["compiledPeakBytes"] == compiled["peakBytes"]
    reference = [entry for entry in report["reference"] if entry["kind"] == "compiled"]
    assert {entry["inputs"].partition(",")[0] for entry in reference} == {"typical", "low", "high"}
    assert max(float(entry["maximum"]) for entry in reference) < 1e-3
    by_submodule, by_operator = report["submodules"]
    assert {entry["name"] for entry in by_submodule["entries"]} == {"(the module itself)", "inner", "outer", "norm"}
    assert float(by_operator["callMs"]) > 0
    assert {entry["nonFiniteApart"] for entry in report["errors"]} == {"0"}


def test_fresh_processes_lived_as_in_a_strict_pod(mixed: Job) -> None:
    for bucket_name in (("net", "ranged"), ("branching", "one")):
        fresh = [proof for proof in mixed.report(*bucket_name)["proofs"] if proof["name"] == "fresh process"]
        for proof in fresh:
            assert proof["conditions"]["emptyHome"]
            assert proof["conditions"]["noCompiler"] == (bucket_name[0] == "net")
            # Where this machine allows it: the tests' own is run as root with all rights.
            assert proof["conditions"]["nonRoot"], proof["conditions"]
            assert proof["conditions"]["readOnlyFileSystem"] == _may_mount(), proof["conditions"]


def _may_mount() -> bool:
    return subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode == 0


def test_all_that_reports_hold_is_documented(mixed: Job) -> None:
    assert undocumented(mixed) == []


def test_the_report_makes_a_page(mixed: Job) -> None:
    for module, bucket_name in (("net", "ranged"), ("branching", "one"), ("crashing", "one"), ("typo", "one")):
        files = render((mixed.app / "out" / module / bucket_name / "report.json").read_bytes())
        assert mixed.target(module, bucket_name)["reason"].encode() in files["report.html"]
    assert b'data-plot="submodules"' in render((mixed.app / "out/net/ranged/report.json").read_bytes())["report.html"]


def test_no_weight_is_in_the_package(mixed: Job) -> None:
    content = json.loads((mixed.app / "out/net/ranged/target.json").read_text())
    assert Target.read(mixed.app / "out/net/ranged/target.json").package is not None
    bound = {path for _, path in content["package"]["constants"]}
    assert bound == {
        "inner.weight", "inner.bias", "outer.weight", "outer.bias", "scale",
        "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("module", "bucket_name", "reason", "says"),
    [
        ("net", "wrong", "InputsRefused", ["'wrong'", "model.py:", "shape"]),
        ("noisy", "one", "Nondeterministic", ["dropout"]),
        ("greedy", "one", "OutOfMemory", ["memory limit", "model.py:"]),
        ("crashing", "one", "CompileFailed", ["SIGABRT", "running eager"]),
        ("typo", "one", "ModuleNotFound", ["did you mean branching"]),
    ],
)
def test_a_bad_target_fails_alone_and_says_why(
    mixed: Job, module: str, bucket_name: str, reason: str, says: list[str]
) -> None:
    target = mixed.target(module, bucket_name)
    assert mixed.code == 0
    assert (target["verdict"], target["reason"]) == ("Failed", reason), target["message"]
    assert all(each in target["message"] for each in says), target["message"]
    assert target["files"] == ["report.json"]
    assert mixed.report(module, bucket_name)["reason"] == reason


def test_what_does_not_export_is_kept_as_caches_and_proved_warm(mixed: Job) -> None:
    target = mixed.target("branching", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"]
    assert "not as a package" in target["message"]
    assert "model.py:" in target["message"]
    assert float(target["figures"]["firstAnswerSeconds"]) > 0
    assert {"target.json", "report.json"} < set(target["files"])
    assert any(file.startswith("caches/") for file in target["files"])
    report = mixed.report("branching", "one")
    fresh = [proof for proof in report["proofs"] if proof["name"] == "fresh process"]
    assert fresh
    assert all(proof["compilerRuns"] == 0 for proof in fresh)
    assert {line["outcome"] for proof in fresh for line in proof["said"]} == {"warm"}


def test_only_what_is_listed_is_left_behind(mixed: Job) -> None:
    out = mixed.app / "out"
    listed = {f"{each['directory']}/{file}" for each in mixed.result()["targets"] for file in each["files"]}
    left = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {path for path in left if not path.startswith(".results/")} == listed | {"result.json"}


def test_a_pod_is_served_hot_at_every_size_of_the_range(mixed: Job, tmp_path: Path) -> None:
    served = Target.read(mixed.app / "out/net/ranged/target.json").call.dim["n"]
    script = (
        "import torch, model\n"
        "net = model.load_net().eval()\n"
        "fast = torch.compile(net)\n"
        "with torch.no_grad():\n"
        f"    for n in range({served.minimum}, {served.maximum} + 1):\n"
        "        x = torch.randn(n, 64)\n"
        "        torch.testing.assert_close(fast(x, double=True), net(x, double=True))\n"
    )
    assert {line["outcome"] for line in serve(mixed, "net", "ranged", script, tmp_path)} == {"hot"}


def test_a_restarted_container_goes_on_where_it_was(tmp_path: Path) -> None:
    """Not of a kept job: its code lay elsewhere, so its verdicts would be of code that is not there any more."""
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64)), bucket("wrong", tensor(4, 63))]}
    toolkit = lay_down(tmp_path, MODEL, "model:load_net", net, keepIf={"minSpeedup": "0"})
    job = Job(tmp_path, *run_driver(toolkit, tmp_path / "app"))
    before = job.result()
    verdicts = {each["bucket"]: each["verdict"] for each in before["targets"]}
    assert verdicts == {"one": "Kept", "wrong": "Failed"}, job.said
    (job.app / "out" / "result.json").unlink()
    code, said = run_driver(toolkit, job.app)
    assert code == 0
    assert "loading the model" in job.said
    assert "loading the model" not in said
    assert job.result() == before


def test_too_far_from_eager_is_rejected_with_the_figures(tmp_path: Path) -> None:
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64))]}
    job = compile_job(tmp_path, MODEL, "model:load_net", net, keepIf={"minSpeedup": "0", "maxError": "0.000000000001"})
    target = job.target("net", "one")
    assert (target["verdict"], target["reason"], target["tier"]) == ("Rejected", "ErrorAboveMaximum", None), job.said
    assert "more than the allowed 1e-12" in target["message"]
    assert 1e-12 < float(target["figures"]["maxError"]) < 1e-3
    report = job.report("net", "one")
    assert (report["verdict"], report["reason"]) == ("Rejected", "ErrorAboveMaximum")
    assert max(float(each["maximum"]) for each in report["errors"]) > 1e-12
    # What is not right is neither timed nor proved.
    assert {"speed", "proofs", "memory"}.isdisjoint(report)
    assert target["files"] == ["bytecode.zip", "report.json", "target.json"]
    assert Target.read(job.app / "out/net/one/target.json").package is None


# The end-to-end tests have this verdict in their gate too.
@pytest.mark.soak
def test_too_slow_is_rejected_with_the_figures(tmp_path: Path) -> None:
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64))]}
    job = compile_job(tmp_path, MODEL, "model:load_net", net, keepIf={"minSpeedup": "1000"})
    target = job.target("net", "one")
    assert (target["verdict"], target["reason"], target["tier"]) == ("Rejected", "SpeedupBelowMinimum", None), job.said
    assert "keepIf.minSpeedup is 1000" in target["message"]
    assert target["files"] == ["bytecode.zip", "report.json", "target.json"]
    # A pod must know the module that it runs eager.
    assert Target.read(job.app / "out/net/one/target.json").package is None


# How it is decided gates in tests/unit/compiler/test_decide.py.
@pytest.mark.soak
def test_too_much_memory_is_rejected_with_the_figures(tmp_path: Path) -> None:
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64))]}
    job = compile_job(tmp_path, MODEL, "model:load_net", net, keepIf={"minSpeedup": "0", "maxMemoryGrowth": "0.01"})
    target = job.target("net", "one")
    assert (target["verdict"], target["reason"], target["tier"]) == ("Rejected", "MemoryAboveMaximum", None), job.said
    assert "keepIf.maxMemoryGrowth is 0.01" in target["message"]
    assert 0.1 < float(target["figures"]["memoryGrowth"]) < 10
    assert target["files"] == ["bytecode.zip", "report.json", "target.json"]
    assert Target.read(job.app / "out/net/one/target.json").package is None


def test_a_factory_that_fails_says_where_and_keeps_secrets(tmp_path: Path) -> None:
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64))]}
    job = compile_job(tmp_path, MODEL, "model:load_token", net)
    target = job.target("net", "one")
    assert (target["verdict"], target["reason"]) == ("Failed", "FactoryFailed")
    assert "weights.example/net" in target["message"]
    assert "model.py:" in target["message"]
    assert "secret" not in job.said + target["message"] + json.dumps(job.report("net", "one"))
    assert target["requestKey"] is None


def test_a_factory_that_cannot_be_imported_says_where_it_is_looked_for(tmp_path: Path) -> None:
    net = {"name": "net", "path": "", "buckets": [bucket("one", tensor(4, 64))]}
    target = compile_job(tmp_path, MODEL, "modell:load", net).target("net", "one")
    assert target["reason"] == "FactoryFailed"
    assert "No module named 'modell'" in target["message"]
    assert "working directory" in target["message"]
