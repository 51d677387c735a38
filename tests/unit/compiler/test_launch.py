from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from unit.compiler import requests, toolkits

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """The folder that a compile pod has, with a role that tells what user code would see."""
    role = """
        import importlib, importlib.util, json, sys
        def main(argv, *, launcher):
            factory = importlib.import_module("serving").__file__
            ours = [importlib.util.find_spec(name) is not None for name in ("preheat_compiler", "preheat_runtime")]
            print(json.dumps({"serving": factory, "compile": importlib.util.find_spec("compile") is not None,
                "first": sys.path[0], "toolkit": [p for p in sys.path if p.endswith("toolkit")], "ours": ours}))
            return 0
    """
    lines = [line[8:] for line in role.splitlines()]
    return toolkits.make(tmp_path / "toolkit", begin="\n".join(lines))


def seen(toolkit: Path, directory: Path, **environment: str) -> dict[str, object]:
    answer = subprocess.run(
        [sys.executable, str(toolkit / "compile.py"), "target"],
        cwd=directory, env={**os.environ, **environment}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    found: dict[str, object] = json.loads(answer.stdout)
    return found


def test_the_users_code_is_found_in_the_working_directory_and_ours_adds_no_name(toolkit: Path, tmp_path: Path) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "serving.py").write_text("")
    found = seen(toolkit, app)
    assert found == {
        "serving": str(app / "serving.py"), "compile": False, "first": str(app), "toolkit": [], "ours": [True, True],
    }  # fmt: skip


def test_the_users_code_is_found_on_pythonpath(toolkit: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "serving.py").write_text("")
    assert seen(toolkit, tmp_path, PYTHONPATH=str(library))["serving"] == str(library / "serving.py")


def test_the_working_directory_comes_before_pythonpath(toolkit: Path, tmp_path: Path) -> None:
    for name in ("app", "library"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "serving.py").write_text("")
    found = seen(toolkit, tmp_path / "app", PYTHONPATH=str(tmp_path / "library"))
    assert found["serving"] == str(tmp_path / "app" / "serving.py")


def test_a_users_package_of_our_name_is_not_taken_for_ours(toolkit: Path, tmp_path: Path) -> None:
    (tmp_path / "serving.py").write_text("")
    (tmp_path / "preheat_compiler").mkdir()
    (tmp_path / "preheat_compiler" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    assert seen(toolkit, tmp_path)["ours"] == [True, True]


def run_shell(toolkit: Path, directory: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", str(toolkit / "compile.sh"), *arguments],
        cwd=directory, env={"PATH": path}, check=False, capture_output=True, text=True,
    )  # fmt: skip


def tools(folder: Path, *names: str) -> Path:
    """A PATH with the shell's own helpers and nothing else."""
    folder.mkdir()
    for name in names:
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def test_an_image_without_python_is_told_so(toolkit: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    ended = run_shell(toolkit, tmp_path, str(tools(tmp_path / "bin", "dirname", "tr")), "--termination-log", str(log))
    assert ended.returncode == 65
    message = json.loads(log.read_text())
    assert (message["v"], message["reason"]) == (1, "TorchMissing")
    assert "no python3" in message["message"]


def test_an_image_with_an_old_python_is_told_so(toolkit: Path, tmp_path: Path) -> None:
    path, log = tools(tmp_path / "bin", "dirname", "tr"), tmp_path / "log"
    old = path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo "Python 3.8.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    assert run_shell(toolkit, tmp_path, str(path), "--termination-log", str(log)).returncode == 65
    assert "Python 3.8.2" in json.loads(log.read_text())["message"]


def test_the_shell_starts_the_first_usable_python(toolkit: Path, tmp_path: Path) -> None:
    path, log = tools(tmp_path / "bin", "dirname", "tr"), tmp_path / "log"
    (path / "python").symlink_to(sys.executable)
    ended = run_shell(
        toolkit, tmp_path, str(path), "--request", "none.json", "--out", "out", "--termination-log", str(log)
    )
    assert ended.returncode == 64
    assert "none.json" in json.loads(log.read_text())["message"]


def test_a_recovered_result_ends_the_job_at_once(toolkit: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "recovered.json").write_text('{"digest":"sha256:00"}')
    (tmp_path / "request.json").write_text(json.dumps(requests.make()))
    command = [sys.executable, str(toolkit / "compile.py"), "--request", "request.json", "--out", "out"]
    command += ["--termination-log", "log"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert json.loads((tmp_path / "log").read_text()) == {"v": 1, "done": []}
    assert not (tmp_path / "out" / "result.json").exists()
