"""What becomes of a cache directory in a compile Job, with a program of our own in place of torch's compile."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.caches import CachesError, compile_caches
from preheat_compiler.report import Report

if TYPE_CHECKING:
    from pathlib import Path

#: Writes what `fill.json` beside it says, and answers: with the group that was there before as why it failed, if there was.
LAUNCHER = """
import json, os, pathlib, sys
options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
folder = pathlib.Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
for name in json.loads((pathlib.Path(__file__).parent / "fill.json").read_text()):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(name)
group = folder / "triton" / "KEY" / "__grp__add.json"
seen = {"reason": None, "sections": {}, "speed": None, "error": {"maximum": "0", "mean": "0", "why": ""},
        "graphs": {"graphs": 1, "breaks": [], "recompiles": 0}}
if group.exists():
    seen.update(reason="CompileFailed", message=group.read_text())
pathlib.Path(options["--answer"]).write_text(json.dumps(seen))
"""


def fill(folder: Path, *names: str, former: Path | None = None) -> list[str]:
    """The names that are kept of those that a compile left."""
    (folder / "launcher.py").write_text(LAUNCHER)
    (folder / "fill.json").write_text(json.dumps(names))
    compile_caches(
        launcher=folder / "launcher.py", request_file=folder / "request.json", module="main", bucket="one",
        work=folder, artifact=folder / "artifact", report=Report(target="main/one"), seconds=60.0, former=former,
    )  # fmt: skip
    kept = folder / "artifact" / "caches"
    return sorted(path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file())


def test_kernels_are_kept_whatever_their_name(tmp_path: Path) -> None:
    kernels = ["triton/KEY/__grp__tmp_add.json", "triton/KEY/tmp.cubin", "triton/KEY/tmp_add.cubin"]
    assert fill(tmp_path, *kernels) == sorted(kernels)


def test_what_was_being_written_and_locks_are_not_kept(tmp_path: Path) -> None:
    temporary = [
        f"triton/KEY/tmp.pid_12_{uuid.uuid4()}/add.cubin",
        f"triton/KEY/add.cubin.tmp.pid_12_{uuid.uuid4()}",
        f"triton/tmp.{uuid.uuid4()}/add.cubin",
        "ab/.12.34.tmp",
        "locks/ab.lock",
        "ab/cab.lock",
        "precompiled_headers/x.gch",
    ]
    assert fill(tmp_path, "ab/cab.py", *temporary) == ["ab/cab.py"]


def test_caches_to_begin_with_name_the_place_that_they_are_copied_to(tmp_path: Path) -> None:
    group = tmp_path / "former" / "triton" / "KEY" / "__grp__add.json"
    group.parent.mkdir(parents=True)
    group.write_text(json.dumps({"child_paths": {"add.ptx": "/gone/triton/KEY/add.ptx"}}))
    with pytest.raises(CachesError) as raised:
        fill(tmp_path, former=tmp_path / "former")
    here = tmp_path / "inductor-for-pods" / "triton" / "KEY" / "add.ptx"
    assert json.loads(str(raised.value)) == {"child_paths": {"add.ptx": str(here)}}
