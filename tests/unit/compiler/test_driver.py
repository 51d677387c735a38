"""The driver with targets that are programs of our own: whatever one does costs that one alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from preheat_compiler import driver
from preheat_compiler.driver import target_environment, time_limit
from preheat_compiler.processes import Ended
from unit.compiler import requests, toolkits

TORCH = """
import json
FILE = "torch.json"
def tell(file):
    json.dump({"version": "9", "reason": None, "message": "torch 9"}, open(file, "w"))
    return True
"""
NO_TORCH = (
    TORCH.replace("None", '"TorchMissing"').replace('"torch 9"', '"cannot import torch"').replace("True", "False")
)
CRASHING_TORCH = 'import os\nFILE = "torch.json"\ndef tell(file):\n    os.abort()\n'
#: Importing it takes for ever, or is killed, for the bucket that is called so.
ODD_TORCH = """
import os, signal, time
FILE = "torch.json"
def tell(file):
    name = file.parent.name
    if name == "slow":
        time.sleep(300)
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_text('{"version": "9", "reason": null, "message": "torch 9"}')
    return True
"""
TARGET = """
import json, os, pathlib, signal, subprocess, sys, time
def main(argv, *, launcher):
    options = dict(zip(argv[::2], argv[1::2]))
    work, bucket = pathlib.Path(options["--work"]), options["--bucket"]
    (work / "stage").write_text("working")
    with open("ran", "a") as log:
        log.write(bucket + "\\n")
    if bucket == "crash":
        os.abort()
    if bucket == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if bucket == "silent":
        return 3
    if bucket in {"leaves", "breaks"}:
        (work / "stage").write_text("loading the model" if bucket == "leaves" else "running eager")
        os._exit(0)
    if bucket == "full":
        return 75
    if bucket == "hang":
        pathlib.Path("target").write_text(str(os.getpid()))
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        pathlib.Path("child").write_text(str(child.pid))
        time.sleep(300)
    if bucket == "theirs":
        import theirs
        from preheat_compiler import ingredients
        (work / "sources.json").write_text(json.dumps(ingredients.imported()))
    (work / "artifact" / "model.so").write_text(os.environ["TMPDIR"])
    (work / "artifact" / "model.so").chmod(0o600)
    verdict = {"module": "main", "bucket": bucket, "verdict": "Kept", "reason": "Faster", "message": "", "tier": "package",
        "requestKey": "0" * 64, "fingerprint": {}, "figures": {}, "files": ["model.so"]}
    (work / "verdict.json").write_text(json.dumps(verdict))
    return 0
