"""Whatever ends `preheat compile` ends the driver and the target, which nobody else would look after."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unit.compiler import requests, toolkits

FEATURES = """
FILE = "torch.json"
def tell(file):
    file.write_text('{"version": "9", "reason": null, "message": "torch 9"}')
    return True
"""
TARGET = """
import json, os, pathlib, time
def main(argv, *, launcher):
    options = dict(zip(argv[::2], argv[1::2]))
    pathlib.Path("target").write_text(f"{os.getpid()} {os.getppid()}")
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    verdict = {"module": "main", "bucket": options["--bucket"], "verdict": "Failed", "reason": "Timeout", "message": "",
        "tier": None, "requestKey": None, "fingerprint": None, "figures": {}, "files": []}
    (pathlib.Path(options["--work"]) / "verdict.json").write_text(json.dumps(verdict))
    return 0
"""
#: As `preheat compile` runs the driver, and ends.
COMPILE = """
import signal, sys
from pathlib import Path
from preheat_operator.cli import driver
from preheat_operator.cli.errors import CommandError
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
try:
    driver.run(Path.cwd(), python=sys.executable)
except CommandError as error:
    sys.exit(error.code)
"""


def start(folder: Path, how: str = "") -> tuple[subprocess.Popen[bytes], list[int]]:
    """The command, in a group of its own as a shell's, and the processes of target and driver once they run."""
    toolkits.make(folder / "toolkit", features=FEATURES, target=TARGET)
    (folder / "request.json").write_text(json.dumps(requests.make()))
    (folder / "out").mkdir()
    process = subprocess.Popen([sys.executable, "-c", COMPILE, how], cwd=folder, start_new_session=True)
    until(lambda: (folder / "target").exists() and bool((folder / "target").read_text()))
    return process, [int(each) for each in (folder / "target").read_text().split()]


def until(true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(("number", "code"), [(signal.SIGHUP, 129), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("whom", ["all", "the command"])
def test_told_to_stop_it_waits_until_all_have_ended(
    tmp_path: Path, number: signal.Signals, code: int, whom: str
) -> None:
    if whom == "the command" and number == signal.SIGINT:
        pytest.skip("a terminal tells all")
    process, others = start(tmp_path)
    if whom == "all":
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    assert process.wait(60) == code
    assert all(gone(each) for each in others)


def test_killed_it_leaves_nothing_running(tmp_path: Path) -> None:
    process, others = start(tmp_path)
    process.kill()
    process.wait()
    try:
        until(lambda: all(gone(each) for each in others))
    finally:
        (tmp_path / "go").touch()  # they end by themselves


def test_who_wants_it_to_outlive_the_terminal_can(tmp_path: Path) -> None:
    process, _ = start(tmp_path, "nohup")
    os.killpg(process.pid, signal.SIGHUP)
    time.sleep(0.5)
    (tmp_path / "go").touch()
    assert process.wait(60) == 0
    assert (tmp_path / "out" / "result.json").exists()
