"""Code for a CPU class has no instruction that only some CPUs of the class know, whatever the CPU that compiled it.

Read from the machine code, since no emulator here knows AVX-512. On a CPU that has no more than the class, it cannot fail.
"""

from __future__ import annotations

import platform
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
import torch

from preheat_compiler.package import ExampleCall, build_package
from preheat_runtime.fingerprint import CPU_CLASSES, missing_flags, usable_flags
from preheat_runtime.package import LIBRARY_FILE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.torch,
    pytest.mark.soak,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="CPU classes are of x86-64"),
]

#: AVX-512 BF16, FP16 and VNNI, AMX; and of those before it, what has the short encoding of AVX-VNNI.
_LATER = re.compile(
    r"\b(vcvtne2?ps2?pbh|vcvtneps2bf16|vcvtne2ps2bf16|vdpbf16ps|vpdp(?:bu|ws)sds?|tdp\w+|tileload\w+|v\w+ph)\b"
)
_NOT_LATER = re.compile(r"\bvcvt(?:ps2ph|ph2ps)\b")  # F16C, and AVX512F
_WIDE = re.compile(r"%zmm|%k[1-7]|%[xy]mm(?:1[6-9]|2\d|3[01])\b")


class Narrow(torch.nn.Module):
    """Products and rounding in bfloat16, which is where compilers would like the newer instructions."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(64, 96), torch.nn.Linear(96, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.gelu(self.inner(x))
        return (self.outer(y.softmax(-1)).float().exp() * 1.5).to(torch.bfloat16)


def instructions(library: Path) -> list[str]:
    """One line of text for each; of the model's own code alone, not of what is linked into it."""
    words = ["objdump", "--disassemble", "--no-show-raw-insn", str(library)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize("cpu_isa", sorted(CPU_CLASSES))
def test_no_instruction_is_of_a_later_cpu(tmp_path: Path, cpu_isa: str) -> None:
    missing = missing_flags(cpu_isa, usable_flags())
    if missing:
        pytest.skip(f"this CPU is not of {cpu_isa}: it lacks {', '.join(sorted(missing))}")
    net = Narrow().to(torch.bfloat16).eval()
    build_package(
        net, ExampleCall(args=(torch.randn(8, 64).bfloat16(),)), dynamic_shapes=None, out=tmp_path, cpu_isa=cpu_isa
    )
    lines = instructions(tmp_path / LIBRARY_FILE)
    assert len(lines) > 1000
    later = [line for line in lines if _LATER.search(_NOT_LATER.sub("", line))]
    assert not later, later[:10]
    assert any(map(_WIDE.search, lines)) == (cpu_isa == "X86_64_V4"), "the class is used, and not left"