"""


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    return toolkits.make(tmp_path / "toolkit", features=TORCH, target=TARGET)


def ask(directory: Path, *buckets: str, timeout: int = 300) -> None:
    raw = requests.make(timeoutSeconds=timeout)
    template = raw["torch"]["modules"][0]["buckets"][0]
    raw["torch"]["modules"][0]["buckets"] = [{**template, "name": name} for name in buckets]
    raw["targets"] = [{"module": "main", "bucket": name} for name in buckets]
    (directory / "request.json").write_text(json.dumps(raw))


def results(directory: Path) -> dict[str, dict[str, Any]]:
    content = json.loads((directory / "out" / "result.json").read_text())
    return {target["bucket"]: target for target in content["targets"]}


def ran(directory: Path) -> list[str]:
    return (directory / "ran").read_text().split()


def termination(directory: Path) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((directory / "termination").read_text())
    return message


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text():  # there, and written to
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_bad_targets_cost_only_themselves(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "crash", "killed", "silent", "full", "two")
    code, said = toolkits.run(toolkit, tmp_path)
    found = results(tmp_path)
    assert code == 0, said
    assert {name: target["verdict"] for name, target in found.items()} == {
        "one": "Kept", "crash": "Failed", "killed": "Failed", "silent": "Failed", "full": "Failed",
        "two": "Kept",
    }  # fmt: skip
    assert found["crash"]["reason"] == "CompileFailed"
    assert "SIGABRT" in found["crash"]["message"]
    assert "while working" in found["crash"]["message"]
    assert found["killed"]["reason"] in {"OutOfMemory", "Killed"}
    assert found["silent"]["reason"] == "Internal"
    assert "code 3" in found["silent"]["message"]
    assert found["full"]["reason"] == "DiskFull", "no room for its own verdict"
    assert found["crash"]["files"] == ["report.json"]
    assert json.loads((tmp_path / "out/main/crash/report.json").read_text())["reason"] == "CompileFailed"
    assert termination(tmp_path)["done"] == [
        f"main/{name}" for name in ("one", "crash", "killed", "silent", "full", "two")
    ]
    assert "running" not in termination(tmp_path)


def test_who_ends_the_process_in_the_users_own_code_is_not_us(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "leaves", "breaks")
    assert toolkits.run(toolkit, tmp_path)[0] == 0
    found = results(tmp_path)
    assert {name: target["reason"] for name, target in found.items()} == {
        "leaves": "FactoryFailed", "breaks": "InputsRefused",
    }  # fmt: skip
    assert "exited with code 0 while loading the model: torch.factory" in found["leaves"]["message"]


def test_every_target_has_temporary_files_of_its_own_and_leaves_none(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "two")
    assert toolkits.run(toolkit, tmp_path)[0] == 0
    folders = {(tmp_path / "out/main" / name / "model.so").read_text() for name in ("one", "two")}
    assert len(folders) == 2
    assert not any(Path(folder).exists() for folder in folders)
    assert not (tmp_path / "out/.work").exists()


def test_another_user_can_read_what_was_made(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one")
    assert toolkits.run(toolkit, tmp_path)[0] == 0
    for path in ("result.json", "main/one", "main/one/model.so"):
        assert (tmp_path / "out" / path).stat().st_mode & 0o044 == 0o044


def test_a_target_that_hangs_is_ended_with_its_children_and_the_next_one_runs(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "hang", "one", timeout=20)
    code, said = toolkits.run(toolkit, tmp_path)
    assert code == 0, said
    found = results(tmp_path)
    assert (found["hang"]["reason"], found["one"]["verdict"]) == ("Timeout", "Kept")
    assert "timeoutSeconds" in found["hang"]["message"]
    assert gone(int((tmp_path / "child").read_text()))


def test_a_finished_target_is_not_compiled_again(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "crash")
    toolkits.run(toolkit, tmp_path)
    before = results(tmp_path)
    (tmp_path / "out" / "result.json").unlink()
    ask(tmp_path, "one", "crash", "two")
    # Other buckets make it another request, whose answers are its own.
    toolkits.run(toolkit, tmp_path)
    assert ran(tmp_path) == ["one", "crash", "one", "crash", "two"]
    code, said = toolkits.run(toolkit, tmp_path)
    assert code == 0
    assert "already compiled: main/one, main/crash, main/two" in said
    assert ran(tmp_path) == ["one", "crash", "one", "crash", "two"]
    assert results(tmp_path)["one"] == before["one"]


def test_a_target_whose_files_are_lost_is_compiled_again(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "two")
    toolkits.run(toolkit, tmp_path)
    (tmp_path / "out/main/one/model.so").unlink()
    toolkits.run(toolkit, tmp_path)
    assert ran(tmp_path) == ["one", "two", "one"]
    assert (tmp_path / "out/main/one/model.so").exists()


def test_told_to_stop_it_says_what_was_running_and_goes_on_later(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "hang")
    # As often as one is told to stop: it says nothing of the target. Killed twice, it is not begun again.
    for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        process = toolkits.start(toolkit, tmp_path)
        wait_for(tmp_path / "child")
        child = int((tmp_path / "child").read_text())
        group = os.getpgid(child)
        process.send_signal(how)
        if how == signal.SIGTERM:
            assert process.wait(60) == 143
            assert gone(child)
        else:
            # As the kernel does to all of a container that is out of memory.
            process.wait()
            os.killpg(group, signal.SIGKILL)
        process.communicate()
        assert termination(tmp_path) == {"v": 1, "running": "main/hang", "done": ["main/one"]}
        assert not (tmp_path / "out/main/hang").exists(), "nothing of it is half kept"
        assert not (tmp_path / "out/result.json").exists()
        (tmp_path / "child").unlink()
    code, _ = toolkits.run(toolkit, tmp_path)
    assert code == 0
    assert ran(tmp_path) == ["one", *["hang"] * 5]
    assert (results(tmp_path)["hang"]["verdict"], results(tmp_path)["hang"]["reason"]) == ("Failed", "Killed")


def test_a_target_ends_with_a_driver_that_is_killed(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "hang")
    process = toolkits.start(toolkit, tmp_path)
    wait_for(tmp_path / "child")
    group = os.getpgid(int((tmp_path / "child").read_text()))
    process.kill()
    process.wait()
    until_gone(int((tmp_path / "target").read_text()))
    os.killpg(group, signal.SIGKILL)
    process.communicate()


def test_a_driver_whose_parent_is_gone_already_ends(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one")
    gone_already = subprocess.Popen(["true"])
    gone_already.wait()
    assert toolkits.run(toolkit, tmp_path, "--parent", str(gone_already.pid))[0] == 143
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_terminal_tells_it_to_stop_as_well(toolkit: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    ask(tmp_path, "hang")
    process = toolkits.start(toolkit, tmp_path)
    wait_for(tmp_path / "child")
    process.send_signal(number)
    process.terminate()  # whoever started it, who was told too
    assert process.wait(60) in {code, 143}
    assert gone(int((tmp_path / "child").read_text()))
    process.communicate()


def test_what_a_person_starts_again_is_not_condemned_by_what_was(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one", "crash", "hang")
    for _ in range(3):
        process = toolkits.start(toolkit, tmp_path, "--attended")
        wait_for(tmp_path / "child")
        process.kill()
        process.wait()
        os.killpg(os.getpgid(int((tmp_path / "child").read_text())), signal.SIGKILL)
        process.communicate()
        (tmp_path / "child").unlink()
    assert ran(tmp_path) == ["one", *["crash", "hang"] * 3], "what is Failed is tried again, what is Kept is not"
    ask(tmp_path, "one", "crash", "hang", timeout=8)
    assert toolkits.run(toolkit, tmp_path, "--attended")[0] == 0
    found = results(tmp_path)
    assert {name: target["reason"] for name, target in found.items()} == {
        "one": "Faster", "crash": "CompileFailed", "hang": "Timeout",
    }  # fmt: skip


def test_a_verdict_on_other_code_is_none(toolkit: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text("size = 1\n")
    ask(tmp_path, "theirs", "one")
    for _ in range(2):
        assert toolkits.run(toolkit, tmp_path)[0] == 0
    assert ran(tmp_path) == ["theirs", "one"]
    (tmp_path / "theirs.py").write_text("size = 2\n")
    for _ in range(2):
        assert toolkits.run(toolkit, tmp_path)[0] == 0
    assert ran(tmp_path) == ["theirs", "one", "theirs"]
    # Another version of a package concerns all.
    (tmp_path / "packages" / "torch-9.dist-info").mkdir(parents=True)
    for _ in range(2):
        assert toolkits.run(toolkit, tmp_path, PYTHONPATH=str(tmp_path / "packages"))[0] == 0
    assert ran(tmp_path) == ["theirs", "one", "theirs", "theirs", "one"]


def test_the_images_python_path_is_recorded(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one")
    toolkits.run(toolkit, tmp_path, PYTHONPATH="/app:/lib")
    assert json.loads((tmp_path / "out/result.json").read_text())["imagePythonPath"] == "/app:/lib"
    toolkits.run(toolkit, tmp_path, PYTHONPATH="")
    assert json.loads((tmp_path / "out/result.json").read_text())["imagePythonPath"] is None


@pytest.mark.parametrize(
    ("features", "reason", "says"),
    [(NO_TORCH, "TorchMissing", "cannot import torch"), (CRASHING_TORCH, "TorchUnsupported", "SIGABRT")],
)
def test_without_a_usable_torch_nothing_is_compiled(tmp_path: Path, features: str, reason: str, says: str) -> None:
    toolkit = toolkits.make(tmp_path / "toolkit", features=features, target=TARGET)
    ask(tmp_path, "one")
    assert toolkits.run(toolkit, tmp_path)[0] == 65
    assert termination(tmp_path)["reason"] == reason
    assert says in termination(tmp_path)["message"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("ended", "reason", "says"),
    [
        (
            Ended(code=-signal.SIGKILL, seconds=1, timed_out=False, for_memory=True),
            "OutOfMemory",
            "hardware[].resources",
        ),
        (
            Ended(code=-signal.SIGKILL, seconds=1, timed_out=False, for_memory=None),
            "OutOfMemory",
            "hardware[].resources",
        ),
        (Ended(code=-signal.SIGKILL, seconds=1, timed_out=False, for_memory=False), "Killed", "not for memory"),
        (Ended(code=75, seconds=1, timed_out=False, for_memory=False), "DiskFull", "ephemeral storage"),
        (Ended(code=-signal.SIGSEGV, seconds=1, timed_out=False, for_memory=False), "TorchUnsupported", "SIGSEGV"),
    ],
)
def test_torch_is_blamed_only_for_what_is_its_own(ended: Ended, reason: str, says: str) -> None:
    error = driver._without_answer(ended)
    assert error.reason == reason
    assert says in str(error)


def test_what_another_target_could_import_is_this_ones_own_fault(tmp_path: Path) -> None:
    toolkit = toolkits.make(tmp_path / "toolkit", features=ODD_TORCH, target=TARGET)
    ask(tmp_path, "one", "killed", "two")
    assert toolkits.run(toolkit, tmp_path)[0] == 0
    found = results(tmp_path)
    assert {name: target["verdict"] for name, target in found.items()} == {
        "one": "Kept",
        "killed": "Failed",
        "two": "Kept",
    }
    assert found["killed"]["reason"] in {"OutOfMemory", "Killed"}


def test_an_import_that_takes_too_long_has_a_field_to_raise(tmp_path: Path) -> None:
    toolkit = toolkits.make(tmp_path / "toolkit", features=ODD_TORCH, target=TARGET)
    ask(tmp_path, "slow", "one", timeout=10)
    assert toolkits.run(toolkit, tmp_path)[0] == 0
    found = results(tmp_path)
    assert (found["slow"]["reason"], found["one"]["verdict"]) == ("Timeout", "Kept")
    assert "timeoutSeconds" in found["slow"]["message"]


def test_killed_while_it_imports_torch_it_is_tried_again(tmp_path: Path) -> None:
    toolkit = toolkits.make(tmp_path / "toolkit", features=ODD_TORCH, target=TARGET)
    ask(tmp_path, "killed")
    code, _ = toolkits.run(toolkit, tmp_path)
    # Where the kernel does not say what it killed for, it is taken to be memory, which the same limit would not help.
    assert (code, termination(tmp_path)["reason"]) in [(137, "Killed"), (65, "OutOfMemory")]


def test_a_request_that_cannot_be_read_is_a_fault_of_ours(toolkit: Path, tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"formatVersion": 2}')
    assert toolkits.run(toolkit, tmp_path)[0] == 64
    assert termination(tmp_path)["reason"] == "Internal"
    assert "formatVersion" in termination(tmp_path)["message"]


def test_an_out_folder_that_cannot_be_written_is_an_internal_error(toolkit: Path, tmp_path: Path) -> None:
    ask(tmp_path, "one")
    (tmp_path / "out").write_text("a file")
    assert toolkits.run(toolkit, tmp_path)[0] == 66
    assert termination(tmp_path)["reason"] == "Internal"


def test_no_target_can_use_up_all_the_time() -> None:
    assert time_limit(100, 1) == 100
    left = 100.0
    for waiting in range(8, 0, -1):
        limit = time_limit(left, waiting)
        assert left / waiting <= limit <= left
        left -= limit
        assert left > 0 or waiting == 1
    assert time_limit(-5, 2) == 0


def test_the_users_environment_is_kept_but_for_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/somewhere")
    monkeypatch.setenv("MODEL_SIZE", "large")
    environment = target_environment(tmp_path)
    assert environment["MODEL_SIZE"] == "large"
    assert environment["TMPDIR"] == str(tmp_path / "tmp")
    assert environment["PREHEAT_DISABLE"] == "1"
    assert int(environment["TORCHINDUCTOR_COMPILE_THREADS"]) >= 1
