"""Lays the sources of `preheat_runtime` and `preheat_compiler` into volumes, for Pythons that are not ours.

The product image carries both packages for its own Python; the user's image runs another one. So sources alone are
copied, readable by whatever user the other container runs as; byte code comes from the compile Job, which runs the user's
Python (`preheat_runtime.bytecode`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Final

from preheat_runtime import bytecode

RUNTIME: Final = "preheat_runtime"
COMPILER: Final = "preheat_compiler"
ENTRY_POINTS: Final = "[torch.backends]\npreheat = preheat_runtime.hook:autoload\n"
"""torch loads every entry point of this group when it is imported: the only hook that needs no line of the user's."""


def write_site(directory: Path) -> None:
    """Write what goes on PYTHONPATH of a serving container into the new folder `directory`."""
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    copy_package(RUNTIME, directory / RUNTIME)
    version = product_version()
    info = directory / f"{RUNTIME}-{version}.dist-info"
    info.mkdir()
    info.chmod(0o755)
    _write(info / "METADATA", f"Metadata-Version: 2.1\nName: preheat-runtime\nVersion: {version}\n".encode())
    _write(info / "entry_points.txt", ENTRY_POINTS.encode())
    _write(info / "INSTALLER", b"preheat\n")
    _write(info / "RECORD", b"")


def add_bytecode(site: Path, revision: Path) -> int:
    """Lay byte code that a revision brought into the folder that `write_site` made; how many modules that were.

    It only saves time: without it, or where it is of other sources, Python compiles the sources. Raises OSError.
    """
    for packed in sorted(revision.glob(f"*/*/*/{bytecode.FILE}")):
        if packed.is_file() and (count := bytecode.unpack(packed.read_bytes(), site / RUNTIME)):
            return count
    return 0


def write_toolkit(directory: Path) -> None:
    """Write what the compile container runs into the new folder `directory`."""
    directory.mkdir(mode=0o755)
    directory.chmod(0o755)
    copy_package(RUNTIME, directory / RUNTIME)
    copy_package(COMPILER, directory / COMPILER)
    for name, mode in (("compile.py", 0o644), ("compile.sh", 0o755)):
        _write(directory / name, (package_folder(COMPILER) / "launch" / name).read_bytes(), mode)


def copy_package(name: str, to: Path) -> None:
    """Copy a package's files, byte code left out, into the new folder `to`; folders 0755, files 0644."""
    source = package_folder(name)
    for folder, folders, files in os.walk(source):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        target = to / Path(folder).relative_to(source)
        target.mkdir()
        target.chmod(0o755)
        for file in sorted(files):
            if not file.endswith((".pyc", ".pyo")):
                _write(target / file, (Path(folder) / file).read_bytes())


def package_folder(name: str) -> Path:
    """Return where a package is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the package {name} is not part of this image")
    return Path(spec.submodule_search_locations[0])


def product_version() -> str:
    """Return the version of Preheat; of a checkout that was never installed, a version that says so."""
    try:
        return importlib.metadata.version("preheat")
    except importlib.metadata.PackageNotFoundError:
        return "0+checkout"


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.write_bytes(data)
    path.chmod(mode)
