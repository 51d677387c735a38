"""Small parts that look at, or make, what surrounds a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from preheat_compiler import layout
from preheat_compiler.kills import memory_kills
from preheat_compiler.progress import TERMINATION_LIMIT, Termination
from preheat_compiler.prove import last_words, pod_environment, said_by_runtime
from preheat_compiler.report import decimal
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError, TargetResult, shorten
from preheat_runtime.manifest import Manifest
from preheat_runtime.processors import processors
from unit.compiler import requests


def test_a_quota_bounds_the_processors(tmp_path: Path) -> None:
    assert processors(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert processors(tmp_path) == len(os.sched_getaffinity(0))
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert processors(tmp_path) == 1


def test_the_older_cgroups_quota_counts_too(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("100000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert processors(tmp_path) == 1
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1\n")
    assert processors(tmp_path) == len(os.sched_getaffinity(0))


def test_kills_for_memory_are_counted(tmp_path: Path) -> None:
    assert memory_kills(tmp_path) is None
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 3\noom 2\noom_kill 1\noom_group_kill 0\n")
    assert memory_kills(tmp_path) == 1


def test_the_termination_message_keeps_what_ran_when_names_do_not_fit(tmp_path: Path) -> None:
    log = Termination(tmp_path / "log")
    log.running("main/last", [f"module-{index:040d}/bucket" for index in range(128)])
    text = (tmp_path / "log").read_text()
    assert len(text) <= TERMINATION_LIMIT
    assert json.loads(text)["running"] == "main/last"


def test_an_unwritable_termination_log_does_not_end_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Termination(tmp_path / "none" / "log").running("a/b", [])
    assert "no termination message" in capsys.readouterr().err


def test_figures_are_decimal_strings() -> None:
    assert decimal(1.75) == "1.7500"
    assert decimal(0) == "0"
    assert decimal(0.0) == "0.0000"
    assert decimal(8.3e-8) == "8.300e-08"
    assert decimal(1900000) == "1900000"
    assert decimal(float("inf")) is None
    assert decimal(float("nan")) is None


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    text = shorten("the fault " + "x" * 5000 + " the remedy")
    assert len(text) <= 1024
    assert text.startswith("the fault")
    assert text.endswith("the remedy")


def test_only_listed_verdicts_can_be_written() -> None:
    with pytest.raises(ValueError, match="closed list"):
        TargetResult(module="m", bucket="b", verdict="Kept", reason="BecauseISaySo", message="")
    with pytest.raises(ValueError, match="no reason"):
        TargetError("Faster", "")


def test_a_pod_is_laid_out_with_a_manifest_that_its_readers_accept(tmp_path: Path) -> None:
    artifact = tmp_path / "artifact"
    (artifact / "caches").mkdir(parents=True)
    (artifact / "caches" / "a").write_bytes(b"a" * (17 * 1024 * 1024))
    (artifact / "target.json").write_text("{}")
    pod = layout.lay_out(
        tmp_path / "pod", artifact, request=parse_request(requests.make()), module="main", bucket="batch",
        tier="caches", request_key="0" * 64, fingerprint={"torch": "2.15.0"},
    )  # fmt: skip
    manifest = Manifest.parse((pod / "revision/manifest.json").read_bytes())
    (target,) = manifest.targets
    assert (target.verdict, target.tier, target.folder) == ("Kept", "caches", "main/batch/cpu")
    assert [(file.path, len(file.pieces)) for file in target.files] == [("caches/a", 2), ("target.json", 1)]
    assert (pod / "revision/main/batch/cpu/caches/a").stat().st_size == 17 * 1024 * 1024
    assert (pod / "site/preheat_runtime/hook.py").is_file()
    (info,) = (pod / "site").glob("*.dist-info")
    assert "preheat_runtime.hook:autoload" in (info / "entry_points.txt").read_text()


def test_compilers_are_counted_and_stopped_or_passed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stopped = layout.shims(tmp_path / "stopped", log=log, pass_on=False)
    environment = {"PATH": f"{stopped}:{os.environ['PATH']}"}
    assert subprocess.run(["g++", "x.cpp"], env=environment, check=False, capture_output=True).returncode == 127
    assert subprocess.run(["g++", "--version"], env=environment, check=False, capture_output=True).returncode == 127
    assert layout.compiler_runs(log) == 1
    log.unlink()
    passing = layout.shims(tmp_path / "passing", log=log, pass_on=True)
    environment = {"PATH": f"{passing}:{os.environ['PATH']}"}
    version = subprocess.run(["g++", "--version"], env=environment, check=True, capture_output=True, text=True)
    assert "Free Software" in version.stdout
    where = [
        sys.executable,
        "-S",
        "-c",
        "import ctypes.util as u; u._findSoname_ldconfig = lambda _: None; u.find_library('nowhere')",
    ]
    subprocess.run(where, env=environment, check=True)
    assert "nowhere" in log.read_text(), "Python asked the compiler or the linker"
    assert layout.compiler_runs(log) == 0
    assert layout.compiler_runs(tmp_path / "none") == 0


def program(path: Path, words: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(0o755)
    return path


def test_triton_runs_its_assemblers_as_they_are_and_each_run_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = tmp_path / "site" / "triton" / "backends" / "nvidia" / "bin"
    program(backend / "ptxas", 'echo "release 13.0 $*"')
    program(backend / "ptxas-blackwell", "exit 3")
    (tmp_path / "site" / "triton" / "__init__.py").write_text("raise ImportError('it is not to be imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site")])
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    for name in layout.ASSEMBLERS:
        monkeypatch.delenv(name, raising=False)
    log = tmp_path / "log"
    given = layout.assembler_shims(tmp_path / "bundled", log=log)
    assert sorted(given) == ["TRITON_PTXAS_BLACKWELL_PATH", "TRITON_PTXAS_PATH"]

    def run(variable: str, *words: str) -> tuple[int, str]:
        ended = subprocess.run([given[variable], *words], check=False, capture_output=True, text=True)
        return ended.returncode, ended.stdout.strip()

    assert run("TRITON_PTXAS_PATH", "--version") == (0, "release 13.0 --version")
    assert layout.compiler_runs(log) == 0
    before = log.stat().st_size
    words = ["-lineinfo", "-v", "--gpu-name=sm_80", "a b.ptx"]
    assert run("TRITON_PTXAS_PATH", *words) == (0, "release 13.0 -lineinfo -v --gpu-name=sm_80 a b.ptx")
    assert run("TRITON_PTXAS_BLACKWELL_PATH", *words) == (3, "")
    assert layout.compiler_runs(log) == 2
    assert (layout.compiler_runs(log, before), layout.compiler_runs(log, 0, before)) == (2, 0)


def test_an_assembler_that_the_user_names_is_run_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    for name in layout.ASSEMBLERS:
        monkeypatch.delenv(name, raising=False)
    assert layout.assembler_shims(tmp_path / "no Triton", log=tmp_path / "log") == {}
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(program(tmp_path / "mine", "echo mine")))
    monkeypatch.setenv("TRITON_PTXAS_BLACKWELL_PATH", str(tmp_path / "absent"))
    given = layout.assembler_shims(tmp_path / "named", log=tmp_path / "log")
    assert list(given) == ["TRITON_PTXAS_PATH"]
    assert subprocess.run([given["TRITON_PTXAS_PATH"]], check=True, capture_output=True).stdout == b"mine\n"


def test_whether_a_compiler_runs_is_seen_by_asking_it_and_asking_is_no_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, real = tmp_path / "log", os.environ["PATH"]
    for name, pass_on, found in (("stopped", False, None), ("passing", True, "g++")):
        shims = layout.shims(tmp_path / name, log=log, pass_on=pass_on)
        monkeypatch.setenv("PATH", f"{shims}:{real}")
        assert layout.answering_compiler() == found
        monkeypatch.setenv("PATH", real)
    assert log.read_text()
    assert layout.compiler_runs(log) == 0


def test_a_compiler_that_stands_for_another_does_not_find_the_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As ccache does: whatever is in PATH under its own name, except itself.
    wrapper, behind = tmp_path / "wrapper's", tmp_path / "behind"
    for folder, words in (
        (wrapper, 'for d in $(echo "$PATH" | tr : " "); do [ "$d" = "${0%/*}" ] || exec "$d/g++" "$@"; done'),
        (behind, 'echo "compiled $*"'),
    ):
        folder.mkdir()
        (folder / "g++").write_text(f"#!/bin/sh\n{words}\n")
        (folder / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper}:{behind}:{os.environ['PATH']}")
    passing = layout.shims(tmp_path / "passing", log=tmp_path / "log", pass_on=True)
    environment = {"PATH": f"{passing}:{os.environ['PATH']}"}
    seen = subprocess.run(["g++", "x.cpp"], env=environment, check=True, capture_output=True, text=True, timeout=20)
    assert seen.stdout == "compiled x.cpp\n"
    assert layout.compiler_runs(tmp_path / "log") == 1


def test_a_fresh_process_sees_no_caches_but_the_models_own_weights(tmp_path: Path) -> None:
    given = {
        "HOME": "/root-of-user",
        "TORCHINDUCTOR_CACHE_DIR": "/c",
        "PREHEAT_DISABLE": "1",
        "HF_HOME": "/weights",
        "CXX": "g++",
    }
    seen = pod_environment(tmp_path, given)
    assert seen["HF_HOME"] == "/weights"
    assert seen["TORCH_HOME"] == "/root-of-user/.cache/torch"
    assert not {"TORCHINDUCTOR_CACHE_DIR", "PREHEAT_DISABLE", "CXX"} & seen.keys()
    assert list(Path(seen["HOME"]).iterdir()) == list(Path(seen["TMPDIR"]).iterdir()) == []


def test_what_a_failed_process_said_last(tmp_path: Path) -> None:
    said = "preheat: the hook failed: KeyError: 'x'\nTraceback:\n  File ...\nRuntimeError: no\n\nmore words\n"
    assert last_words(said) == "preheat: the hook failed: KeyError: 'x' | RuntimeError: no"
    assert last_words("a\nb") == "a | b"
    fault = json.dumps({"logger": "preheat", "event": "preheat-error", "reason": "the hook failed: KeyError: 'x'"})
    assert last_words(f"{fault}\nRuntimeError: no\n") == "preheat: the hook failed: KeyError: 'x' | RuntimeError: no"
    assert last_words('"preheat-error" {') == '"preheat-error" {'
    assert said_by_runtime(tmp_path) == []
