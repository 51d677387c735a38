"""One case for each thing that the records of a pod's first answers say; the words must name it, and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preheat_operator.explain import remedies
from preheat_runtime.reasons import CLASSES
from unit.explain.pod_and_model import HOT, TORCH, cold, log, receipt, why


def test_hot() -> None:
    said = why(serving_log=log(HOT))
    assert (said.outcome, said.cause, said.why) == ("hot", "Package", "package")
    assert said.remedy.startswith("Nothing")
    assert said.notes == ("the first answer took 0.11 s, artifact main/one/cpu, 190000 bytes",)


FETCH_FAILURES = {
    "StoreUnreachable": "StoreUnreachable", "DeadlineExceeded": "StoreUnreachable",
    "StoreCredentialsMissing": "StoreDenied", "StoreDenied": "StoreDenied", "ManifestMissing": "Corrupt",
    "ManifestCorrupt": "Corrupt", "PieceMissing": "Corrupt", "PieceCorrupt": "Corrupt", "UnknownFormat": "Corrupt",
    "NoSpace": "FetchFailed", "Killed": "FetchFailed", "Internal": "FetchFailed",
}  # fmt: skip


@pytest.mark.parametrize(("reason", "cause"), FETCH_FAILURES.items())
def test_nothing_was_fetched(reason: str, cause: str) -> None:
    said = why(
        serving_log=log(cold(f"fetch: Failed, {reason}: the words of fetch")),
        fetch_log="noise\n" + receipt("Failed", reason, "the words of fetch"),
    )
    assert (said.outcome, said.cause) == ("cold", cause)
    assert f"fetch: Failed, {reason}, the words of fetch" in said.notes


RECORDED = [
    (cold("no revision was ready for this pod's image when it started"), "NoRevision"),
    (cold(TORCH), "TorchDiffers"),
    (cold("main/one/cpu: Python 3.12 in the pod, artifact has 3.11"), "PythonDiffers"),
    (cold("main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs"), "CpuDiffers"),
    (cold("main/one/gpu: no GPU in the pod, artifact is for NVIDIA H100"), "GpuDiffers"),
    (cold("torch.compile was called with backend='eager', which no artifact was made for"), "CompileArguments"),
    (cold("no bucket answers this call: one: argument x: has shape (2, 64), compiled for (1, 64)"), "CallNotCovered"),
    (cold("no bucket answers this call: one: grad is enabled and an input requires it"), "ProcessState"),
    (cold("no artifact is for this Net: main/one: submodule 'x' is new"), "ModelDiffers"),
    (cold("main/one/cpu: Failed, CompileFailed: torch said no"), "TargetsFailed"),
    (cold("the compiler caches did not hold it"), "CachesNotUsed"),
    (cold("Preheat failed: NativeError: x"), "LibraryFailed"),
    (cold("it is not a module's own call, and artifacts are of modules"), "NotAModule"),
    (cold("TORCHDYNAMO_DISABLE=1 is set"), "CompileOff"),
    (cold("something else"), "Other"),
    ({"outcome": "refused", "reason": "no revision was ready for this pod's image when it started"}, "NoRevision"),
    ({"outcome": "eager", "reason": "its answer differed from eager's by 0.5"}, "PackageWrong"),
    ({"outcome": "warm", "reason": "compiler caches"}, "Caches"),
    ({"outcome": "eager", "reason": "SpeedupBelowMinimum: 0.9 times as fast"}, "Rejected"),
    (
        {"outcome": "eager", "reason": "x; there is no C++ compiler in the image, so the model runs eagerly"},
        "NoCompiler",
    ),
    (
        {
            "outcome": "eager",
            "reason": "x; torch's compiler has no place to work in: /tmp is mounted noexec; y, so the model runs eagerly",
        },
        "NoRoom",
    ),
    (
        cold("main/one/cpu: /opt/preheat/revision/main/one/cpu is mounted noexec, so no code in it can run"),
        "NotExecutable",
    ),
]


@pytest.mark.parametrize(("record", "cause"), RECORDED)
def test_what_the_runtime_says(record: dict[str, Any], cause: str) -> None:
    said = why(serving_log=log(record))
    assert (said.outcome, said.cause, said.why) == (record["outcome"], cause, record["reason"])
    assert said.remedy == remedies.OF_REASON[cause]


def test_where_torch_could_not_compile_either_both_are_told() -> None:
    more = "; there is no C++ compiler in the image, so the model runs eagerly"
    said = why(serving_log=log({"outcome": "eager", "reason": TORCH + more}))
    assert (said.outcome, said.cause, said.remedy) == ("eager", "TorchDiffers", remedies.OF_REASON["TorchDiffers"])
    assert "torch could not compile the call either; to let it: add g++ to the image" in said.notes
    alone = why(serving_log=log({"outcome": "eager", "reason": f"compiler caches{more}"}))
    assert "g++" in alone.remedy
    assert not any("either" in note for note in (*alone.notes, *why(serving_log=log(cold(TORCH))).notes))


def test_every_class_has_a_remedy() -> None:
    assert set(remedies.OF_REASON) == set(CLASSES)
    assert {cause for _, cause in RECORDED} | set(FETCH_FAILURES.values()) | {"Package"} == set(CLASSES)


def test_the_runtime_s_own_class_counts_when_it_is_known() -> None:
    assert why(serving_log=log(cold("words of a newer runtime", reasonClass="TorchDiffers"))).cause == "TorchDiffers"
    assert why(serving_log=log(cold(TORCH, reasonClass="NewerThanThis"))).cause == "TorchDiffers"


def test_a_pod_of_many_processes_is_as_cold_as_its_coldest() -> None:
    said = why(serving_log=log(HOT, cold(TORCH, pid=2), HOT | {"pid": 3}))
    assert (said.outcome, said.cause) == ("cold", "TorchDiffers")
    assert "first answers in the log: 2 hot, 1 cold" in said.notes


def test_hot_at_first_and_later_calls_that_no_bucket_covers() -> None:
    later = cold(
        "no bucket answers this call: one: argument x: has shape (9, 64), compiled for (1, 64)", when="changed"
    )
    said = why(serving_log=log(HOT, later))
    assert said.outcome == "hot"
    note = next(note for note in said.notes if "later" in note)
    assert "(9, 64)" in note
    assert "bucket" in note


def test_faults_are_told() -> None:
    text = (
        log(cold("Preheat failed: x"))
        + json.dumps({"logger": "preheat", "event": "preheat-error", "reason": "bug"})
        + "\n"
    )
    assert "a fault of Preheat's: bug" in why(serving_log=text).notes
    assert (
        "a fault of Preheat's: preheat: the hook failed: OSError"
        in why(serving_log="preheat: the hook failed: OSError\n").notes
    )


def test_torn_and_foreign_lines_are_passed_over() -> None:
    text = '{"logger": "preheat", "event": "pre\nnull preheat\n[1] preheat {\n2026-01-01 out: ' + log(HOT, other="")
    assert why(serving_log=text).outcome == "hot"
