"""Artifacts for a GPU are judged where a module on one is called, and nothing before that begins with CUDA.

Who asks CUDA anything in a process, even whether there is a GPU, takes it from all children that are forked later.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from cuda_tensors import cuda_tensor, needs_a_cuda_build, on_cuda
from preheat_runtime import fallback, fingerprint, identity, report, revision, serve, warm
from preheat_runtime.manifest import File, Manifest, Target
from preheat_runtime.package import CallSpec, TensorSpec
from preheat_runtime.package import Target as Contract
from preheat_runtime.reasons import class_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Said = Callable[[], tuple[str, str, str]]

pytestmark = needs_a_cuda_build

A10G = {"gpu_name": "NVIDIA A10G", "gpu_capability": "8.6"}
EMPTY = File(path="target.json", size=0, sha256=hashlib.sha256(b"").hexdigest(), pieces=())
H100 = {"gpu_name": "NVIDIA H100", "gpu_capability": "9.0"}


def net() -> torch.nn.Module:
    return torch.nn.Linear(3, 3).eval().requires_grad_(False)


class Pod:
    """What fetch brought; the driver's files, and the GPUs that CUDA knows of once somebody has begun with it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.devices = root / "preheat", root / "dev"
        self.devices.mkdir()
        self._targets: list[Target] = []
        self._patch = monkeypatch
        monkeypatch.setattr(fingerprint, "_DEVICES", self.devices)
        self.asked: Counter[str] = Counter()
        for name in ("is_available", "device_count", "get_device_name", "get_device_capability", "_lazy_init"):
            monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: self.asked.update([name]))

    def has_gpu_files(self) -> None:
        (self.devices / "nvidia0").touch()

    def begins_with_cuda(self, *gpus: dict[str, str]) -> None:
        """As the user's first tensor there does."""
        self.has_gpu_files()

        def of(device: str | int | None) -> dict[str, str]:
            return gpus[torch.device("cuda" if device is None else device).index or 0]

        self._patch.setattr(torch.cuda, "is_initialized", lambda: True)
        self._patch.setattr(torch.cuda, "device_count", lambda: len(gpus))
        self._patch.setattr(torch.cuda, "get_device_name", lambda device=None: of(device)["gpu_name"])
        self._patch.setattr(
            torch.cuda, "get_device_capability", lambda device=None: of(device)["gpu_capability"].split(".")
        )

    def holds(self, hardware: str, module: torch.nn.Module, device: str, **changes: Any) -> None:
        """An artifact's caches for this module, with a call of two rows."""
        triton = pytest.importorskip("triton").__version__
        seen = fingerprint.observe(cpu_isa="X86_64_V3")
        if device != "cpu":
            seen = replace(seen, device="cuda", cuda=torch.version.cuda, triton=triton)
        target = Target(
            module="main", bucket="one", hardware=hardware, verdict="Kept", reason="Faster", message="", tier="caches",
            request_key="0" * 64, fingerprint=replace(seen, **changes).to_json(), figures={}, files=(EMPTY,),
        )  # fmt: skip
        folder = self.root / "revision" / target.folder
        folder.mkdir(parents=True)
        tensor = TensorSpec(parameter="input", shape=(2, 3), dtype="float32", device=device)
        described = replace(identity.describe(module).identity, unknown=())
        Contract(identity=described, call=CallSpec(arguments=(tensor,))).write(folder / "target.json")
        self._targets.append(target)
        manifest = Manifest(
            namespace="default", name="vision", uid="u", revision="vision-1", image="i:1", image_python_path=None,
            targets=tuple(sorted(self._targets, key=lambda each: each.key)),
        )  # fmt: skip
        (self.root / "revision" / "manifest.json").write_bytes(manifest.to_bytes())


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pod]:
    for name in ("PREHEAT_SERVING", "PREHEAT_REPORTS_URL", "PREHEAT_LOG", "PREHEAT_WORK_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path / "preheat"))
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()
    yield Pod(tmp_path, monkeypatch)
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """The hardware of the artifacts whose caches are copied, each time."""
    seen: list[list[str]] = []
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(warm, "prepare", lambda given, _: seen.append(sorted(each.entry.hardware for each in given)))
    return seen


def compiled(module: torch.nn.Module) -> Callable[..., Any]:
    """What torch.compile returns, where torch itself answers with nothing."""
    served: Callable[..., Any] = serve.serve(lambda *_, **__: lambda *_: None, module, {})
    return served


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]) -> Said:
    """Outcome, class and words of the only answer that was told."""

    def only() -> tuple[str, str, str]:
        (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
        return line["outcome"], line["reasonClass"], line["reason"]

    return only


ON_CPU, ON_GPU = torch.zeros(2, 3), lambda: cuda_tensor(2, 3)


def test_without_a_gpus_files_a_module_has_none_and_cuda_is_not_asked(pod: Pod, said: Said) -> None:
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    compiled(net())(ON_CPU)
    assert said() == ("cold", "GpuDiffers", "main/one/gpu: no GPU in the pod, artifact is for NVIDIA A10G")
    assert not pod.asked
    assert fingerprint.here(gpu=True)["gpu"] == "none", "as HardwareNotCovered tells it"
    assert not pod.asked


def test_a_module_that_is_not_on_the_gpu_is_told_so_and_cuda_is_not_asked(pod: Pod, said: Said) -> None:
    pod.has_gpu_files()
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    compiled(net())(ON_CPU)
    assert said() == ("cold", "ModelDiffers", "main/one/gpu: the module is not on a GPU, artifact is for NVIDIA A10G")
    assert "gpu" not in fingerprint.here(gpu=True), "it is not known which"
    assert not pod.asked


def test_why_artifacts_for_a_cpu_fit_nothing_is_told_with_it(pod: Pod, said: Said) -> None:
    pod.has_gpu_files()
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    pod.holds("cpu", net(), "cpu", torch="2.99.0")
    compiled(net())(ON_CPU)
    outcome, cause, words = said()
    assert (outcome, cause) == ("cold", "TorchDiffers")
    assert words.startswith("main/one/cpu: torch ")
    assert words.endswith(" | main/one/gpu: the module is not on a GPU, artifact is for NVIDIA A10G")
    assert not pod.asked


def test_a_module_on_the_gpu_that_it_was_made_for_is_served(pod: Pod, said: Said, prepared: list[list[str]]) -> None:
    pod.holds("a10g", on_cuda(net()), "cuda:0", **A10G)
    pod.holds("h100", on_cuda(net()), "cuda:0", **H100)
    pod.begins_with_cuda(A10G)
    served = compiled(on_cuda(net()))
    for _ in range(3):
        served(ON_GPU())
    assert said() == ("warm", "Caches", "compiler caches")
    assert prepared == [["a10g"]], "caches of another GPU are not copied"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (H100, "GPU NVIDIA A10G in the pod, artifact has NVIDIA H100; GPU capability 8.6 in the pod, artifact has 9.0"),
        ({**A10G, "cuda": "12.1"}, f"CUDA {torch.version.cuda} in the pod, artifact has 12.1"),
    ],
)
def test_a_module_on_another_gpu_is_refused_by_name(pod: Pod, said: Said, changes: dict[str, str], words: str) -> None:
    pod.holds("gpu", on_cuda(net()), "cuda:0", **changes)
    pod.begins_with_cuda(A10G)
    compiled(on_cuda(net()))(ON_GPU())
    assert said() == ("cold", "GpuDiffers", f"main/one/gpu: {words}")
    assert fingerprint.here(gpu=True)["gpu"] == "NVIDIA A10G"


