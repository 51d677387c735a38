"""The spike's own promises, without a GPU and without torch: one experiment never costs another, and nothing is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

GPU = Path(__file__).parents[2] / "gpu"

RUN = f"""
import os, signal, sys, time
sys.path.insert(0, {str(GPU)!r})
import spike
from context import Experiment

def good(context):
    (context.work / "left").write_text("here")
    context.note(first=1.23456789, folder={{"a|b": "<x>"}})
    context.attempt("second", lambda: 1 / 0)

def hangs(context):
    context.note(before="the hang")
    if os.fork() == 0:
        time.sleep(600)
    time.sleep(600)

def crashes(context):
    context.note(before="the crash")
    os.kill(os.getpid(), signal.SIGSEGV)

def fails(context):
    raise RuntimeError("in words")

def needs(context):
    context.note(found=(context.shared / "good" / "left").read_text(), **os.environ, options=context.options)

def experiment(name, run, **more):
    return Experiment(name=name, question=f"What of {{name}}?", run=run, **{{"seconds": 60, **more}})

spike.preflight = lambda device: "" if device == "cpu" else "no torch here"
spike.experiments = lambda: (
    experiment("good", good),
    experiment("hangs", hangs, seconds=2),
    experiment("crashes", crashes),
    experiment("fails", fails),
    experiment("needs", needs, needs=("good",), environment=lambda: {{"GIVEN": "yes"}}),
    experiment("orphan", needs, needs=("crashes",)),
    experiment("cuda", good, cuda_only=True),
    experiment("alone", good, alone=True),
)
sys.exit(spike.main())
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "run.py").write_text(RUN)
    command = [sys.executable, str(folder / "run.py"), "--out", str(folder / "out"), "--device", "cpu", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def records(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "out" / "cuda.json").read_text())
    return {each["experiment"]: each for each in content["records"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spike")
    done = run(folder, "--lanes", "2", "--pairs", "3")
    assert done.returncode == 0, done.stderr
    return folder


def test_every_experiment_has_a_record_and_none_costs_another(folder: Path) -> None:
    assert {name: each["status"] for name, each in records(folder).items()} == {
        "good": "ok", "hangs": "timeout", "crashes": "crashed", "fails": "failed",
        "needs": "ok", "orphan": "skipped", "cuda": "skipped", "alone": "ok",
    }  # fmt: skip


def test_what_was_seen_before_a_crash_or_a_hang_is_kept(folder: Path) -> None:
    seen = records(folder)
    assert seen["hangs"]["facts"] == {"before": "the hang"}
    assert seen["crashes"]["facts"] == {"before": "the crash"}
    assert "SIGSEGV" in seen["crashes"]["error"]
    assert seen["fails"]["error"] == "exit 1: RuntimeError: in words"
    assert seen["good"]["facts"]["second"] == "ZeroDivisionError: division by zero"
    assert seen["orphan"]["error"] == "it needs crashes, which is not there"
    assert seen["cuda"]["error"] == "it needs a CUDA device"


def test_an_experiment_gets_what_it_needs_and_caches_of_its_own(folder: Path) -> None:
    facts = records(folder)["needs"]["facts"]
    assert (facts["found"], facts["GIVEN"], facts["options"]) == ("here", "yes", {"pairs": "3"})
    for name in ("TMPDIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        assert facts[name].startswith(str(folder / "out" / "work" / "needs"))


def test_the_page_says_what_it_was_run_on_and_leaves_nothing_out(folder: Path) -> None:
    page = (folder / "out" / "cuda.md").read_text()
    assert "nothing here says anything of one" in page
    for name, each in records(folder).items():
        assert f"| {name} |" in page
        assert f"| {each['status']}" in page
    assert "- first: 1.235" in page
    assert "  - a|b: &lt;x>" in page


def test_when_the_time_is_over_the_rest_says_so(tmp_path: Path) -> None:
    assert run(tmp_path, "--limit", "5").returncode == 0
    assert {each["error"] for each in records(tmp_path).values() if each["experiment"] != "cuda"} == {"no time was left", "it needs good, which is not there", "it needs crashes, which is not there"}  # fmt: skip


def test_only_runs_what_is_named_and_what_that_needs(tmp_path: Path) -> None:
    assert run(tmp_path, "--only", "needs").returncode == 0
    assert set(records(tmp_path)) == {"good", "needs"}
    again = run(tmp_path, "--only", "good")
    assert again.returncode == 2
    assert "--out:" in again.stderr
    missing = run(tmp_path / "missing", "--device", "cuda")
    assert (missing.returncode, (tmp_path / "missing" / "out").exists()) == (2, False)
    assert "no torch here" in missing.stderr
    unknown = run(tmp_path / "other", "--only", "nosuch")
    assert "there is no nosuch; there are good" in unknown.stderr


def test_a_page_of_a_gpu_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GPU))
    findings = load("findings")
    machine = {
        "experiment": "machine", "question": "?", "status": "ok", "error": None, "seconds": 1.0,
        "facts": {
            "torch": "2.15.0", "cuda": "13.2", "python": "3.12.1", "cpus": 16,
            "devices": [{"name": "Card", "capability": "9.0", "memoryMB": 1}],
        },
    }  # fmt: skip
    page = findings.markdown([machine], device="cuda", day="2026-01-02")
    assert "2026-01-02, Card (capability 9.0), torch 2.15.0, Python 3.12.1, CUDA 13.2 of torch, 16 CPUs." in page
    assert "nothing here" not in page.lower()


def load(name: str) -> ModuleType:
    import importlib

    return importlib.import_module(name)
