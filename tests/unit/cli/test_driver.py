"""How the compile driver's end is told: each code in words, and as the exit code of docs/cli.md."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from preheat_operator.cli import driver, exits
from preheat_operator.cli.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path

HINT = "(--python names another Python)"


def ending(folder: Path, how: str, said: dict[str, Any] | None) -> CommandError:
    """What is raised of a driver that is a shell's line, and left these last words."""
    (folder / "toolkit").mkdir()
    left = "" if said is None else f"cat > '{folder}/termination' <<'.'\n{json.dumps(said)}\n.\n"
    (folder / "toolkit" / "compile.sh").write_text(f"{left}{how}\n")
    with pytest.raises(CommandError) as raised:
        driver.run(folder, python=None)
    return raised.value


RUNNING = {"v": 1, "running": "main/one", "done": []}


@pytest.mark.parametrize(
    ("how", "said", "code", "words"),
    [
        ("kill -9 $$", RUNNING, 137, "was ended by signal 9 while main/one was compiled; most often for memory"),
        ("kill -11 $$", RUNNING, 139, "was ended by signal 11 while main/one was compiled"),
        ("kill -9 $$", None, 137, "was ended by signal 9; most often for memory"),
        (
            "exit 137",
            {"v": 1, "reason": "Killed", "message": "importing torch was killed, not for memory as far as can be seen"},
            137,
            "Killed: importing torch was killed, not for memory as far as can be seen",
        ),
        ("exit 143", RUNNING, 143, "was ended by signal 15 while main/one was compiled"),
        ("exit 65", {"v": 1, "reason": "TorchMissing", "message": "no torch"}, 65, f"TorchMissing: no torch {HINT}"),
        ("exit 65", {"v": 1, "reason": "TorchUnsupported", "message": "old"}, 65, f"TorchUnsupported: old {HINT}"),
        ("exit 65", {"v": 1, "reason": "OutOfMemory", "message": "too little"}, 65, "OutOfMemory: too little"),
        ("exit 65", {"v": 1, "reason": "DiskFull", "message": "no room"}, 65, "DiskFull: no room"),
        ("exit 66", {"v": 1, "reason": "Internal", "message": "it failed"}, 66, "Internal: it failed"),
        ("exit 64", None, 66, "the compile driver ended with 64"),
        ("exit 3", RUNNING, 66, "the compile driver ended with 3"),
    ],
)
def test_each_end_has_its_words_and_its_code(
    tmp_path: Path, how: str, said: dict[str, Any] | None, code: int, words: str
) -> None:
    error = ending(tmp_path, how, said)
    assert error.code == code
    assert str(error).endswith(words)


def test_the_driver_knows_that_a_person_has_asked(tmp_path: Path) -> None:
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit" / "compile.sh").write_text(f"echo \"$@\" > '{tmp_path}/arguments'\n")
    driver.run(tmp_path, python=None)
    assert "--attended" in (tmp_path / "arguments").read_text().split()


def test_what_did_not_end_badly_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "toolkit").mkdir()
    (tmp_path / "toolkit" / "compile.sh").write_text("exit 0\n")
    driver.run(tmp_path, python=None)
    assert exits.OK == 0
