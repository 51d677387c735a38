"""What fresh processes must be, with programs of our own in place of a model's: each thing that must not be is refused."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest

from preheat_compiler import fresh_proof
from preheat_compiler.fresh_proof import FreshProof
from preheat_compiler.inputs import Sizes
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError
from unit.compiler import requests

if TYPE_CHECKING:
    from pathlib import Path

#: Answers as `preheat_compiler.fresh` does, but for what `odd.json` beside it has to say of the served process.
LAUNCHER = """
import json, os, pathlib, subprocess, sys, time
role, arguments = sys.argv[1], sys.argv[2:]
options = dict(zip(arguments[::2], arguments[1::2]))
here = pathlib.Path(__file__).parent
odd = json.loads((here / "odd.json").read_text()) if role == "fresh" else {}
with open(here / "ran", "a") as log:
    log.write(f"{role} {options['--seal']} {options['--compare']}\\n")
if odd.get("strict") and options["--seal"] == "no":
    odd = {}
if "says" in odd:
    print(odd["says"].replace("<own>", options["--writable"]))
if "dies" in odd:
    print(odd.get("last", ""))
    sys.exit(odd["dies"])
if "writes" in odd:
    os.makedirs(odd["writes"])
if "hangs" in odd:
    time.sleep(300)
if role == "fresh" and odd.get("said", True):
    line = {"event": "preheat", "outcome": "hot", "reason": "package", **odd.get("line", {})}
    (pathlib.Path(os.environ["PREHEAT_WORK_DIR"]) / "reports.jsonl").write_text(json.dumps(line) + "\\n")
for words in odd.get("runs", []):
    subprocess.run(words, check=False)
noted, log = [], pathlib.Path(options["--noted"])
for runs in odd.get("assembles", [[], [], []]):  # when the model is loaded, answers, is compared
    for words in runs:
        subprocess.run([os.environ["TRITON_PTXAS_PATH"], *words], check=True)
    noted.append(log.stat().st_size if log.exists() else 0)
noted.pop()
with open(here / "triton", "a") as told:
    told.write(f"{role} TRITON_PTXAS_PATH={os.environ.get('TRITON_PTXAS_PATH')}\\n")
