"""Installs the Debian packages that the lab needs, saying so first.

Why it exists: a fresh machine has none of them, and a list in a document would be out of date.
"""

from __future__ import annotations

import os
import shutil

from lab.command import LabError, run
from lab.progress import say, step

# Package, and what it is for.
COMPILER = {"g++": "what torch.compile calls; the pause image"}
CLUSTER = COMPILER | {
    "buildah": "builds and pushes images",
    "ca-certificates": "HTTPS while building images",
    "ccache": "keeps what g++ made for the tests",
    "containernetworking-plugins": "pod networking",
    "debian-archive-keyring": "checks the packages of the base image",
    "iproute2": "network namespace and link",
    "mmdebstrap": "makes the base image",
    "mount": "mount namespace",
    "nftables": "rules inside the namespace",
    "openssl": "certificates",
    "runc": "runs containers",
    "util-linux": "enters namespaces",
}
BROWSER = {"chromium-headless-shell": "opens a report as a reader does", "fonts-dejavu-core": "letters for it"}
PYTHON = {"python3-venv": "virtual environments", "python3-dev": "Python's headers, for torch.compile"}


def ensure(packages: dict[str, str]) -> None:
    """Installs those of the packages that are missing. Raises :class:`LabError` where that cannot be done."""
    if shutil.which("dpkg-query") is None:
        raise LabError(f"this is not a Debian system; install by hand what it calls: {', '.join(sorted(packages))}")
    missing = [name for name in sorted(packages) if not _installed(name)]
    if not missing:
        return
    for name in missing:
        say(f"   needs Debian package {name}: {packages[name]}")
    if os.geteuid() != 0:
        raise LabError(f"must be root to install them; run: apt-get install {' '.join(missing)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with step(f"installing {len(missing)} Debian packages", usually="1 min"):
        # A list of mirrors that answers in part is enough when it has the packages, so only the installation must succeed.
        run(["apt-get", "-q", "update"], timeout=300, env=quiet, check=False)
        run(["apt-get", "-q", "install", "-y", "--no-install-recommends", *missing], timeout=900, env=quiet)


def _installed(name: str) -> bool:
    return "ok installed" in run(["dpkg-query", "-W", "-f=${Status}", name], timeout=20, check=False)
