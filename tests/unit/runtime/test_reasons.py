"""Every reason that is written has a class of its own, whoever writes it."""

import pytest
import torch

from preheat_runtime import fingerprint, identity, revision
from preheat_runtime.fallback import EAGERLY, NO_C_COMPILER, NO_COMPILER
from preheat_runtime.fingerprint import Fingerprint
from preheat_runtime.levers import Levers
from preheat_runtime.reasons import CLASSES, OTHER, class_of, unable_to_compile
from preheat_runtime.room import NO_ROOM

FETCH = {
    "StoreUnreachable": "StoreUnreachable", "DeadlineExceeded": "StoreUnreachable", "StoreDenied": "StoreDenied",
    "StoreCredentialsMissing": "StoreDenied", "ManifestMissing": "Corrupt", "ManifestCorrupt": "Corrupt",
    "PieceMissing": "Corrupt", "PieceCorrupt": "Corrupt", "UnknownFormat": "Corrupt", "NoSpace": "FetchFailed",
    "Killed": "FetchFailed", "Internal": "FetchFailed",
}  # fmt: skip


def test_outcomes_that_need_no_words():
    assert class_of("hot", "package, but not of region blocks.0: argument x: has shape (1, 2)") == "Package"
    assert class_of("warm", "compiler caches") == "Caches"
    assert class_of("eager", "SpeedupBelowMinimum: 0.9 times as fast as eager") == "Rejected"


@pytest.mark.parametrize(("reason", "expected"), FETCH.items())
def test_what_fetch_says(tmp_path, reason, expected):
    (tmp_path / "fetch.json").write_text(f'{{"outcome": "Failed", "reason": "{reason}", "message": "m: n | o"}}')
    assert class_of("cold", revision.load({"PREHEAT_DIR": str(tmp_path)}).reason) == expected


@pytest.mark.parametrize("receipt", [None, '{"outcome": "NoRevision", "message": "m"}'])
def test_nothing_was_fetched(tmp_path, receipt):
    if receipt:
        (tmp_path / "fetch.json").write_text(receipt)
    assert class_of("cold", revision.load({"PREHEAT_DIR": str(tmp_path)}).reason) == "NoRevision"


def test_a_manifest_that_cannot_be_read(tmp_path):
    (tmp_path / "revision").mkdir()
    (tmp_path / "revision" / "manifest.json").write_text("{}")
    assert class_of("cold", revision.load({"PREHEAT_DIR": str(tmp_path)}).reason) == "Corrupt"


BASE = fingerprint.observe(cpu_isa="X86_64_V3").to_json()


def here(**changes):
    return BASE | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"torch": "2.14.1"}, "TorchDiffers"),
        ({"torchBuild": "0123456789ab"}, "TorchDiffers"),
        ({"python": "3.8"}, "PythonDiffers"),
        ({"machine": "aarch64"}, "CpuDiffers"),
        ({"cpuIsa": "X86_64_V9"}, "CpuDiffers"),
        ({"cpuIsa": "Native:amx_future"}, "CpuDiffers"),
        ({"device": "cuda", "gpuName": "H100"}, "GpuDiffers"),
    ],
)
def test_what_the_fingerprint_says(changes, expected, monkeypatch):
    monkeypatch.setattr(fingerprint, "may_have_gpu", lambda: False)
    said = fingerprint.reasons_against(Fingerprint.from_json(here(**changes)))
    assert len(said) == 1
    assert class_of("cold", f"main/one/cpu: {said[0]}") == expected
    assert class_of("cold", f"main/one/cpu: {said[0]} | main/two/cpu: Failed, CompileFailed: x") == expected


def test_torch_reads_so_that_a_person_can_act():
    artifact = Fingerprint.from_json(here(torch="2.14.1"))
    assert fingerprint.reasons_against(artifact) == [f"torch {torch.__version__} in the pod, artifact has 2.14.1"]


