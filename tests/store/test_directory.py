"""What only a store in a folder can meet: killed writers, poor file systems, things in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from preheat_operator.store.directory import STALE_SECONDS, DirectoryStore
from preheat_operator.store.errors import InternalError, StoreDeniedError
from store.both import put
from store.kit import ROOT

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_reading_makes_nothing(folder: Path) -> None:
    assert DirectoryStore(folder).get("v1/x", limit=1) is None
    assert not folder.exists()


WRITER = """
import hashlib, sys, time
from pathlib import Path
import preheat_operator.store.directory as directory

def reached(*_, **__):
    print("reached", flush=True)
    time.sleep(600)

{owner}.{act} = reached
directory.DirectoryStore(Path(sys.argv[1])).put("v1/x", b"new", sha256=hashlib.sha256(b"new").hexdigest(), only_if_absent=False)
"""


@pytest.mark.parametrize(("owner", "act"), [("directory.os", "fsync"), ("Path", "replace")])
def test_a_writer_that_is_killed_leaves_what_was_there_and_is_swept(folder: Path, owner: str, act: str) -> None:
    put(DirectoryStore(folder), "v1/x", b"old")
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER.format(owner=owner, act=act), str(folder)], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'compiler_job'}"},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"reached\n"
    process.kill()
    process.communicate()
    (left,) = (folder / ".incoming").iterdir()
    assert DirectoryStore(folder).get("v1/x", limit=10) == b"old"
    put(DirectoryStore(folder), "v1/y", b"y")
    assert left.exists(), "another writer may still be at it"
    old = time.time() - STALE_SECONDS - 60
    os.utime(left, (old, old))
    put(DirectoryStore(folder), "v1/y", b"y")
    assert not left.exists()


def test_a_file_system_without_links_keeps_the_condition(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    store = DirectoryStore(folder)
    assert put(store, "v1/x", b"one", only_if_absent=True)
    assert not put(store, "v1/x", b"two", only_if_absent=True)
    assert store.get("v1/x", limit=10) == b"one"


def test_what_is_no_plain_file_is_refused(folder: Path) -> None:
    (folder / "v1").mkdir(parents=True)
    os.mkfifo(folder / "v1/pipe")
    with pytest.raises(StoreDeniedError, match="no plain file"):
        DirectoryStore(folder).get("v1/pipe", limit=10)


@pytest.mark.parametrize("key", ["../x", "v1/../../x", "/etc/passwd", "v1//x", "v1/.lock", ""])
def test_no_key_leads_out_of_the_folder(folder: Path, key: str) -> None:
    for act in (lambda: DirectoryStore(folder).get(key, limit=1), lambda: put(DirectoryStore(folder), key, b"x")):
        with pytest.raises(InternalError):
            act()
    assert not folder.exists()


def test_bytes_other_than_their_hash_are_not_written(folder: Path) -> None:
    with pytest.raises(InternalError, match="not those of their hash"):
        DirectoryStore(folder).put("v1/x", b"data", sha256="0" * 64, only_if_absent=True)
    assert not (folder / "v1").exists()


def test_a_link_that_leads_nowhere_keeps_no_object_away(folder: Path) -> None:
    store = DirectoryStore(folder)
    (folder / "v1").mkdir(parents=True)
    for key in ("v1/x", "v1/y"):
        (folder / key).symlink_to(folder / "none")
        assert store.head(key) is None
        assert store.get(key, limit=10) is None
    assert put(store, "v1/x", b"one", only_if_absent=True)
    assert not put(store, "v1/x", b"two", only_if_absent=True)
    assert store.get("v1/x", limit=10) == b"one"
    assert put(store, "v1/y", b"one")
    assert not (folder / "none").exists(), "nothing is written through a link"
    (folder / "v1/z").symlink_to(folder / "v1/x")
    assert not put(store, "v1/z", b"two", only_if_absent=True)
    assert store.get("v1/z", limit=10) == b"one"
