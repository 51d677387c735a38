"""The lab's image registry: CNCF distribution, plain HTTP, its data shared by every lab of this cache.

Why it exists: only a registry gives images a digest that a pod's status then shows, and only a moved tag in a registry
behaves like one. The data stay between labs, since pushing what is there already costs nothing.
"""

from __future__ import annotations

import http.client
import shutil
from typing import TYPE_CHECKING

import yaml

from lab import daemons
from lab.command import LabError, wait_for
from lab.paths import cache_root

if TYPE_CHECKING:
    from lab.binaries import Binaries
    from lab.layout import Layout

DAEMON = "registry"
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, "
    "application/vnd.docker.distribution.manifest.v2+json"
)
_LIMIT_BYTES = 20 * 2**30


def start(layout: Layout, binaries: Binaries) -> None:
    """Starts the registry and returns when it answers."""
    data = cache_root() / "registry"
    # Whatever is in there can be pushed again from the image builder's own store.
    if data.exists() and sum(path.stat().st_size for path in data.rglob("data")) > _LIMIT_BYTES:
        shutil.rmtree(data)
    config = layout.root / "registry.yaml"
    config.write_text(yaml.safe_dump({
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {
            "filesystem": {"rootdirectory": str(data)},
            "delete": {"enabled": True},
            "maintenance": {"uploadpurging": {"enabled": False}},
        },
        "http": {"addr": layout.registry},
    }))  # fmt: skip
    # Unless told otherwise it sends traces to a collector that is not there.
    daemons.spawn(layout, DAEMON, [binaries.registry, "serve", str(config)], env={"OTEL_TRACES_EXPORTER": "none"})
    wait_for("registry", lambda: _answers(layout), seconds=20, every=0.1, hint=f"See {layout.logs}/{DAEMON}.log.")


def stop(layout: Layout) -> None:
    """Kills the registry; pulls then fail."""
    daemons.stop(layout, DAEMON, grace=0)


def digest(layout: Layout, repository: str, tag: str) -> str | None:
    """The digest of ``repository:tag``; None when the registry does not have it."""
    connection = http.client.HTTPConnection(layout.registry, timeout=10)
    try:
        connection.request("HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": _MANIFESTS})
        answer = connection.getresponse()
        answer.read()
    except OSError as error:
        raise LabError(f"registry {layout.registry}: {error}; is the lab up? (`python -m lab status`)") from error
    finally:
        connection.close()
    if answer.status == 404:
        return None
    found = answer.getheader("Docker-Content-Digest")
    if answer.status != 200 or found is None:
        raise LabError(f"registry {layout.registry} answered {answer.status} for {repository}:{tag}")
    return found


def _answers(layout: Layout) -> bool:
    daemons.require_alive(layout, DAEMON)
    digest(layout, "none", "none")
    return True
