"""Code for a CPU class runs right on the oldest CPU of that class, and is not run at all on one before it.

What gates of it, without the driver: tests/torch/runtime/test_older_cpu.py.
"""

from __future__ import annotations

import json
import platform
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from emulation import BEFORE_V3, V3_ONLY
from preheat_compiler.layout import lay_out
from preheat_compiler.request import read_request
from unit.compiler import requests, toolkits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(900),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU classes are of x86-64"),
]

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.norm = nn.LayerNorm(8)
        self.outer = nn.Linear(8, 40)

    def forward(self, x):
        y = torch.nn.functional.gelu(self.convolution(x)).mean((2, 3))
        return self.outer(self.norm(y).exp()).softmax(-1) * x.abs().sum().sqrt()

def fill(size, step):
    # Without a random generator: torch's own draws other numbers where it has other vector code.
    return ((torch.arange(size) * step) % 101 - 50) / 50

def load():
    net = Net()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            parameter.copy_(fill(parameter.numel(), 7 + number).reshape(parameter.shape))
    return net.eval()
"""

SERVE = """
import json, torch, model
served = torch.compile(model.load())
with torch.no_grad():
    answer = served(model.fill(2 * 3 * 19 * 21, 13).reshape(2, 3, 19, 21))
print(json.dumps({"answer": answer.flatten().tolist(), "torch": torch.backends.cpu.get_cpu_capability()}))
"""

# What would happen without the runtime's look at the CPU.
UNCHECKED = """
import preheat_runtime.fingerprint
preheat_runtime.fingerprint.usable_flags = preheat_runtime.fingerprint.cpu_flags
"""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the real driver made of the model for X86_64_V3, the default class."""
    app = tmp_path_factory.mktemp("portable") / "app"
    app.mkdir()
    (app / "model.py").write_text(MODEL)
    bucket = {
        "name": "one",
        "dims": [],
        "args": [{"tensor": {"shape": [2, 3, 19, 21], "dtype": "float32"}}],
        "kwargs": [],
    }
    main = {"name": "main", "path": "", "buckets": [bucket]}
    request = requests.make(
        torch={"factory": "model:load", "modules": [main]},
        targets=[{"module": "main", "bucket": "one"}],
        keepIf={"minSpeedup": "0"},
    )
    (app / "request.json").write_text(json.dumps(request))
    toolkit = toolkits.make(app.parent / "toolkit")
    code, said = toolkits.run(toolkit, app)
    assert code == 0, said
    return app


@pytest.fixture(scope="module")
def pod(app: Path) -> Path:
    (target,) = json.loads((app / "out" / "result.json").read_text())["targets"]
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    assert target["fingerprint"]["cpuIsa"] == "X86_64_V3"
    return lay_out(
        app.parent / "pod", app / "out/main/one", request=read_request(app / "request.json"), module="main",
        bucket="one", tier="package", request_key=target["requestKey"], fingerprint=target["fingerprint"],
    )  # fmt: skip


def difference(one: list[float], other: list[float]) -> float:
    """As docs/compile-job.md states an error: the largest difference over the largest magnitude."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) / max(map(abs, other))


@pytest.mark.soak
def test_a_package_for_a_class_is_right_on_its_oldest_cpu_and_refused_on_one_before_it(
    serve: Callable[..., Any], pod: Path, app: Path, tmp_path: Path
) -> None:
    def served(cpu: str | None) -> Any:
        return serve(SERVE, pod=pod, code=app, work=tmp_path / str(cpu), cpu=cpu)

    with ThreadPoolExecutor(2) as pool:
        here, oldest, before = pool.map(served, (None, V3_ONLY, BEFORE_V3))
    for each in (here, oldest, before):
        assert each.code == 0, each.stderr
        assert difference(each.printed["answer"], here.printed["answer"]) <= 1e-3
    assert [line["outcome"] for line in here.said] == ["hot"]
    assert [line["outcome"] for line in oldest.said] == ["hot"]
    # torch itself was fooled by neither CPU, so the runs were what they are taken for.
    assert (oldest.printed["torch"], before.printed["torch"]) == ("AVX2", "DEFAULT")
    (line,) = before.said
    assert line["outcome"] == "eager"  # there is no compiler in that pod
    assert "CPU lacks abm, avx2, bmi1, bmi2, f16c, fma" in line["reason"]
    assert "X86_64_V3" in line["reason"]


@pytest.mark.soak
def test_without_that_refusal_the_process_would_die(
    serve: Callable[..., Any], pod: Path, app: Path, tmp_path: Path
) -> None:
    """The control: it is the check that keeps the pod alive, not luck with the code that was written."""
    ended = serve(UNCHECKED + SERVE, pod=pod, code=app, work=tmp_path / "work", cpu=BEFORE_V3)
    assert ended.printed is None
    assert ended.code in (-signal.SIGILL, 128 + signal.SIGILL), ended.stderr


def test_code_beyond_the_class_dies_on_its_oldest_cpu(serve: Callable[..., Any], tmp_path: Path) -> None:
    """The other control: the emulated CPU notices an instruction too many, so a hot answer on it says something."""
    source = tmp_path / "beyond.cpp"
    source.write_text('extern "C" void beyond() { asm volatile("vpxorq %zmm0, %zmm0, %zmm0"); }\n')
    library = tmp_path / "beyond.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    script = f"import ctypes; ctypes.CDLL({str(library)!r}).beyond(); print('0')"
    ended = serve(script, pod=tmp_path, code=tmp_path, work=tmp_path / "work", cpu=V3_ONLY)
    assert ended.printed is None
    assert ended.code in (-signal.SIGILL, 128 + signal.SIGILL), ended.stderr
