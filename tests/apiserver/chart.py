"""The project's own chart, rendered or installed by the real Helm."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lab.binaries import Binaries

if TYPE_CHECKING:
    from apiserver.server import ApiServer

CHART = Path(__file__).resolve().parents[2] / "charts" / "preheat"
RELEASE = "preheat"
NAMESPACE = "preheat-system"
NEEDED = ("image.repository=registry.example/preheat", "store.bucket=models")


class HelmError(AssertionError):
    """Helm refused; the message is what it said."""


def helm(*arguments: str, server: ApiServer | None = None) -> str:
    """Run Helm; what it printed."""
    command = [Binaries().helm, *arguments]
    if server is not None:
        command += ["--kubeconfig", str(server.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise HelmError(done.stderr)
    return done.stdout


def render(*settings: str, needed: bool = True, values: Path | None = None) -> list[dict[str, Any]]:
    """The chart's objects with `key=value` settings laid over those that must be set."""
    given = [*NEEDED, "clusterId=cluster-1"] if needed else []
    arguments = [item for setting in (*given, *settings) for item in ("--set", setting)]
    if values is not None:
        arguments += ["--values", str(values)]
    text = helm("template", RELEASE, str(CHART), "-n", NAMESPACE, "--kube-version", "1.37.0", *arguments)
    return [document for document in yaml.safe_load_all(text) if document]


def install(server: ApiServer, *settings: str) -> None:
    """Install or upgrade the release, without waiting: nothing runs pods here."""
    given = [item for setting in (*NEEDED, *settings) for item in ("--set", setting)]
    helm("upgrade", "--install", RELEASE, str(CHART), "-n", NAMESPACE, "--create-namespace",
         "--take-ownership", "--force-conflicts", *given, server=server)  # fmt: skip


def uninstall(server: ApiServer) -> None:
    """Take the release away again; the CRDs stay."""
    helm("uninstall", RELEASE, "-n", NAMESPACE, "--no-hooks", server=server)
