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

CACHE, TRITON = room.CACHE_VARIABLE, "TRITON_CACHE_DIR"


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
        for name in (CACHE, TRITON, "TMPDIR"):
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

    def find(self, *, triton: bool = False) -> str | None:
        return room.find(os.environ, triton=triton)


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


def test_the_pod_s_copy_of_an_artifact_s_caches_is_kept(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was chosen by us, but what it holds is found in no other folder."""
    monkeypatch.setenv(CACHE, str(pod.work / "inductor"))
    pod.mounted(pod.tmp, os.ST_NOEXEC)
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "inductor")
    assert room.is_torchs_own(os.environ[CACHE])


def test_inductor_s_default_is_nobody_s_own(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    default = str(pod.tmp / "torchinductor_somebody")
    utils = types.SimpleNamespace(default_cache_dir=lambda: default)
    monkeypatch.setitem(sys.modules, "torch._inductor.runtime.cache_dir_utils", utils)
    assert room.is_torchs_own(default)
    assert room.is_torchs_own(f"{default}/triton")
    assert room.is_torchs_own(str(pod.work / "compiled"))
    assert not room.is_torchs_own("/mine")
    for place in (default, str(pod.work / "compiled"), str(pod.work / "inductor")):
        for ours in ("", "/triton", "/triton/0", "/triton/11"):
            assert room.is_torchs_own(place + ours)
        for another in ("/0", "/triton/cache", "/triton/0/0", "/mine", "s"):
            assert not room.is_torchs_own(place + another)
    assert not room.is_torchs_own("/mine/triton/0")
    noexec(pod)
    monkeypatch.setenv(CACHE, default)
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")
    # A second model of the process finds what the first one set.
    assert pod.find() is None
    assert os.environ[CACHE] == str(pod.work / "compiled")


def test_torch_names_triton_s_folder_so_at_the_first_kernel(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("torch._inductor.runtime.cache_dir_utils")
    for place in (None, str(pod.tmp / "torchinductor"), str(pod.work / "inductor")):
        if place is not None:
            monkeypatch.setattr(utils, "default_cache_dir", lambda: str(pod.tmp / "torchinductor"))
            monkeypatch.setenv(CACHE, place)
        assert room.is_torchs_own(utils.triton_cache_dir(3))


@pytest.fixture
def home(pod: Pod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("TRITON_HOME", raising=False)
    return folder


def test_a_home_that_can_be_written_to_is_triton_s(pod: Pod, home: Path) -> None:
    for _ in range(2):
        assert pod.find(triton=True) is None
        assert TRITON not in os.environ
        (home / ".triton" / "cache").mkdir(parents=True, exist_ok=True)
    assert not list(pod.work.iterdir())


@pytest.mark.parametrize("flag", [os.ST_RDONLY, os.ST_NOEXEC])
@pytest.mark.parametrize("made", [False, True])
def test_elsewhere_triton_compiles_in_preheat_s_volume(pod: Pod, home: Path, flag: int, made: bool) -> None:
    if made:
        (home / ".triton").mkdir()
    pod.mounted(home / ".triton" if made else home, flag)
    assert pod.find() is None
    assert TRITON not in os.environ, "for a CPU Triton is not asked"
    assert pod.find(triton=True) is None
    assert os.environ[TRITON] == str(pod.work / "compiled" / "triton")
    assert room.is_torchs_own(os.environ[TRITON])
    assert CACHE not in os.environ, "torch has a place of its own"


def test_where_there_is_no_home_triton_compiles_in_preheat_s_volume(
    pod: Pod, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod.mounted(home.parent, os.ST_RDONLY)
    monkeypatch.setenv("HOME", str(home.parent / "gone"))
    pod.without_temporary_files()
    assert pod.find(triton=True) is None
    assert os.environ[TRITON] == str(pod.work / "compiled" / "triton")
    assert os.environ[CACHE] == str(pod.work / "compiled")


def test_a_place_that_the_user_gave_triton_is_kept(pod: Pod, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.mounted(home, os.ST_RDONLY)
    monkeypatch.setenv("TRITON_HOME", str(pod.tmp))
    assert pod.find(triton=True) is None
    assert TRITON not in os.environ
    monkeypatch.setenv(TRITON, "/mine")
    monkeypatch.delenv("TRITON_HOME")
    assert pod.find(triton=True) is None
    assert os.environ[TRITON] == "/mine"


def test_without_preheat_s_volume_triton_is_left_alone(pod: Pod, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.mounted(home, os.ST_RDONLY)
    pod.mounted(pod.work, os.ST_NOEXEC)
    assert pod.find(triton=True) is None
    monkeypatch.delenv("PREHEAT_WORK_DIR")
    assert pod.find(triton=True) is None
    assert TRITON not in os.environ


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