def test_in_an_image_without_a_cpp_compiler_it_is_served_as_well(
    pod: Pod, said: Said, prepared: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "compiler_missing", lambda: True)
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    pod.begins_with_cuda(A10G)
    compiled(on_cuda(net()))(ON_GPU())
    assert said()[:2] == ("warm", "Caches")
    assert prepared == [["gpu"]]


def test_of_several_gpus_the_one_that_the_module_is_on_counts(pod: Pod, said: Said, prepared: list[list[str]]) -> None:
    pod.holds("gpu", on_cuda(net(), index=1), "cuda:1", **H100)
    pod.begins_with_cuda(A10G, H100)
    compiled(on_cuda(net(), index=1))(cuda_tensor(2, 3, index=1))
    assert said()[0] == "warm"
    assert prepared == [["gpu"]]


def fitting(served: Any) -> list[str]:
    """The hardware of the artifacts that are for the module, as it was last called."""
    return [each.candidate.entry.hardware for each in served._preheat_server.chooser.fitting]


def test_a_module_that_is_put_on_the_gpu_after_a_first_call_is_judged_anew(pod: Pod, prepared: list[list[str]]) -> None:
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    pod.holds("cpu", net(), "cpu")
    pod.has_gpu_files()
    module = net()
    served = compiled(module)
    served(ON_CPU)
    assert fitting(served) == ["cpu"]
    assert not pod.asked
    pod.begins_with_cuda(A10G)
    on_cuda(module)
    served(ON_GPU())
    assert fitting(served) == ["gpu"]
    assert prepared == [["cpu", "gpu"]], "both, since a later module may be on the GPU"


