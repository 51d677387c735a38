"""A sealed process lives as in a strict pod; what does not hold is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from preheat_compiler import seal

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import json, os, shutil, subprocess, sys
from pathlib import Path
from preheat_compiler import seal
own, elsewhere = Path(sys.argv[1]), Path(sys.argv[2])
found = seal.enter(own)
def can_write(path):
    try:
        (path / "probe").write_text("x")
    except OSError:
        return False
    return True
def read(path):
    try:
        return path.read_text()
    except PermissionError:
        return None
def ran(path):
    try:
        return subprocess.run([str(path)], capture_output=True, text=True).stdout
    except PermissionError:
        return None
print(json.dumps({**found.to_json(), "uid": os.getuid(), "own": can_write(own), "elsewhere": can_write(elsewhere),
                  "beside": can_write(own.parent), "found": shutil.which("tool", path=str(elsewhere)),
                  "ran": ran(elsewhere / "tool"), "secret": read(elsewhere / "weights")}))
"""


def sealed(tmp_path: Path, *before: str) -> dict[str, object]:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    own.mkdir(parents=True)
    elsewhere.mkdir()
    (elsewhere / "weights").write_text("of the model")
    (elsewhere / "weights").chmod(0o600)
    (elsewhere / "tool").write_text("#!/bin/sh\necho ran\n")
    (elsewhere / "tool").chmod(0o755)
    words = [*before, sys.executable, "-c", SCRIPT, str(own), str(elsewhere)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    seen: dict[str, object] = json.loads(done.stdout)
    return seen


@pytest.mark.skipif(os.getuid() != 0, reason="only root can stop being root")
def test_root_becomes_nobody_on_a_file_system_that_it_can_only_read(tmp_path: Path) -> None:
    seen = sealed(tmp_path)
    assert (seen["readOnlyFileSystem"], seen["nonRoot"], seen["uid"]) == (True, True, seal.NOBODY), seen
    assert (seen["own"], seen["beside"], seen["elsewhere"]) == (True, False, False)
    # The image's own user may be root, so what only root can read must still be there.
    assert seen["secret"] == "of the model"
    # Also for the programs that it looks for and starts, in folders like pytest's, which only root can look into.
    assert seen["found"] == str(tmp_path / "elsewhere" / "tool")
    assert seen["ran"] == "ran\n"
    # In the process's own view of the file system alone.
    (tmp_path / "elsewhere" / "after").write_text("x")


@pytest.mark.skipif(os.getuid() != 0, reason="takes rights away from root")
def test_that_it_still_reads_what_root_may_is_said_only_where_it_is_so(tmp_path: Path) -> None:
    assert any("what root may" in words for words in sealed(tmp_path / "with")["why"])  # type: ignore[attr-defined]
    less = "-dac_read_search"
    seen = sealed(tmp_path / "without", "setpriv", "--bounding-set", less, "--inh-caps", less)
    assert (seen["nonRoot"], seen["secret"], seen["why"]) == (True, None, []), seen


@pytest.mark.skipif(os.getuid() != 0, reason="takes rights away from root")
def test_where_nothing_may_be_mounted_it_says_so_and_goes_on(tmp_path: Path) -> None:
    seen = sealed(tmp_path, "setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin")
    assert (seen["readOnlyFileSystem"], seen["nonRoot"], seen["own"]) == (False, True, True), seen
    assert any("no read-only file system: " in words for words in seen["why"])  # type: ignore[attr-defined]


@pytest.mark.skipif(os.getuid() != 0, reason="takes rights away from root")
def test_root_without_the_right_to_change_its_user_says_so_and_goes_on(tmp_path: Path) -> None:
    less = "-setuid,-setgid,-chown,-sys_admin"
    seen = sealed(tmp_path, "setpriv", "--bounding-set", less, "--inh-caps", less)
    assert (seen["readOnlyFileSystem"], seen["nonRoot"], seen["uid"]) == (False, False, 0), seen
    assert any("still root: " in words for words in seen["why"])  # type: ignore[attr-defined]


def test_mount_points_are_read_with_their_blanks() -> None:
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "23 22 0:5 / /data\\040set rw,nosuid,nodev - tmpfs tmpfs rw\n"
        "broken\n"
    )
    assert seal.mounts(text) == [
        ("/", frozenset({"rw", "relatime"})),
        ("/data set", frozenset({"rw", "nosuid", "nodev"})),
    ]
