"""Byte code travels from the compile Job to the pod, and is believed only while it is of the sources there."""

import importlib.util
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import preheat_runtime
from preheat_operator.containers import sources
from preheat_runtime import bytecode

PACKAGE = Path(preheat_runtime.__file__).parent
TAG = sys.implementation.cache_tag


@pytest.fixture(scope="module")
def packed():
    return bytecode.pack()


@pytest.fixture
def site(tmp_path):
    sources.write_site(tmp_path / "site")
    return tmp_path / "site"


def imported(site):
    """Where Python took the code of preheat_runtime.package from, and the format version it says."""
    done = subprocess.run(
        [sys.executable, "-B", "-v", "-c", "import preheat_runtime.package as p; print(p.FORMAT_VERSION)"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(site)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return f"# code object from {str(cached(site))!r}" in done.stderr, done.stdout


def cached(site, module="package"):
    return site / "preheat_runtime" / "__pycache__" / f"{module}.{TAG}.pyc"


def archive(entries, compression=zipfile.ZIP_STORED):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as opened:
        for name, content in entries.items():
            opened.writestr(name, content)
    return made.getvalue()


def entries(packed):
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_every_module_is_packed_and_python_uses_it(packed, site):
    modules = sorted(path.stem for path in PACKAGE.glob("*.py"))
    assert sorted(entries(packed)) == sorted(f"{module}.{TAG}.pyc" for module in modules)
    version = imported(site)[1]
    assert not imported(site)[0], "nothing is there yet"
    assert bytecode.unpack(packed, site / "preheat_runtime") == len(modules)
    assert imported(site) == (True, version)
    assert cached(site).stat().st_mode & 0o777 == 0o644
    assert cached(site).parent.stat().st_mode & 0o777 == 0o755


def test_byte_code_of_other_sources_is_left_out_and_never_believed(packed, site):
    source = site / "preheat_runtime" / "package.py"
    was = source.read_text()
    changed = was.replace("FORMAT_VERSION = ", "FORMAT_VERSION = 1000 + ")
    assert changed != was
    source.write_text(changed)
    bytecode.unpack(packed, site / "preheat_runtime")
    assert not cached(site).exists()
    assert cached(site, "manifest").exists()
    # Also when it came to lie there all the same.
    cached(site).write_bytes(entries(packed)[cached(site).name])
    assert imported(site)[1].strip() > "1000"


def test_what_else_an_archive_holds_is_left_out(packed, site, tmp_path):
    package = site / "preheat_runtime"
    good = entries(packed)[f"package.{TAG}.pyc"]
    unchecked = good[:4] + (0b01).to_bytes(4, "little") + good[8:]
    timestamp = good[:4] + bytes(4) + good[8:]
    for name, content in {
        f"../package.{TAG}.pyc": good,
        f"/tmp/package.{TAG}.pyc": good,
        f"stranger.{TAG}.pyc": good,
        f"manifest.{TAG}.pyc": good,
        "package.py": b"1/0",
        f"package.{TAG}.opt-1.pyc.py": good,
        f"package.{TAG}.pyc": unchecked,
        "package.cpython-312.pyc": timestamp,
        "bind.cpython-312.pyc": b"",
    }.items():
        assert bytecode.unpack(archive({name: content}), package) == 0, name
    assert bytecode.unpack(archive({f"package.{TAG}.pyc": good}, zipfile.ZIP_DEFLATED), package) == 0
    assert not (package / "__pycache__").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["site"]


@pytest.mark.parametrize("cut", [0, 1, 100, 5000, -1, -30])
def test_a_broken_archive_breaks_nothing(packed, site, cut):
    assert bytecode.unpack(packed[:cut], site / "preheat_runtime") == 0
    flipped = bytearray(packed)
    flipped[len(flipped) // 2] ^= 0xFF
    assert bytecode.unpack(bytes(flipped), site / "preheat_runtime") >= 0
    for path in (site / "preheat_runtime").glob("__pycache__/*.pyc"):
        source = site / "preheat_runtime" / f"{path.name.partition('.')[0]}.py"
        assert path.read_bytes()[8:16] == importlib.util.source_hash(source.read_bytes())


def test_one_that_is_too_large_is_left_out(packed, site, monkeypatch):
    monkeypatch.setattr(bytecode, "MAX_BYTES", len(packed) - 1)
    assert bytecode.unpack(packed, site / "preheat_runtime") == 0


def test_of_several_targets_the_first_that_fits_is_taken(packed, site, tmp_path):
    revision = tmp_path / "revision"
    for bucket, content in (("a", b"no archive"), ("b", packed)):
        (revision / "main" / bucket / "cpu").mkdir(parents=True)
        (revision / "main" / bucket / "cpu" / bytecode.FILE).write_bytes(content)
    assert sources.add_bytecode(site, revision) == len(entries(packed))
    shutil.rmtree(revision)
    assert sources.add_bytecode(site, revision) == 0
