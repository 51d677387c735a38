"""GPU kernels out of caches read and keep their tuning where the process's own caches lie. No GPU is needed to compile for one."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from preheat_runtime import autotuners

pytestmark = pytest.mark.torch

#: As Inductor writes it, with two configurations to choose from.
KERNEL = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import DeviceProperties

GPU = DeviceProperties(
    type="cuda", index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048, warp_size=32, max_threads_per_block=1024,
)

@triton_heuristics.pointwise(
    size_hints={"x": 1048576},
    filename=__file__,
    triton_meta={
        "signature": {"in_ptr": "*fp32", "out_ptr": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"},
        "device": GPU, "constants": {}, "configs": [{}],
    },
    inductor_meta={
        "grid_type": "Grid1D", "kernel_name": "add_one", "autotune_local_cache": True, "max_autotune": True,
        "max_autotune_pointwise": True, "autotune_pointwise": True,
    },
)
@triton.jit
def add_one(in_ptr, out_ptr, xnumel, XBLOCK: tl.constexpr):
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tl.store(out_ptr + at, tl.load(in_ptr + at, at < xnumel) + 1, at < xnumel)
"""


class Backend:
    def __call__(self):
        return "compiled"


@pytest.fixture
def held(monkeypatch):
    """Settled as a pod is, at its first graph."""
    pytest.importorskip("triton")
    from torch._inductor.runtime.autotune_cache import AutotuneCache
    from torch._inductor.triton_bundler import TritonBundler

    for owner, name in ((TritonBundler, "load_autotuners"), (AutotuneCache, "save")):
        monkeypatch.setattr(owner, name, owner.__dict__[name])
    monkeypatch.setattr(torch, "_TorchCompileInductorWrapper", Backend)
    monkeypatch.setattr(Backend, "__call__", Backend.__call__)
    monkeypatch.setattr(autotuners, "_held", [])
    autotuners.hold()
    assert Backend()() == "compiled"
    return TritonBundler


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Kernels as a Job's graph has them, pickled, and its caches in another folder, `pod`; the Job's own are gone."""
    pytest.importorskip("triton")
    from torch._inductor.codecache import PyCodeCache
    from torch._inductor.runtime import triton_helpers
    from torch._inductor.triton_bundler import TritonBundler

    monkeypatch.setattr(triton_helpers, "set_driver_to_gpu", lambda: None)
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    caches(monkeypatch, tmp_path / "job" / "inductor-for-pods")
    kernel = PyCodeCache.load(KERNEL).add_one
    kernel._precompile_worker()
    assert [kernel.is_statically_launchable(), len(kernel.compile_results)] == [True, 2]
    monkeypatch.setattr(TritonBundler, "_static_autotuners", [])
    TritonBundler.put_static_autotuner("key", kernel)
    pickled = pickle.dumps(TritonBundler._static_autotuners)
    kernel.save_cache_hook(kernel.compile_results[1].config, 5)
    shutil.copytree(tmp_path / "job" / "inductor-for-pods", tmp_path / "pod")
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "job").write_text("nothing can be written below this")
    caches(monkeypatch, tmp_path / "pod")
    return pickled


def caches(monkeypatch, folder):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))


def loaded(bundler, bundled):
    from torch._inductor.async_compile import CompiledTritonKernels

    bundler.load_autotuners(pickle.loads(bundled))
    return CompiledTritonKernels._cache.pop("key").static_autotuner


def test_what_the_job_found_fastest_is_found_in_a_pod(held, job, tmp_path):
    kernel = loaded(held, job)
    assert str(tmp_path / "job").encode() in job
    assert str(tmp_path / "job").encode() not in pickle.dumps(kernel), "no path is left that only the Job has"
    kernel.recheck_autotune_cache(reload_kernel_from_src=lambda: pytest.fail("compiled again"))
    slower, fastest = (each.config for each in pickle.loads(job)[0].kernel.compile_results)
    assert [each.config.kwargs for each in kernel.compile_results] == [fastest.kwargs] != [slower.kwargs]


def test_what_a_pod_finds_fastest_is_written_to_its_own_caches(held, job, tmp_path):
    kernel = loaded(held, job)
    (tuned,) = (tmp_path / "pod").rglob("*.best_config")
    tuned.unlink()
    kernel.save_cache_hook(kernel.compile_results[0].config, 5)
    assert tuned.is_file()


def test_tuning_that_cannot_be_written_fails_no_call(held, job, tmp_path, monkeypatch):
    kernel = loaded(held, job)
    (tuned,) = (tmp_path / "pod").rglob("*.best_config")
    shutil.rmtree(tuned.parent)
    tuned.parent.write_text("no folder")
    kernel.save_cache_hook(kernel.compile_results[0].config, 5)
    assert tuned.parent.read_text() == "no folder"


def test_a_time_limit_meanwhile_is_the_callers(held, job, monkeypatch):
    kernel = loaded(held, job)
    cache, _ = kernel.save_cache_hook.__self__.local_cache

    def limit(number, frame):
        raise TimeoutError("too slow")

    monkeypatch.setattr(cache, "put", lambda *_: os.kill(os.getpid(), signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, limit)
    try:
        with pytest.raises(TimeoutError, match="too slow"):
            kernel.save_cache_hook(kernel.compile_results[0].config, 5)
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("filename", [None, "/app/kernels.py", "ab/cab.py"])
def test_kernels_of_other_places_stay_where_they_are(held, filename):
    own = SimpleNamespace(local_cache=("cache", "/app/x.best_config"))
    kernel = SimpleNamespace(filename=filename, save_cache_hook=None, compile_results=[])
    if filename is not None:
        kernel.save_cache_hook = SimpleNamespace(__self__=own)
    entry = SimpleNamespace(kernel=kernel, cache_key="key", kernel_name="theirs")
    from torch._inductor.async_compile import CompiledTritonKernels

    assert held.load_autotuners([entry]) == ["theirs"]
    CompiledTritonKernels._cache.pop("key")
    assert (kernel.filename, own.local_cache[1]) == (filename, "/app/x.best_config")


def test_what_is_not_as_expected_is_torchs_to_load(held):
    from torch._inductor.async_compile import CompiledTritonKernels

    kernel = SimpleNamespace(compile_results=[])
    assert held.load_autotuners([SimpleNamespace(kernel=kernel, cache_key="key", kernel_name="odd")]) == ["odd"]
    CompiledTritonKernels._cache.pop("key")
    assert held.load_autotuners(None) == []


def test_a_torch_that_bundles_no_kernels_is_left_alone(monkeypatch):
    import torch._inductor.compile_fx  # noqa: F401
    from torch._inductor import triton_bundler
    from torch._inductor.runtime import autotune_cache

    monkeypatch.delattr(triton_bundler, "TritonBundler")
    monkeypatch.delattr(autotune_cache, "AutotuneCache")
    autotuners._change()


def test_settling_holds_it_and_imports_nothing_of_inductor_yet():
    code = (
        "import sys; from preheat_runtime import autotuners, warm; warm.settle('Native'); "
        "print(autotuners._held, any(each.startswith(('torch._inductor', 'triton')) for each in sys.modules))"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout.split("\n")[0] == "[True] False"
