"""What Preheat does on CUDA today, end to end but for the cluster: packages are refused, caches serve, doubts go to torch.

Skipped, in words, where there is no GPU. Needs torch and pytest alone (`make gpu`). PREHEAT_GPU_TESTS=cpu rehearses on a
CPU what does not need CUDA, with a model that does not export there either, so that the suite itself is known to run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_compiler import package
from preheat_compiler.layout import lay_out
from preheat_compiler.prove import pod_environment, said_by_runtime
from preheat_compiler.request import read_request
from unit.compiler import requests, toolkits

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = os.environ.get("PREHEAT_GPU_TESTS", "cuda")
ON_CUDA = DEVICE != "cpu"

pytestmark = pytest.mark.skipif(
    ON_CUDA and not torch.cuda.is_available(),
    reason="there is no CUDA device here; run `make gpu` on a machine that has one",
)
cuda_alone = pytest.mark.skipif(not ON_CUDA, reason="a rehearsal on a CPU cannot ask this")

MODEL = """
import os
import torch
from torch import nn

DEVICE = os.environ["PREHEAT_TEST_DEVICE"]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)
        self.norm = nn.BatchNorm2d(16)
        self.outer = nn.Linear(16, 8)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x))).mean((2, 3))
        return self.outer(y).softmax(-1)

class Branching(Net):
    def forward(self, x):
        y = super().forward(x)
        if y.sum() > 1e9:
            y = y - 1
        return torch.relu(y)

def load():
    torch.manual_seed(3)
    return (Net if DEVICE.startswith("cuda") else Branching)().to(DEVICE)
"""

SERVE = """
import json, torch, model
net = model.load().eval()
torch.manual_seed(5)
x = torch.randn(4, 3, 32, 32).to(model.DEVICE)
served = torch.compile(net)
with torch.no_grad():
    answer, again, wanted = served(x), served(x), net(x)
error = max(float((each - wanted).abs().max() / wanted.abs().max()) for each in (answer, again))
print(json.dumps({"error": error, "device": answer.device.type}))
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of the compile driver and what it said."""

    app: Path
    said: str

    @property
    def target(self) -> dict[str, Any]:
        (target,) = json.loads((self.app / "out" / "result.json").read_text())["targets"]
        return dict(target)

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.app / "out" / "main" / "one" / "report.json").read_text()))

    def pod(self, folder: Path, **changes: Any) -> Path:
        """What `/opt/preheat` is in a pod; `changes` are of the fingerprint."""
        target = self.target
        return lay_out(
            folder, self.app / "out/main/one", request=read_request(self.app / "request.json"), module="main",
            bucket="one", tier=target["tier"], request_key=target["requestKey"],
            fingerprint={**target["fingerprint"], **changes},
        )  # fmt: skip


def compile_job(folder: Path, **changes: Any) -> Job:
    app = folder / "app"
    app.mkdir(parents=True)
    (app / "model.py").write_text(MODEL)
    tensor = {"tensor": {"shape": [4, 3, 32, 32], "dtype": "float32"}}
    bucket = {"name": "one", "dims": [], "args": [tensor], "kwargs": []}
    raw = requests.make(
        torch={"factory": "model:load", "modules": [{"name": "main", "path": "", "buckets": [bucket]}]},
        targets=[{"module": "main", "bucket": "one"}],
        hardware="gpu",
        timeoutSeconds=480,
        **changes,
    )
    (app / "request.json").write_text(json.dumps(raw))
    code, said = toolkits.run(toolkits.make(folder / "toolkit"), app, PREHEAT_TEST_DEVICE=DEVICE)
    assert code == 0, said
    return Job(app=app, said=said)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The model on the device, asked to be kept whatever its speed."""
    return compile_job(tmp_path_factory.mktemp("job"), keepIf={"minSpeedup": "0"})


