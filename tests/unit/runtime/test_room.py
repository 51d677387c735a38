"""Where torch's compiler can work: its own place, else Preheat's volume, else nowhere, in words."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
import threading
import types
from typing import TYPE_CHECKING

import pytest

from preheat_runtime import room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CACHE = room.CACHE_VARIABLE


class Pod:
    """A pod's folders: `tmp` for temporary files (None: there is none), `work` is Preheat's own."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tmp, self.work = root / "tmp", root / "work"
        self.tmp.mkdir()
        self.work.mkdir()
        self._patch = monkeypatch
        self._flags: dict[Path, int] = {}
        monkeypatch.setattr(os, "statvfs", self._statvfs)
        monkeypatch.setattr(tempfile, "gettempdir", lambda: str(self.tmp))
        # Set to what they are, so that whatever `find` sets is undone.
        monkeypatch.setattr(tempfile, "tempdir", tempfile.tempdir)
        for name in (CACHE, "TMPDIR"):
            monkeypatch.setenv(name, "")
            monkeypatch.delenv(name)
        monkeypatch.setenv("PREHEAT_WORK_DIR", str(self.work))

    def mounted(self, folder: Path, flag: int) -> None:
        self._flags[folder] = flag

    def without_temporary_files(self) -> None:
        def none() -> str:
            raise FileNotFoundError(2, "No usable temporary directory found")

        self._patch.setattr(tempfile, "gettempdir", none)

    def _statvfs(self, folder: Path) -> object:
        if not folder.exists():
            raise FileNotFoundError(2, "No such file or directory")
        return types.SimpleNamespace(f_flag=self._flags.get(folder, 0))

    def find(self) -> str | None:
        return room.find(os.environ)


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(tmp_path, monkeypatch)


def noexec(pod: Pod) -> None:
    pod.mounted(pod.tmp, os.ST_NOEXEC)


def read_only(pod: Pod) -> None:
    pod.mounted(pod.tmp, os.ST_RDONLY)


def gone(pod: Pod) -> None:
    pod.tmp.rmdir()


def test_where_torch_s_own_place_will_do_nothing_is_touched(pod: Pod) -> None:
    assert pod.find() is None
    assert CACHE not in os.environ
    assert "TMPDIR" not in os.environ
    assert not list(pod.work.iterdir())


@pytest.mark.parametrize("spoil", [noexec, read_only, gone])
def test_elsewhere_torch_compiles_in_preheat_s_volume(pod: Pod, spoil: Callable[[Pod], None]) -> None:
    spoil(pod)
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")
    assert "TMPDIR" not in os.environ, "temporary files have a place of their own"


def test_without_any_folder_for_temporary_files_there_is_one_in_preheat_s_volume(pod: Pod) -> None:
    pod.without_temporary_files()
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")
    assert os.environ["TMPDIR"] == tempfile.tempdir == str(pod.work / "tmp")
    assert (pod.work / "tmp").is_dir()


def test_a_cache_folder_of_the_user_s_own_is_kept(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    noexec(pod)
    monkeypatch.setenv(CACHE, "/mine")
    assert pod.find() is None
    assert os.environ[CACHE] == "/mine"
    # Also where Preheat's volume is none: torch asks for no other place.
    pod.mounted(pod.work, os.ST_NOEXEC)
    assert pod.find() is None
    assert os.environ[CACHE] == "/mine"


def test_inductor_s_default_is_nobody_s_own(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    default = str(pod.tmp / "torchinductor_somebody")
    utils = types.SimpleNamespace(default_cache_dir=lambda: default)
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.cache_dir_utils", utils)
    assert room.is_torchs_own(default)
    assert room.is_torchs_own(f"{default}/triton")
    assert room.is_torchs_own(str(pod.work / "compiled"))
    assert not room.is_torchs_own("/mine")
    noexec(pod)
    monkeypatch.setenv(CACHE, default)
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")
    # A second model of the process finds what the first one set.
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")


def test_both_are_named_where_neither_will_do(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    noexec(pod)
    pod.mounted(pod.work, os.ST_RDONLY)
    assert pod.find() == f"{room.NO_ROOM}: {pod.tmp} is mounted noexec; {pod.work} cannot be written to"
    pod.without_temporary_files()
    assert pod.find() == f"{room.NO_ROOM}: there is no folder for temporary files; {pod.work} cannot be written to"
    # Not even a cache folder of the user's helps a compiler that needs files of its own.
    monkeypatch.setenv(CACHE, "/mine")
    assert pod.find() is not None
    monkeypatch.delenv("PREHEAT_WORK_DIR")
    monkeypatch.delenv(CACHE)
    assert pod.find() == f"{room.NO_ROOM}: there is no folder for temporary files; PREHEAT_WORK_DIR is not set"
    assert CACHE not in os.environ


def test_a_volume_that_takes_no_more_is_named(pod: Pod) -> None:
    noexec(pod)
    (pod.work / "tmp").write_text("a file where the folder should be")
    assert pod.find() == f"{room.NO_ROOM}: {pod.tmp} is mounted noexec; {pod.work}: File exists"
    assert CACHE not in os.environ


def test_what_makes_a_folder_unusable(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    assert room.unusable(pod.tmp) is None
    assert room.unusable(pod.tmp / "none") == f"{pod.tmp / 'none'}: No such file or directory"
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert room.unusable(pod.tmp) == f"{pod.tmp} cannot be written to"


def test_a_module_that_another_thread_imports_just_now_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slow_to_import.py").write_text("import held\nheld.begun.set()\nheld.go.wait(60)\nwhole = True\n")
    held = types.SimpleNamespace(begun=threading.Event(), go=threading.Event())
    monkeypatch.setitem(sys.modules, "held", held)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert room.imported("slow_to_import") is None, "it is not imported for our sake"
    importer = threading.Thread(target=importlib.import_module, args=("slow_to_import",))
    importer.start()
    assert held.begun.wait(60)
    assert not hasattr(sys.modules["slow_to_import"], "whole")
    threading.Timer(0.2, held.go.set).start()
    assert room.imported("slow_to_import").whole
    importer.join(60)
    monkeypatch.delitem(sys.modules, "slow_to_import")
