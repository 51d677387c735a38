"""What Triton's caches hold is not assembled again where they are copied to. No GPU is needed to compile for one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.layout import assembler_shims, compiler_runs
from preheat_runtime.relocated import copy_caches

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch

#: As what the static launcher does not load is compiled: kernels of the user's own, cooperative ones, tuned ones.
KERNEL = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

@triton.jit
def tmp_add_one(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)

signature = {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
triton.compile(ASTSource(tmp_add_one, signature, {"B": 128}), target=GPUTarget("cuda", 90, 32))
"""


@pytest.mark.parametrize(("copied", "again"), [(True, 0), (False, 1)], ids=["our copy", "a plain copy"])
def test_a_kernel_is_assembled_where_its_list_of_files_is_not_whole(tmp_path: Path, copied: bool, again: int) -> None:
    pytest.importorskip("triton")
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "kernel.py").write_text(KERNEL)  # where its own text lies is no part of its key
    log = tmp_path / "log"
    variables = assembler_shims(tmp_path / "shims", log=log)
    assert variables, "this Triton brings its assemblers"

    def compile_in(folder: Path) -> int:
        log.unlink(missing_ok=True)
        environment = {
            **os.environ, **variables, "TRITON_CACHE_DIR": str(folder / "triton"), "TRITON_DEFAULT_FP_FUSION": "1",
        }  # fmt: skip
        subprocess.run([sys.executable, folder / "kernel.py"], env=environment, check=True, timeout=120)
        return compiler_runs(log)

    assert compile_in(tmp_path / "job") == 1
    if copied:
        copy_caches(tmp_path / "job", tmp_path / "pod", final=tmp_path / "pod")
    else:
        shutil.copytree(tmp_path / "job", tmp_path / "pod")
    shutil.rmtree(tmp_path / "job")
    assert compile_in(tmp_path / "pod") == again
