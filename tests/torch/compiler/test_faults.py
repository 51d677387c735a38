"""Bad models and bad places, through the real driver: each ends with its own reason, costs itself alone, needs no compile."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from unit.compiler import requests, toolkits
from unit.compiler.jobs import Job, bucket, compile_job, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

MODEL = '''
import os, pathlib, random
import torch
from torch import nn

class Printing(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        print("in between")
        return torch.sigmoid(y)

class OnGpu(nn.Module):
    def forward(self, x):
        return x.to("cuda")

class Filling(nn.Module):
    """Fills the disk, as a download or a dump of activations does."""

    def forward(self, x):
        with open(pathlib.Path(os.environ["TMPDIR"]) / "dump", "wb") as file:
            while True:
                file.write(bytes(1 << 16))

class Parts:
    def __init__(self):
        torch.manual_seed(3)
        self.plain, self.printing, self.on_gpu, self.filling = nn.Linear(16, 4), Printing(), OnGpu(), Filling()

def load():
    return Parts()

def unseeded():
    return (torch.tensor([[random.SystemRandom().random() for _ in range(16)]]),), {}

def refuses():
    raise LookupError("no such recording")

recorded = [1, 2]
'''


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", "/nonexistent/g++")
        one = [bucket("one", tensor(4, 16))]
        return compile_job(
            tmp_path_factory.mktemp("faults"), MODEL, "model:load",
            {
                "name": "plain", "path": "plain",
                "buckets": [
                    *one,
                    *({"name": name, "exampleInputs": f"model:{name}"} for name in ("unseeded", "refuses", "recorded")),
                ],
            },
            {"name": "on-gpu", "path": "on_gpu", "buckets": one},
            keepIf={"minSpeedup": "0"},
        )  # fmt: skip


@pytest.mark.parametrize(
    ("module", "bucket_name", "reason", "says"),
    [
        ("plain", "one", "CompilerMissing", ["/nonexistent/g++", "apt-get install g++"]),
        ("plain", "unseeded", "Nondeterministic", ["model:unseeded() gives other inputs at each call"]),
        ("plain", "refuses", "InputsRefused", ["LookupError: no such recording", "model.py:"]),
        ("plain", "recorded", "InputsRefused", ["exampleInputs: 'model:recorded' is not callable. Name a function."]),
        ("on-gpu", "one", "DeviceMissing", ["model.py:", "hardware[].nodeSelector"]),
    ],
)
def test_each_ends_with_its_own_reason_and_words(
    job: Job, module: str, bucket_name: str, reason: str, says: list[str]
) -> None:
    assert job.code == 0, job.said
    target = job.target(module, bucket_name)
    assert (target["verdict"], target["reason"]) == ("Failed", reason), target["message"]
    assert all(each in target["message"] for each in says), target["message"]
    assert target["files"] == ["report.json"]
    assert job.report(module, bucket_name)["message"]


def test_a_graph_that_must_be_whole_is_refused_with_the_line_that_cuts_it(tmp_path: Path) -> None:
    modules = {"name": "printing", "path": "printing", "buckets": [bucket("one", tensor(4, 16))]}
    job = compile_job(
        tmp_path, MODEL, "model:load", modules, torch={"fullgraph": "Required"}, keepIf={"minSpeedup": "0"}
    )
    target = job.target("printing", "one")
    assert (target["verdict"], target["reason"]) == ("Failed", "CompileFailed"), target["message"]
    line = next(number for number, text in enumerate(MODEL.splitlines(), 1) if "in between" in text)
    assert f"not as a package (SideEffect: the code prints, which a package would not do (model.py:{line}))" in (
        re.sub(r"[^\s(]*/model.py", "model.py", target["message"])
    )
    assert "torch.compile: " in target["message"]
    assert target["files"] == ["report.json"]


ON_A_SMALL_DISK = """
mkdir out && mount -t tmpfs -o size=8m small out || exit 99
"$@"
code=$?
cp -r out kept
exit $code
"""


def test_a_full_disk_costs_the_target_that_filled_it(tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "model.py").write_text(MODEL)
    modules: list[dict[str, Any]] = [
        {"name": "filling", "path": "filling", "buckets": [bucket("one", tensor(4, 16))]},
        {"name": "plain", "path": "plain", "buckets": [bucket("wrong", tensor(4, 17))]},
    ]
    targets = [{"module": each["name"], "bucket": each["buckets"][0]["name"]} for each in modules]
    raw = requests.make(torch={"factory": "model:load", "modules": modules}, targets=targets)
    (app / "request.json").write_text(json.dumps(raw))
    toolkit = toolkits.make(tmp_path / "toolkit")
    words = [sys.executable, str(toolkit / "compile.py"), "--request", "request.json", "--out", "out"]
    words += ["--termination-log", "termination"]
    done = subprocess.run(
        [shutil.which("unshare") or "unshare", "--mount", "sh", "-c", ON_A_SMALL_DISK, "sh", *words],
        cwd=app, env=dict(os.environ), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    full, other = json.loads((app / "kept" / "result.json").read_text())["targets"]
    assert (full["verdict"], full["reason"]) == ("Failed", "DiskFull"), full["message"]
    assert "ephemeral storage" in full["message"]
    assert "model.py:" in full["message"]
    assert (other["verdict"], other["reason"]) == ("Failed", "InputsRefused"), other["message"]
    for target in (full, other):
        for file in target["files"]:
            json.loads((app / "kept" / target["directory"] / file).read_text())
    assert not (app / "kept" / ".work").exists()
