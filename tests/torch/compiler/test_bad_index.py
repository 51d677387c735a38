"""An index out of range, which eager refuses, in a package and in what a warm pod compiles: an error, and the process lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import bad_index
from preheat_compiler.refusals import refused_silently
from preheat_runtime.environment import cache_environment
from preheat_runtime.parallel import kept_in_regions

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.torch


@pytest.mark.timeout(900)
def test_a_package_refuses_it_and_answers_the_next_call(tmp_path: Path) -> None:
    assert bad_index.faults("package", str(tmp_path / "out")) == []


@pytest.mark.timeout(900)
@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_warm_pod_refuses_it_and_answers_the_next_call(threads: str, tmp_path: Path) -> None:
    """With the setting that puts every kernel into a parallel region; torch itself refuses in another process's words."""
    environ = {**cache_environment(), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": threads}
    assert bad_index.faults("warm", **environ) == []


def test_inductor_is_as_it_was_afterwards() -> None:
    from torch._inductor import codecache
    from torch._inductor.codegen import cpp

    package = codecache.AotCodeCompiler.__dict__["compile"]
    with refused_silently():
        assert codecache.AotCodeCompiler.__dict__["compile"] is not package, "packages would print what they refuse"
    assert codecache.AotCodeCompiler.__dict__["compile"] is package
    before = cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth
    with kept_in_regions(packages=True):
        inside = cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth
        assert not set(before) & set(inside), "this torch's Inductor works otherwise: kernels would end the process"
    assert (cpp.CppScheduling.define_kernel, cpp.CppKernel.decide_parallel_depth) == before