def test_a_revision_without_targets_says_so(pod: Pod) -> None:
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    assert revision.load(os.environ).reason == "main/one/gpu: no GPU in the pod, artifact is for NVIDIA A10G"
    pod.has_gpu_files()
    found = revision.load(os.environ)
    assert (len(found.candidates), found.reason) == (1, "")
    assert class_of("cold", "the revision has no targets") == "TargetsFailed"


@pytest.mark.parametrize("name", ["nvidia0", "nvidiactl", "nvhost-ctrl-gpu", "nvgpu", "kfd", "dxg"])
def test_whatever_a_driver_of_a_gpu_leaves_there_may_be_one(pod: Pod, name: str) -> None:
    assert not fingerprint.may_have_gpu()
    (pod.devices / name).mkdir()
    assert fingerprint.may_have_gpu()


def test_where_the_devices_cannot_be_listed_there_may_be_one(pod: Pod) -> None:
    pod.devices.rmdir()
    assert fingerprint.may_have_gpu()


def test_a_torch_that_was_built_for_cpus_has_no_gpu(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.has_gpu_files()
    for name in ("cuda", "hip"):
        monkeypatch.setattr(torch.version, name, None)
    assert not fingerprint.may_have_gpu()


def test_what_a_gpu_artifact_needs_of_torch_and_cpu_is_told_without_a_gpu(pod: Pod) -> None:
    seen = replace(fingerprint.observe(cpu_isa="X86_64_V3"), device="cuda", **A10G)
    other = replace(seen, python="3.1")
    pod.has_gpu_files()
    assert fingerprint.reasons_against(seen) == []
    assert [words.split()[0] for words in fingerprint.reasons_against(other)] == ["Python"]


FORKS = """
import os, sys, pathlib, torch
from preheat_runtime import fingerprint, hook, serve
fingerprint._DEVICES = pathlib.Path(sys.argv[1])
hook._install(torch)
net = torch.nn.Linear(3, 3).eval()

def child_may_use_cuda():
    pid = os.fork()
    if pid == 0:
        os._exit(torch.cuda._is_in_bad_fork())
    return os.waitpid(pid, 0)[1] == 0

assert child_may_use_cuda()
served = torch.compile(net)
assert type(served).__name__ == "PreheatedModule"
assert child_may_use_cuda(), "after torch.compile()"
served._preheat_server.fallback._compiled = net
with torch.no_grad():
    served(torch.zeros(2, 3))
assert child_may_use_cuda(), "after a call on the CPU"
"""


@pytest.mark.parametrize("gpu_files", [False, True])
def test_children_may_use_cuda_after_compiling_and_calling_a_module_on_the_cpu(
    pod: Pod, tmp_path: Path, gpu_files: bool
) -> None:
    pod.holds("gpu", on_cuda(net()), "cuda:0", **A10G)
    if gpu_files:
        pod.has_gpu_files()
    sources = Path(fingerprint.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", FORKS, str(pod.devices)],
        env={**os.environ, "PYTHONPATH": str(sources)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert ("no GPU in the pod" in done.stderr) != gpu_files
