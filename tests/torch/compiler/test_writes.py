"""Modules that write to what is not theirs alone: no packages, and it is said what they write to."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from preheat_compiler.package import ExampleCall, NotPackageable, build_package
from preheat_compiler.package_errors import GraphMutates
from unit.compiler.jobs import bucket, compile_job, tensor

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]


class Keeps(nn.Module):
    """Writes to a buffer that it also has in a list, as caches of transformers are kept: torch cannot make it functional."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 8))
        self.layers = [self.seen]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (kept,) = self.layers
        kept.copy_(x)
        return kept + 1


class KeepsParts(Keeps):
    """Writes to a view of a view of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, _ = self.layers[0].split(2)
        first[0].copy_(x[0])
        return self.layers[0] + 1


class KeepsAndMoves(Keeps):
    """Writes to something of its own first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y.add_(x)
        self.layers[0].copy_(y)
        return y


class Scratch(Keeps):
    """Writes to an input, beside a buffer that keeps the graph from being functional."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        self.layers[0].copy_(x)
        return x * 2


@pytest.mark.parametrize(
    ("make", "words", "line"),
    [
        (Keeps, "the call writes to the buffer seen", "kept.copy_(x)"),
        (KeepsParts, "the call writes to the buffer seen", "first[0].copy_(x[0])"),
        (KeepsAndMoves, "the call writes to the buffer seen", "self.layers[0].copy_(y)"),
        (Scratch, "the call writes to the input x", "x.add_(1)"),
    ],
)
def test_what_has_no_functional_form_for_its_writes_says_what_it_writes_to(
    tmp_path: Path, make: type[nn.Module], words: str, line: str
) -> None:
    example = ExampleCall(args=(torch.randn(4, 8),))
    with pytest.raises(GraphMutates, match=words) as raised:
        build_package(make().eval(), example, dynamic_shapes=None, out=tmp_path, cpu_isa="X86_64_V3")
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert raised.value.where == f"{__file__}:{next(n for n, text in enumerate(lines, 1) if text.strip() == line)}"


def test_what_has_no_functional_form_for_another_reason_says_torchs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise AssertionError("expected something else")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", refuses)
    with pytest.raises(NotPackageable, match="Linear has no functional form: expected something else"):
        build_package(
            nn.Linear(8, 8), ExampleCall(args=(torch.randn(4, 8),)), dynamic_shapes=None, out=tmp_path,
            cpu_isa="X86_64_V3",
        )  # fmt: skip


MODEL = """
import torch
from torch import nn

class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 4)

    def forward(self, x):
        return self.inner(x.add_(1))

def load():
    torch.manual_seed(3)
    return InPlace()
"""


# That it is compared on inputs of its own gates in test_fresh.py.
@pytest.mark.soak
def test_a_module_that_writes_to_its_input_is_served_from_caches_and_it_is_said_why(tmp_path: Path) -> None:
    module = {"name": "main", "path": "", "buckets": [bucket("one", tensor(4, 16))]}
    job = compile_job(tmp_path, MODEL, "model:load", module, keepIf={"minSpeedup": "0"})
    target = job.target("main", "one")
    assert (target["verdict"], target["tier"]) == ("Kept", "caches"), job.said
    assert "not as a package: GraphMutates: the call writes to the input x" in target["message"]
