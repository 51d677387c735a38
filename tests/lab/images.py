"""Builds images with buildah, each once for each set of inputs, and pushes them to the lab's registry.

Why it exists: the images under test must be built from the project's own Dockerfiles, on machines where no public image
registry can be reached. The base image is therefore made from Debian packages, and a Dockerfile that says
``ARG BASE=python:3.13-slim`` gets it as ``BASE``. How the machine reaches its package registries (a certificate bundle,
a cache of downloads) is mounted while a build runs and never becomes part of an image.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import registry
from lab.command import LabError, run
from lab.paths import cache_root, files_under, key_of, tree_key
from lab.progress import say, step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lab.layout import Layout

_SUITE = "bookworm"
_BASE_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_PAUSE = """
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void leave(int number) { (void)number; exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0) {} }
int main(void) { signal(SIGINT, leave); signal(SIGTERM, leave); signal(SIGCHLD, reap); for (;;) pause(); }
"""
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_LEAST_FREE_BYTES = 12 * 2**30


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image in the lab's registry."""

    repository: str
    tag: str
    digest: str

    @property
    def tagged(self) -> str:
        return f"{self.repository}:{self.tag}"

    @property
    def pinned(self) -> str:
        return f"{self.repository}@{self.digest}"


@dataclass(frozen=True, kw_only=True)
class Images:
    """The image builder of a lab."""

    layout: Layout

    def base(self) -> str:
        """Local name of the base image: Debian with Python, about 250 MB."""
        key = key_of(_SUITE, *_BASE_PACKAGES)
        name = f"localhost/preheat-base:{key}"
        if _exists(name):
            return name
        with step("making the base image from Debian packages", usually="1 min"), _scratch() as scratch:
            run([
                "mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(_BASE_PACKAGES)}",
                "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*",
                "--customize-hook=rm -rf \"$1\"/var/lib/apt/lists/* \"$1\"/var/cache/apt/*.bin",
                _SUITE, str(scratch / "root.tar"),
            ], timeout=900)  # fmt: skip
            (scratch / "Dockerfile").write_text('FROM scratch\nADD root.tar /\nCMD ["python3"]\n')
            _build(name, scratch, Path("Dockerfile"), {})
        return name

    def build(
        self,
        name: str,
        *,
        context: Path,
        inputs: Sequence[str],
        dockerfile: str = "Dockerfile",
        args: Mapping[str, str] | None = None,
        usually: str = "1 min",
    ) -> str:
        """Builds an image, unless the same inputs were built before, and returns its local name.

        ``inputs``: files and folders of ``context`` that the build may see (the Dockerfile is always one of them).
        ``args``: build arguments; a local image's name is keyed by content, so it may be ``BASE``.
        """
        args = dict(args or {})
        key = tree_key(context, {*inputs, dockerfile}, *(f"{k}={v}" for k, v in sorted(args.items())))
        local = f"localhost/{name}:{key}"
        if _exists(local):
            return local
        with step(f"building image {name}", usually=usually), _scratch() as scratch:
            for path in files_under(context, {*inputs, dockerfile}):
                target = scratch / path.relative_to(context)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
            _build(local, scratch, Path(dockerfile), args)
        _forget_older(local)
        return local

    def push(self, local: str, *, name: str | None = None, tag: str | None = None) -> Image:
        """Pushes a local image, unless it is there, as ``<registry>/<name>:<tag>``; both default to the local name's.

        A ``tag`` of your own is always pushed: that is how a tag is moved.
        """
        path, _, key = local.removeprefix("localhost/").rpartition(":")
        path, wanted = name or path, tag or key
        repository = f"{self.layout.registry}/{path}"
        found = None if tag else registry.digest(self.layout, path, wanted)
        if found is None:
            with step(f"pushing {path}:{wanted}", usually="5 s, 2 min for an image with torch"):
                compress = ["--format", "oci", "--compression-format", "zstd", "--compression-level", "1"]
                destination = f"docker://{repository}:{wanted}"
                _buildah("push", "--quiet", "--tls-verify=false", *compress, local, destination, timeout=1200)
            found = registry.digest(self.layout, path, wanted)
        if found is None:
            raise LabError(f"{repository}:{wanted} was pushed, but the registry does not have it")
        return Image(repository=repository, tag=wanted, digest=found)

    def pause(self) -> Image:
        """The image of pod sandboxes: one small static program that waits."""
        key = key_of(_PAUSE)
        local = f"localhost/pause:{key}"
        if not _exists(local):
            with step("building image pause", usually="3 s"), _scratch() as scratch:
                (scratch / "pause.c").write_text(_PAUSE)
                run(["gcc", "-static", "-Os", "-o", "pause", "pause.c"], timeout=60, cwd=scratch)
                (scratch / "Dockerfile").write_text('FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n')
                _build(local, scratch, Path("Dockerfile"), {})
        return self.push(local)


@contextmanager
def _scratch() -> Iterator[Path]:
    folder = cache_root() / "scratch"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as path:
        yield Path(path)


def _buildah(*words: str, timeout: float, check: bool = True) -> str:
    store = cache_root() / "images"
    # In a mount namespace of its own: buildah keeps a mount of its store otherwise.
    return run([
        "unshare", "--mount", "buildah", "--root", str(store / "root"), "--runroot", str(store / "run"),
        "--storage-driver", "overlay", *words,
    ], timeout=timeout, check=check)  # fmt: skip


def _exists(local: str) -> bool:
    return bool(_buildah("images", "--quiet", "--filter", f"reference={local}", timeout=60).strip())


def _build(local: str, context: Path, dockerfile: Path, args: Mapping[str, str]) -> None:
    words = [
        "bud",
        "--isolation",
        "chroot",
        "--layers",
        "--pull-never",
        "--format",
        "oci",
        "--tag",
        local,
        "--file",
        str(context / dockerfile),
    ]
    for name, value in args.items():
        words += ["--build-arg", f"{name}={value}"]
    downloads = cache_root() / "pip"
    downloads.mkdir(exist_ok=True)
    words += ["--volume", f"{downloads}:/root/.cache/pip"]
    if _CERTIFICATES.exists():
        words += ["--volume", f"{_CERTIFICATES}:{_CERTIFICATES}:ro"]
    _buildah(*words, str(context), timeout=3000)


def _forget_older(local: str) -> None:
    """Keeps the two newest images of a name; sources change often, and each image of them has some 100 MB."""
    repository = local.rpartition(":")[0]
    listing = _buildah(
        "images", "--format", "{{.CreatedAtRaw}} {{.Name}}:{{.Tag}}", "--filter", f"reference={repository}", timeout=60
    )
    names = [line.rpartition(" ")[2] for line in sorted(listing.splitlines(), reverse=True)]
    for name in [name for name in names if name.startswith(f"{repository}:")][2:]:
        _buildah("rmi", name, timeout=120, check=False)  # an image that another one is based on stays


def bound_store() -> None:
    """Begins again when the store has become too large; every image in it can be built again.

    Only while nobody builds: an image is built on another one that was there a moment ago.
    """
    store = cache_root() / "images" / "root"
    if store.exists() and shutil.disk_usage(store).free < _LEAST_FREE_BYTES:
        say(f"   less than {_LEAST_FREE_BYTES // 2**30} GiB are free: deleting the built images")
        shutil.rmtree(cache_root() / "images", ignore_errors=True)
