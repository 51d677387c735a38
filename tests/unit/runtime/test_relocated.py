"""A copy of compiler caches is whole for Triton where it lies, and what it was copied from stays as it is."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from preheat_runtime import warm
from preheat_runtime.relocated import copy_caches

if TYPE_CHECKING:
    from pathlib import Path

KEY = "N3N2U73CAW2QNOOPMKZ2QDWUVEJDIX45TQXGFFFVZ4ZJRUGC3V7A"
FILES = ("add.cubin", "add.ptx", "add.json")


#: Triton's own view of the kernel `KEY` in a cache folder; in a process of its own, since it never lets go of its library.
TRITON = """
import json, sys
from triton.runtime.cache import FileCacheManager
kernel = FileCacheManager(sys.argv[1])
if sys.argv[2:]:
    kernel.put_group("add.json", {name: kernel.put(name.encode(), name) for name in sys.argv[2:]})
print(json.dumps(kernel.get_group("add.json")))
"""


def triton(folder: Path, *names: str) -> Any:
    """The kernel's files as Triton finds them in `folder`, once it has put those of `names` there."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("there is no Triton")
    command = [sys.executable, "-c", TRITON, KEY, *names]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder)}
    return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, timeout=120).stdout)


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def pod(artifact: Path, to: Path) -> None:
    """As a pod copies what it fetched."""
    warm._copy([SimpleNamespace(directory=artifact)], to)  # type: ignore[list-item]


def test_a_pods_copy_is_whole_for_triton_and_the_artifact_stays_as_it_is(tmp_path: Path) -> None:
    job, artifact, work = tmp_path / "job", tmp_path / "artifact", tmp_path / "work" / "inductor"
    triton(job / "triton", *FILES)
    shutil.copytree(job, artifact / "caches")
    shutil.rmtree(job)
    before = files(artifact)
    pod(artifact, work)
    assert files(artifact) == before
    shutil.rmtree(artifact)
    there = triton(work / "triton")
    folder = work / "triton" / KEY
    assert there == {name: str(folder / name) for name in FILES}
    assert {name: files(folder)[name] for name in there} == {name: name.encode() for name in there}


def test_a_copy_that_is_not_renamed_names_itself(tmp_path: Path) -> None:
    triton(tmp_path / "former" / "triton" / "0", *FILES)
    copy_caches(tmp_path / "former", tmp_path / "here", final=tmp_path / "here")
    shutil.rmtree(tmp_path / "former")
    there = triton(tmp_path / "here" / "triton" / "0")
    assert there["add.cubin"] == str(tmp_path / "here" / "triton" / "0" / KEY / "add.cubin")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'{"child_paths": ["a"]}', b'{"child_paths": {"a": 1}}', b"\xff", b'"x"']
)
def test_a_list_that_is_not_tritons_is_copied_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "__grp__odd.json").write_bytes(content)
    copy_caches(tmp_path / "from", tmp_path / "to", final=tmp_path / "final")
    assert (tmp_path / "to" / "__grp__odd.json").read_bytes() == content


def test_lists_that_only_may_be_read_and_what_else_they_say_are_kept(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    group = tmp_path / "from" / "__grp__add.json"
    group.write_text(json.dumps({"child_paths": {"add.ptx": "/gone/add.ptx"}, "more": 1}))
    group.chmod(0o444)
    other = tmp_path / "from" / "add.json"
    other.write_text('{"child_paths": {"add.ptx": "/gone/add.ptx"}}')
    copy_caches(tmp_path / "from", tmp_path / "to", final=tmp_path / "final")
    seen = json.loads((tmp_path / "to" / group.name).read_text())
    assert seen == {"child_paths": {"add.ptx": str(tmp_path / "final" / "add.ptx")}, "more": 1}
    assert (tmp_path / "to" / group.name).stat().st_mode & 0o777 == 0o444
    assert (tmp_path / "to" / "add.json").read_text() == other.read_text()