peak = {"before": 1, "peak": odd.get("peak", 2), "reset": True, "device": None}
seen = {"seconds": 1.5, "memory": peak, "seal": None, "imported": [], "maximum": "0.0", "why": "", "notEmpty": [], "compiler": None, "noted": noted}
pathlib.Path(options["--answer"]).write_text(json.dumps({**seen, **odd.get("answer", {})}))
"""


class Place:
    """One artifact, and what its served processes do."""

    def __init__(self, folder: Path, **keep_if: str) -> None:
        self.folder = folder
        self.report = Report(target="main/batch")
        self.request = parse_request(requests.make(keepIf={"minSpeedup": "1.05", **keep_if}))
        (folder / "launcher.py").write_text(LAUNCHER)
        (folder / "artifact").mkdir()
        (folder / "artifact" / "target.json").write_text("{}")

    def prove(
        self, odd: dict[str, Any], *, tier: str = "package", seconds: float = 60.0, kind: str = "cpu"
    ) -> fresh_proof.FirstAnswers:
        (self.folder / "odd.json").write_text(json.dumps(odd))
        deadline = time.monotonic() + seconds
        proof = FreshProof(
            launcher=self.folder / "launcher.py", request_file=self.folder / "request.json", request=self.request,
            module="main", bucket="batch", sizes=(Sizes(name="typical", by_dim={"n": 2}),), work=self.folder / "fresh",
            report=self.report, left=lambda: deadline - time.monotonic(), kind=kind,
        )  # fmt: skip
        return proof.first_answers(
            self.folder / "artifact", tier=tier, request_key="0" * 64, fingerprint={}, allowed=1e-3
        )

    @property
    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().splitlines()

    @property
    def proofs(self) -> list[dict[str, Any]]:
        return list(self.report.sections["proofs"])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_is_served_hot_and_right_is_proved_in_two_pairs(place: Place) -> None:
    seen = place.prove({})
    assert (seen.served, seen.eager) == (1.5, 1.5)
    assert place.ran == ["fresh yes yes", "eager yes no", "fresh yes no", "eager yes no"]
    assert [proof["compilerRuns"] for proof in place.proofs] == [0, 0]


@pytest.mark.parametrize(
    ("odd", "tier", "words"),
    [
        ({"said": False}, "package", "the runtime was not loaded, or not asked"),
        ({"line": {"outcome": "cold", "reason": "Mismatch"}}, "package", r"an answer was cold, not hot \(Mismatch\)"),
        ({"line": {"outcome": "hot"}}, "caches", r"an answer was hot, not warm"),
        ({"line": {"outcome": None, "when": "load"}}, "package", r"an answer was load, not hot"),
        ({"runs": [["g++", "x.cpp"]]}, "package", "a compiler ran 1 times"),
        ({"runs": [["g++", "-fsyntax-only", "none.cpp"]], "line": {"outcome": "warm"}}, "caches", "a compiler ran 1"),
        ({"answer": {"imported": ["torch._inductor"]}}, "package", "the first answer imported torch._inductor"),
        ({"answer": {"maximum": "0.5"}}, "package", r"differs from eager's by 5.0e-01 \(allowed 1.0e-03\)"),
        ({"answer": {"maximum": "nan", "why": "NaN here"}}, "package", "differs from eager's by nan .*NaN here"),
        ({"dies": 3}, "package", "a fresh process that loads the model exited with code 3"),
    ],
)
def test_each_thing_that_a_served_process_must_not_be_is_refused(
    place: Place, odd: dict[str, Any], tier: str, words: str
) -> None:
    with pytest.raises(TargetError, match=words) as raised:
        place.prove(odd, tier=tier)
    assert raised.value.reason == "ProofFailed"
    assert place.ran == ["fresh yes yes", "fresh no yes"], "once more, in a pod that is less strict"


@pytest.mark.parametrize(
    ("odd", "words"),
    [
        (
            {"dies": 1, "last": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9 GiB."},
            "whose GPU has more",
        ),
        ({"dies": 1, "last": "RuntimeError: DefaultCPUAllocator: can't allocate memory"}, "Raise the memory limit"),
    ],
)
def test_a_fresh_process_without_enough_memory_is_no_fault_of_the_artifact(
    place: Place, odd: dict[str, Any], words: str
) -> None:
    with pytest.raises(TargetError, match=words) as raised:
        place.prove(odd)
    assert raised.value.reason == "OutOfMemory"
    assert place.ran == ["fresh yes yes", "fresh no yes"], "a strict pod's own limits may have been the cause"


def test_what_a_strict_pod_alone_has_no_memory_for_is_proved_without(place: Place) -> None:
    place.prove({"strict": True, "dies": 1, "last": "torch.OutOfMemoryError: CUDA out of memory."})
    assert place.ran == ["fresh yes yes", "fresh no yes", "eager no no", "fresh no no", "eager no no"]


def test_caches_may_import_the_compiler_and_are_warm(place: Place) -> None:
    odd = {"answer": {"imported": ["torch._inductor"]}, "line": {"outcome": "warm"}, "runs": [["g++", "--version"]]}
    place.prove(odd, tier="caches")
    assert [proof["compilerRuns"] for proof in place.proofs] == [0, 0]


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What Triton is told to assemble with."""
    script = tmp_path / "real-ptxas"
    script.write_text("#!/bin/sh\nexit 0\n")
    script.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(script))
    return str(script)


ASSEMBLE = ["-lineinfo", "-v", "--gpu-name=sm_90a", "kernel.ptx", "-o", "kernel.o"]


def test_caches_of_a_gpu_that_have_a_kernel_assembled_are_not_warm(place: Place, ptxas: str) -> None:
    odd = {"line": {"outcome": "warm"}, "assembles": [[], [ASSEMBLE, ["--version"], ASSEMBLE], []]}
    with pytest.raises(TargetError, match="a compiler ran 2 times"):
        place.prove(odd, tier="caches", kind="cuda")
    assert [proof["compilerRuns"] for proof in place.proofs] == [2, 2]


def test_what_the_model_has_assembled_without_the_artifact_is_not_the_answers_doing(place: Place, ptxas: str) -> None:
    odd = {"line": {"outcome": "warm"}, "assembles": [[ASSEMBLE], [["--version"]], [ASSEMBLE]]}
    place.prove(odd, tier="caches", kind="cuda")
    assert [proof["compilerRuns"] for proof in place.proofs] == [0, 0]


