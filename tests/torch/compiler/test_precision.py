"""Weights of other types than float32, and settings of precision, through the real driver and into a pod."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from preheat_runtime.package import Target
from unit.compiler.jobs import Job, bucket, compile_job, serve, tensor

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.torch, pytest.mark.soak, pytest.mark.timeout(1800)]

MODEL = '''
import torch
from torch import nn
from torch.ao import quantization

class Narrow(nn.Module):
    """As a checkpoint in half precision is loaded: weights and buffers of the type, a norm that computes in float32."""

    def __init__(self, dtype):
        super().__init__()
        self.into, self.out = nn.Linear(64, 128), nn.Linear(128, 16)
        self.norm = nn.LayerNorm(128)
        self.register_buffer("shift", torch.randn(16))
        self.to(dtype)

    def forward(self, x):
        y = self.norm(nn.functional.gelu(self.into(x)))
        return self.out(y) + self.shift

class WeightOnly(nn.Module):
    """A linear layer with 8-bit weights and a scale for each row, as weight-only quantisation leaves it."""

    def __init__(self, inner):
        super().__init__()
        scale = inner.weight.detach().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (inner.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = inner.bias

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale, self.bias)

class Packed(torch.Tensor):
    """A tensor of a class of its own, as torchao's are: what it computes is not told by its type."""

class Parts:
    def __init__(self):
        torch.manual_seed(3)
        self.bfloat16, self.float16 = Narrow(torch.bfloat16), Narrow(torch.float16)
        self.int8 = nn.Sequential(WeightOnly(nn.Linear(64, 128)), nn.ReLU(), WeightOnly(nn.Linear(128, 16)))
        plain = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16))
        self.dynamic = quantization.quantize_dynamic(plain, {nn.Linear}, dtype=torch.qint8)
        self.subclass = nn.Linear(64, 16)
        self.subclass.weight = nn.Parameter(self.subclass.weight.detach().as_subclass(Packed), requires_grad=False)

def load():
    torch.set_float32_matmul_precision("high")
    return Parts()
'''


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return compile_job(
        tmp_path_factory.mktemp("precision"), MODEL, "model:load",
        *(
            {"name": name, "path": name, "buckets": [bucket("one", tensor(8, 64, dtype=dtype))]}
            for name, dtype in (
                ("bfloat16", "bfloat16"), ("float16", "float16"), ("int8", "float32"),
                ("dynamic", "float32"), ("subclass", "float32"),
            )
        ),
        keepIf={"minSpeedup": "0"},
    )  # fmt: skip


SCRIPT = """
import torch, model
parts = model.load()
{settings}
net = parts.{name}.eval()
fast = torch.compile(net)
with torch.no_grad():
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(8, 64).to(torch.{dtype})
        got, want = fast(x), net(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol={tolerance}, atol={tolerance})
"""


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance", "reference"),
    [
        ("bfloat16", "bfloat16", 5e-2, "float32"),
        ("float16", "float16", 2e-2, "float32"),
        ("int8", "float32", 1e-3, "float64"),
    ],
)
def test_narrow_weights_are_bound_and_not_converted(
    job: Job, tmp_path: Path, name: str, dtype: str, tolerance: float, reference: str
) -> None:
    target = job.target(name, "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "package"), target["message"]
    assert f"(allowed: {tolerance})" in target["message"]
    content = Target.read(job.app / "out" / name / "one" / "target.json")
    assert content.package is not None
    kinds = {content.identity.tensors[path].dtype for _, path in content.package.constants}
    assert kinds == ({"int8", "float32"} if name == "int8" else {dtype})
    assert {each["dtype"] for each in job.report(name, "one")["reference"]} == {reference}
    script = SCRIPT.format(name=name, dtype=dtype, tolerance=tolerance, settings="")
    assert {line["outcome"] for line in serve(job, name, "one", script, tmp_path)} == {"hot"}


def test_torchs_own_quantised_layers_run_as_they_are_and_it_is_said_why(job: Job) -> None:
    """Their weights are opaque to torch.compile, which leaves them alone: a pod need not even try."""
    target = job.target("dynamic", "one")
    assert (target["verdict"], target["reason"], target["tier"]) == ("Rejected", "NoDifference", None), target[
        "message"
    ]
    for words in ("_packed_params has a ScriptObject", "torch.compile compiles nothing of it: ", "Pods run eager"):
        assert words in target["message"]
    (graphs,) = job.report("dynamic", "one")["graphs"]
    assert (graphs["graphs"], graphs["recompiles"]) == (0, 0)
    assert graphs["breaks"]
    # A pod must know the module that it runs eager.
    assert Target.read(job.app / "out/dynamic/one/target.json").package is None


def test_a_tensor_of_another_class_is_no_package_and_says_so(job: Job) -> None:
    target = job.target("subclass", "one")
    assert target["tier"] != "package"
    assert "weight is a Packed, not a plain tensor" in target["message"]


def test_the_precision_of_matrix_products_is_part_of_the_fingerprint(job: Job, tmp_path: Path) -> None:
    assert job.target("int8", "one")["fingerprint"]["settings"]["float32MatmulPrecision"] == "high"
    script = SCRIPT.format(
        name="int8", dtype="float32", tolerance=1e-3, settings='torch.set_float32_matmul_precision("highest")'
    )
    (line,) = serve(job, "int8", "one", script, tmp_path, compiler=False)
    assert line["outcome"] != "hot"
    assert "precision" in line["reason"].lower(), line