def serve(job: Job, pod: Path, work: Path, **environment: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a fresh process of the pod answered, and what the runtime reported of it."""
    work.mkdir(parents=True)
    given = {
        **pod_environment(work, os.environ),
        "PREHEAT_DIR": str(pod),
        "PREHEAT_WORK_DIR": str(work),
        "PREHEAT_MODEL": "vision",
        "PREHEAT_TEST_DEVICE": DEVICE,
        "PYTHONPATH": f"{pod / 'site'}{os.pathsep}{job.app}",
        **environment,
    }
    done = subprocess.run([sys.executable, "-c", SERVE], env=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), said_by_runtime(work)


def test_a_model_on_the_device_is_kept_as_caches(job: Job) -> None:
    target = job.target
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), target["message"] + job.said
    assert target["reason"] in ("GatesMet", "Faster")
    assert any(file.startswith("caches/") for file in target["files"])


@cuda_alone
def test_it_is_said_why_it_is_no_package(job: Job) -> None:
    (why,) = [each["why"] for each in job.report["fallbacks"] if each["tier"] == "package"]
    assert "cuda" in why
    assert "packages are made for CPUs only" in why
    assert "packages are made for CPUs only" in job.target["message"]


def test_its_report_shows_the_proof(job: Job) -> None:
    fresh = [each for each in job.report["proofs"] if each["name"] == "fresh process"]
    assert fresh
    assert {line["outcome"] for each in fresh for line in each["said"]} == {"warm"}
    assert all(each["compilerRuns"] == 0 for each in fresh)
    assert all(float(each["maximum"]) <= 1e-3 for each in job.report["errors"])


def test_names_of_cache_files_can_all_be_stored(job: Job) -> None:
    """A name that a manifest cannot hold is left out, and a pod then compiles again what that file held."""
    assert job.report.get("caches") is None


@cuda_alone
def test_the_fingerprint_is_of_this_gpu(job: Job) -> None:
    fingerprint = job.target["fingerprint"]
    assert fingerprint["device"] == "cuda"
    assert fingerprint["gpuName"] == torch.cuda.get_device_name()
    major, minor = torch.cuda.get_device_capability()
    assert fingerprint["gpuCapability"] == f"{major}.{minor}"
    assert fingerprint["cuda"] == torch.version.cuda
    assert fingerprint["triton"]
    assert fingerprint["driver"]


def test_a_fresh_process_is_served_warm_and_right(job: Job, tmp_path: Path) -> None:
    answered, said = serve(job, job.pod(tmp_path / "pod"), tmp_path / "work")
    assert answered["device"] == DEVICE.partition(":")[0]
    assert answered["error"] <= 1e-3
    assert [line["outcome"] for line in said] == ["warm"], said


MISSES = {
    "name": ({"gpuName": "NVIDIA H900"}, "artifact has NVIDIA H900"),
    "capability": ({"gpuCapability": "99.9"}, "artifact has 99.9"),
    "cuda": ({"cuda": "99.9"}, "artifact has 99.9"),
    "triton": ({"triton": "99.9"}, "artifact has 99.9"),
    "torch": ({"torch": "2.99.0"}, "artifact has 2.99.0"),
}


@pytest.mark.parametrize(("changes", "words"), MISSES.values(), ids=MISSES.keys())
def test_another_gpu_is_refused_and_the_model_still_answers(
    job: Job, tmp_path: Path, changes: dict[str, str], words: str
) -> None:
    if not ON_CUDA and "torch" not in changes:
        pytest.skip("a rehearsal on a CPU cannot ask this")
    answered, said = serve(job, job.pod(tmp_path / "pod", **changes), tmp_path / "work")
    assert answered["error"] <= 1e-3
    assert [line["outcome"] for line in said] == ["cold"]
    assert words in said[0]["reason"]


@cuda_alone
def test_a_module_that_is_on_no_gpu_is_refused_and_the_model_still_answers(job: Job, tmp_path: Path) -> None:
    answered, said = serve(
        job, job.pod(tmp_path / "pod"), tmp_path / "work", CUDA_VISIBLE_DEVICES="", PREHEAT_TEST_DEVICE="cpu"
    )
    assert answered["error"] <= 1e-3
    assert [line["outcome"] for line in said] == ["cold"]
    assert "the module is not on a GPU" in said[0]["reason"]


@cuda_alone
def test_a_module_on_a_gpu_is_refused_as_a_package_by_name(tmp_path: Path) -> None:
    net, x = torch.nn.Linear(8, 8).eval().cuda(), torch.randn(4, 8).cuda()
    with pytest.raises(package.NotPackageable, match="packages are made for CPUs only"):
        package.build_package(
            net, package.ExampleCall(args=(x,)), dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3"
        )
    assert not list(tmp_path.iterdir())


@cuda_alone
def test_a_package_for_the_cpu_is_not_given_a_module_on_the_gpu(tmp_path: Path) -> None:
    net = torch.nn.Linear(8, 8).eval()
    package.build_package(
        net, package.ExampleCall(args=(torch.randn(4, 8),)), dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3"
    )
    from preheat_runtime.bind import Mismatch

    net.cuda()
    with torch.no_grad(), pytest.raises(Mismatch):
        package.load_package(tmp_path, net)(torch.randn(4, 8).cuda())


def test_what_is_too_slow_is_rejected_and_served_eagerly(tmp_path: Path) -> None:
    job = compile_job(tmp_path / "job", keepIf={"minSpeedup": "1000"})
    target = job.target
    assert (target["verdict"], target["reason"]) == ("Rejected", "SpeedupBelowMinimum"), target["message"]
    assert target["files"] == ["bytecode.zip", "report.json", "target.json"]