def test_another_gpu(monkeypatch):
    gpu = {"gpu_name": "A", "gpu_capability": "8.0", "cuda": "13", "triton": "3"}
    monkeypatch.setattr(fingerprint, "_gpu", lambda _: gpu)
    for change in ({"gpuName": "NVIDIA H100 80GB HBM3"}, {"gpuCapability": "9.0"}, {"cuda": "12"}, {"triton": "2"}):
        same = {"gpuName": "A", "gpuCapability": "8.0", "cuda": "13", "triton": "3", "device": "cuda"}
        artifact = Fingerprint.from_json(BASE | same | change)
        said = fingerprint.gpu_reasons(artifact, "cuda:0")
        assert class_of("cold", f"main/one/gpu: {'; '.join(said)}") == "GpuDiffers", said
        said = fingerprint.gpu_reasons(artifact, None)
        assert class_of("cold", f"main/one/gpu: {'; '.join(said)}") == "ModelDiffers", said
        other = "main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs"
        assert class_of("cold", f"{other} | main/one/gpu: {'; '.join(said)}") == "CpuDiffers"


@pytest.mark.parametrize("verdict", ["Failed", "NoCapacity"])
def test_targets_that_came_to_nothing(verdict):
    assert class_of("cold", f"main/one/cpu: {verdict}, CompileFailed: torch said no") == "TargetsFailed"
    assert class_of("cold", "the revision has no targets") == "TargetsFailed"


def test_the_model():
    net = torch.nn.Linear(2, 2)
    mine, theirs = (identity.describe(each).identity for each in (net, torch.nn.Sequential(net)))
    words = identity.difference(mine, theirs)
    assert words
    assert class_of("cold", f"no artifact is for this Net: main/one: {words}") == "ModelDiffers"
    assert class_of("cold", "the module changes with every call") == "ModelDiffers"


def test_arguments_of_torch_compile():
    from preheat_runtime.asked import refused_arguments

    assert class_of("cold", refused_arguments({"backend": "eager"})) == "CompileArguments"
    assert class_of("cold", Levers().refusal({"mode": "max-autotune"})) == "CompileArguments"
    said = Levers().refusal({"options": {"a": 1}})
    assert class_of("cold", f"no artifact is for this Net: main/one: {said}") == "CompileArguments"


SHAPE = "one: argument x: has shape (2, 64), compiled for (1, 64)"
STATES = [
    "grad is enabled and parameters require it; call the model under torch.inference_mode() or no_grad()",
    "autocast is on",
    "autocast is off, compiled with bfloat16",
    "autocast is float16, compiled with bfloat16",
    "a torch function or dispatch mode is active (a default device is one)",
    "a functorch transform is active",
    "the call is being traced",
    "there are global module hooks",
    "float32MatmulPrecision is high in the pod, artifact has highest",
]


def test_calls_that_no_bucket_is_for():
    dtype = "two: argument y: has dtype int32, compiled for int64"
    for said in (SHAPE, f"{SHAPE} | {dtype}", "one: the arguments do not fit forward: x"):
        assert class_of("cold", f"no bucket answers this call: {said}") == "CallNotCovered"


@pytest.mark.parametrize("state", STATES)
def test_one_bucket_is_and_the_process_is_not(state):
    assert class_of("cold", f"no bucket answers this call: {SHAPE} | two: {state}") == "ProcessState"
    assert class_of("cold", f"no bucket answers this call: two: {state} | {SHAPE}") == "ProcessState"


def test_libraries_and_caches():
    assert class_of("cold", "no bucket answers this call: one: its library failed repeatedly") == "LibraryFailed"
    assert class_of("cold", "Preheat failed: NativeError: no") == "LibraryFailed"
    for said in (
        "the compiler caches did not hold it",
        "no bucket answers this call: one: the pod sets TORCHINDUCTOR_CACHE_DIR itself",
        "no bucket answers this call: one: the caches cannot be copied to /x: full",
        "no bucket answers this call: one: PREHEAT_WORK_DIR is not set, so there is no place",
    ):
        assert class_of("cold", said) == "CachesNotUsed", said


