"""Makes the development environment: a virtual environment in the cache, keyed by Python and requirements/dev.txt.

Why it exists: it must work on a machine that has nothing but Python 3.11 or later, from pinned and hashed packages
only, so pip (which is there) installs uv (pinned), and uv installs the rest in a fraction of pip's time.
The checkout itself is not installed: several checkouts share the environment, and each finds its own sources first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from typing import TYPE_CHECKING

from lab import debian
from lab.command import LabError, run
from lab.paths import REPOSITORY, cache_root, locked_file
from lab.progress import step

if TYPE_CHECKING:
    from pathlib import Path

_DEV = REPOSITORY / "requirements" / "dev.txt"
_BOOTSTRAP = REPOSITORY / "requirements" / "bootstrap.txt"
_COMPLETE = ".compiled"  # the Makefile asks for it
_LOCK = (
    "--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-emit-index-url",
    "--no-emit-find-links", "--quiet",
)  # fmt: skip


def path(requirements: Path = _DEV) -> Path:
    """Where the environment of this requirements file and of the Python that runs this is, or will be."""
    version = "{}.{}".format(*sys.version_info)
    return cache_root() / f"venv-{version}-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"


def ensure() -> Path:
    """Makes the environment when there is none for the present requirements, and returns its folder."""
    place = path()
    complete = place / _COMPLETE
    if complete.exists():
        return place
    if sys.version_info < (3, 11):
        raise LabError(
            f"needs Python 3.11 or later, this is {sys.version.split()[0]}; use `make PYTHON=python3.12 ...`"
        )
    uv = ensure_uv()
    with step("installing the development environment", usually="4 min, mostly torch"):
        # A virtual environment holds its own path, so it is made in place, and counts once it has been marked.
        # Not with `sys.executable`: in a shell where the environment is active that is its own, and goes.
        python = os.path.realpath(sys.executable)
        shutil.rmtree(place, ignore_errors=True)
        run([uv, "venv", "-q", "--python", python, str(place)], timeout=120, env=_environment())
        run(
            [uv, "pip", "sync", "-q", "--require-hashes", "--python", str(place / "bin" / "python"), str(_DEV)],
            timeout=1800, env=_environment(),
        )  # fmt: skip
        complete.touch()
    return place


def packages(requirements: Path) -> Path:
    """A folder with these pinned packages alone, to be put on PYTHONPATH: what an image has beside torch. Made when absent."""
    place = path(requirements).with_name(path(requirements).name.replace("venv-", "packages-", 1))
    with locked_file(cache_root() / ".packages"):
        if not (place / _COMPLETE).exists():
            uv = ensure_uv()
            with step(f"installing {requirements.relative_to(REPOSITORY)}", usually="20 s"):
                shutil.rmtree(place, ignore_errors=True)
                words = [uv, "pip", "install", "-q", "--no-deps", "--require-hashes", "--python", sys.executable]
                run([*words, "--target", str(place), "-r", str(requirements)], timeout=900, env=_environment())
                (place / _COMPLETE).touch()
    return place


def ensure_uv() -> str:
    """The path of the pinned uv, installed into an environment of its own."""
    place = path(_BOOTSTRAP)
    uv = place / "bin" / "uv"
    if uv.exists():
        return str(uv)
    with step("installing uv", usually="10 s"):
        if not _has_venv():
            debian.ensure(debian.PYTHON)
        shutil.rmtree(place, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(place)], timeout=120)
        pip = [str(place / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*pip, "--require-hashes", "--no-deps", "-r", str(_BOOTSTRAP)], timeout=600)
    return str(uv)


def lock() -> None:
    """Writes the requirements files anew from pyproject.toml: pinned, hashed, for Python 3.11 and later, without addresses."""
    uv = ensure_uv()
    # The examples' images have no use for the parts of torch's CUDA build that nothing loads on a CPU; only what is
    # loaded by `import torch` stays (see examples/base/Dockerfile).
    left_out = ("cuda-bindings", "cuda-pathfinder", "cuda-toolkit", "nvidia-cuda-cccl", "nvidia-nvtx", "triton")
    slim = [f"--no-emit-package={name}" for name in left_out]
    # Target, and what it is made from. Later ones are held to the versions of the earlier.
    steps = {
        "requirements/operator.txt": ["pyproject.toml"],
        "requirements/dev.txt": ["pyproject.toml", "--group", "dev", "--constraint", "requirements/operator.txt"],
        "requirements/architectures.txt": ["requirements/architectures.in", "--constraint", "requirements/dev.txt"],
        "requirements/peers.txt": [
            "requirements/peers.in",
            "--constraint",
            "requirements/architectures.txt",
            "--no-deps",
        ],
        "requirements/servers.txt": ["requirements/servers.in", "--constraint", "requirements/dev.txt"],
        "requirements/bootstrap.txt": ["requirements/bootstrap.in"],
        "requirements/build.txt": ["requirements/build.in"],
        "examples/requirements.txt": ["examples/requirements.in", "--constraint", "requirements/dev.txt", *slim],
        "tests/lab/go/requirements.txt": ["tests/lab/go/requirements.in"],
    }
    for target, source in steps.items():
        with step(f"resolving {target}", usually="10 s"):
            (REPOSITORY / target).unlink(missing_ok=True)  # what is there would be kept as it is
            words = [uv, "pip", "compile", *source, *_LOCK, "-o", target]
            run(words, timeout=600, cwd=REPOSITORY, env=_environment())


def _environment() -> dict[str, str]:
    # Unlike pip, uv leaves the packages uncompiled. Where PYTHONDONTWRITEBYTECODE is set nobody else would compile them
    # either, and each of the many processes that the tests start would take 3 s longer for torch, 12 s for its compiler.
    how = {"UV_LINK_MODE": "hardlink", "UV_COMPILE_BYTECODE": "1"}
    return {**os.environ, "UV_CACHE_DIR": str(cache_root() / "uv"), **how}


def _has_venv() -> bool:
    return "ok" in run([sys.executable, "-c", "import ensurepip; print('ok')"], timeout=30, check=False)