def test_assemblers_are_watched_where_a_gpu_is_served_and_nowhere_else(place: Place, ptxas: str) -> None:
    for kind in ("cpu", "cuda"):
        place.prove({"line": {"outcome": "warm"}}, tier="caches", kind=kind)
    told = (place.folder / "triton").read_text().splitlines()
    given = f"TRITON_PTXAS_PATH={ptxas}"
    assert [line.startswith(f"{role} {given}") for role, line in zip(["fresh", "eager"] * 4, told, strict=True)] == [
        True, True, True, True, False, True, False, True,
    ]  # fmt: skip


def test_what_only_a_strict_pod_breaks_is_proved_without_and_told(place: Place) -> None:
    place.prove({"strict": True, "line": {"outcome": "cold", "reason": "NoRoom"}})
    *_, last = place.proofs
    assert (last["conditions"]["readOnlyFileSystem"], last["conditions"]["emptyHome"]) == (False, True)
    (why,) = last["conditions"]["why"]
    assert why == (
        "what went wrong with both: in a fresh process that sees only the artifact an answer was cold, not hot (NoRoom)"
    )


def test_what_fails_at_a_file_of_the_jobs_own_is_not_proved_where_that_file_can_be_written(place: Place) -> None:
    error = f"OSError: [Errno 30] Read-only file system: '{place.folder / 'inductor-for-pods' / 'ab'}'"
    with pytest.raises(TargetError, match=r"Read-only file system: .*inductor-for-pods") as raised:
        place.prove({"strict": True, "says": error, "dies": 1}, tier="caches")
    assert raised.value.reason == "ProofFailed"
    assert place.ran == ["fresh yes yes"], "there is no try that is less strict"


def test_what_fails_at_a_file_of_the_pods_own_may_be_the_strict_pods_doing(place: Place) -> None:
    place.prove({"strict": True, "says": "OSError: [Errno 13] Permission denied: '<own>/tmp/model.lock'", "dies": 1})
    assert place.ran[:2] == ["fresh yes yes", "fresh no yes"]


def test_what_writes_to_the_jobs_own_caches_is_refused_where_nothing_is_sealed(place: Place) -> None:
    odd = {"line": {"outcome": "warm"}, "writes": str(place.folder / "inductor-for-pods" / "ab")}
    with pytest.raises(TargetError, match=r"it wrote to .*inductor-for-pods, which is the compile Job's own"):
        place.prove(odd, tier="caches")
    assert place.ran == ["fresh yes yes"]


def test_a_process_that_does_not_end_is_a_matter_of_time(place: Place) -> None:
    with pytest.raises(TargetError, match="did not answer in time") as raised:
        place.prove({"hangs": True}, seconds=1.0)
    assert raised.value.reason == "Timeout"


def test_conditions_are_those_that_the_process_saw(place: Place) -> None:
    seal = {"readOnlyFileSystem": True, "nonRoot": True, "why": ["it may read what root may"]}
    place.prove({"answer": {"seal": seal, "notEmpty": ["TMPDIR"], "compiler": "g++"}})
    assert place.proofs[0]["conditions"] == {
        "readOnlyFileSystem": True, "nonRoot": True, "emptyHome": False, "noCompiler": False,
        "why": ["it may read what root may", "TMPDIR was not empty", "g++ runs"],
    }  # fmt: skip
    place.prove({"answer": {"seal": seal}})
    conditions = place.proofs[-1]["conditions"]
    assert (conditions["emptyHome"], conditions["noCompiler"], conditions["why"]) == (True, True, seal["why"])


def test_slow_processes_are_started_once_unless_memory_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_proof, "_FRESH_SECONDS", 0.0)
    for name, gates, pairs in (("told", {}, 1), ("judged", {"maxMemoryGrowth": "2"}, 3)):
        (tmp_path / name).mkdir()
        place = Place(tmp_path / name, **gates)
        seen = place.prove({})
        assert [each.partition(" ")[0] for each in place.ran] == ["fresh", "eager"] * pairs, name
        assert seen.memory is not None
        shutil.rmtree(tmp_path / name)