def test_what_the_policy_makes_of_a_reason():
    miss = f"no bucket answers this call: {SHAPE}"
    assert class_of("eager", f"{miss}; onMiss is Eager") == "CallNotCovered"
    assert (
        class_of("eager", "no revision was ready for this pod's image when it started; onMiss is Eager") == "NoRevision"
    )
    assert class_of("refused", miss) == "CallNotCovered"
    rejected = "SpeedupBelowMinimum: 0.9 times as fast, and keepIf.minSpeedup is 1.05"
    assert class_of("eager", rejected) == class_of("cold", f"{rejected}; onReject is Compile") == "Rejected"
    wrong = "its answer differed from eager's by 0.5, allowed are 1e-3, so the package is not used again"
    for outcome, more in (("eager", ""), ("cold", "; onReject is Compile")):
        assert class_of(outcome, wrong + more) == "PackageWrong"


#: What a reason ends with where torch could not compile either.
UNABLE = {
    "NoCompiler": f"; {NO_COMPILER}{EAGERLY}",
    "NoRoom": f"; {NO_ROOM}: /tmp is mounted noexec; PREHEAT_WORK_DIR is not set{EAGERLY}",
}
MISSES = {
    "main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs": "CpuDiffers",
    "main/one/cpu: torch 2.15.0 in the pod, artifact has 2.14.1": "TorchDiffers",
    "main/one/cpu: Python 3.12 in the pod, artifact has 3.11": "PythonDiffers",
    "main/one/gpu: no GPU in the pod, artifact is for NVIDIA H100": "GpuDiffers",
    "main/one/cpu: /x is mounted noexec, so no code in it can run": "NotExecutable",
    "no artifact is for this Net: main/one: submodule 'x' is new": "ModelDiffers",
    "fetch: Failed, StoreDenied: m": "StoreDenied",
    f"no bucket answers this call: {SHAPE}": "CallNotCovered",
    f"no bucket answers this call: {SHAPE} | two: autocast is on": "ProcessState",
    "no bucket answers this call: one: PREHEAT_WORK_DIR is not set, so there is no place": "CachesNotUsed",
    "Preheat failed: NativeError: no": "LibraryFailed",
    "its answer differed from eager's by 0.5; onReject is Compile": "PackageWrong",
}


def test_a_missing_c_compiler_is_a_missing_compiler():
    for miss, found in MISSES.items():
        assert class_of("eager", f"{miss}; {NO_C_COMPILER}{EAGERLY}") == found
    assert class_of("eager", f"compiler caches; {NO_C_COMPILER}{EAGERLY}") == "NoCompiler"


@pytest.mark.parametrize("unable", UNABLE)
@pytest.mark.parametrize("miss", MISSES)
def test_a_miss_that_torch_cannot_compile_has_the_class_of_the_miss(miss, unable):
    assert class_of("eager", miss + UNABLE[unable]) == class_of("cold", miss) == MISSES[miss]
    assert unable_to_compile(miss + UNABLE[unable]) == unable
    assert unable_to_compile(miss) is None


@pytest.mark.parametrize("unable", UNABLE)
@pytest.mark.parametrize(
    "reason", ["compiler caches", "SpeedupBelowMinimum: 0.9; onReject is Compile", "something new"]
)
def test_where_only_the_compiler_is_missing_that_is_the_class(reason, unable):
    assert class_of("eager", reason + UNABLE[unable]) == unable


def test_what_is_not_compiled_at_all(monkeypatch):
    from preheat_runtime.asked import off_reason

    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    assert class_of("cold", off_reason()) == "CompileOff"
    assert class_of("cold", "it is not a module's own call, and artifacts are of modules") == "NotAModule"
    assert class_of("cold", "no bucket answers this call: one: forward-mode gradients are computed") == "ProcessState"


def test_what_nobody_foresaw():
    assert class_of("cold", "something new") == OTHER
    assert len(set(CLASSES)) == len(CLASSES)
