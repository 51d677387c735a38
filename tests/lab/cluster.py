"""A lab as tests, scripts and the command line use it: start, stop, and what is in it.

Why it exists: this is the one public surface of the package; the other modules each know one part.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from lab import controlplane, daemons, debian, images, install, isolation, pki, registry, second
from lab import layout as layouts
from lab.binaries import PARTS, Binaries
from lab.command import LabError, run, wait_for
from lab.images import Images
from lab.node import Node
from lab.paths import REPOSITORY, cache_root, tool
from lab.progress import say, step
from lab.s3 import S3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from lab.images import Image
    from lab.layout import Layout


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A lab. Made by :func:`up` or :func:`attach`."""

    layout: Layout
    binaries: Binaries

    @property
    def kubeconfig(self) -> Path:
        """An administrator's kubeconfig, usable from the machine and from inside the node."""
        return self.layout.kubeconfig

    @property
    def registry(self) -> str:
        """``<host>:<port>`` of the image registry, the same for the machine and for the node."""
        return self.layout.registry

    @property
    def s3(self) -> S3:
        return S3(layout=self.layout)

    @property
    def images(self) -> Images:
        return Images(layout=self.layout)

    @property
    def node(self) -> Node:
        return Node(layout=self.layout, binaries=self.binaries)

    def second_node(self) -> AbstractContextManager[second.SecondNode]:
        """See :func:`lab.second.second_node`."""
        return second.second_node(self)

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """Runs kubectl as administrator and returns what it printed. ``timeout`` in seconds."""
        argv = [tool("kubectl"), "--kubeconfig", str(self.kubeconfig), *words]
        return run(argv, stdin=stdin, check=check, timeout=timeout)

    def get(self, *words: str) -> dict[str, Any]:
        """``kubectl get <words> -o json``, decoded."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return found

    def apply(self, *objects: Mapping[str, Any], namespace: str | None = None) -> None:
        """Applies objects, server side."""
        text = yaml.safe_dump_all([json.loads(json.dumps(item)) for item in objects])
        where = ["--namespace", namespace] if namespace else []
        self.kubectl("apply", "--server-side", "--force-conflicts", *where, "-f", "-", stdin=text)

    def wait(self, what: str, probe: Callable[[], Any], *, seconds: float = 60) -> Any:
        """Calls ``probe`` until it returns something true, and returns that; :class:`LabError` says "not yet"."""
        return wait_for(what, probe, seconds=seconds)

    def helm(self, *words: str, check: bool = True, timeout: float = 300) -> str:
        """Runs Helm as administrator and returns what it printed."""
        return run([self.binaries.helm, "--kubeconfig", str(self.kubeconfig), *words], check=check, timeout=timeout)

    def stop_api(self) -> None:
        """Takes the API server away; :meth:`start_api` brings it back."""
        controlplane.stop_api(self.layout)

    def start_api(self) -> None:
        """Starts the API server and waits until it is ready."""
        controlplane.start_api(self.layout, self.binaries)

    def install_preheat(self, *, values: Mapping[str, object] | None = None) -> install.Installed:
        """See :func:`lab.install.install_preheat`."""
        return install.install_preheat(self, values=values)

    def prepare_namespace(self, name: str) -> None:
        """See :func:`lab.install.prepare_namespace`."""
        install.prepare_namespace(self, name)

    def example_image(self, example: str, args: Mapping[str, str] | None = None, *, cached: bool = False) -> Image:
        """See :func:`lab.install.example_image`."""
        return install.example_image(self, example, args, cached=cached)

    def environment(self) -> dict[str, str]:
        """What a program needs in order to use this lab, as environment variables."""
        paths = [str(REPOSITORY / folder) for folder in ("operator", "compiler_job", "tests")]
        return {
            "PATH": f"{Path(tool('kubectl')).parent}:{Path(self.binaries.helm).parent}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(paths),
            "KUBECONFIG": str(self.kubeconfig),
            "PREHEAT_LAB": self.layout.name,
            "PREHEAT_LAB_REGISTRY": self.registry,
            "PREHEAT_LAB_NODE": self.node.name,
            "PREHEAT_LAB_S3_ENDPOINT": self.s3.endpoint,
            "PREHEAT_LAB_S3_BUCKET": self.s3.bucket,
            "PREHEAT_LAB_S3_REGION": self.s3.region,
            "PREHEAT_LAB_S3_CREDENTIALS": str(self.layout.root / "s3.json"),
        }


def prepare(parts: Sequence[str] = ()) -> None:
    """Installs and builds what a lab needs, or these parts alone: ``g++``, and of :data:`lab.binaries.PARTS`."""
    if not parts:
        debian.ensure(debian.CLUSTER)
    elif "g++" in parts:
        debian.ensure(debian.COMPILER)
    Binaries().prepare([part for part in parts or PARTS if part != "g++"])


def up(name: str) -> Lab:
    """Starts the lab of that name, or returns it when it runs. What a killed run left behind is removed first."""
    prepare()
    binaries = Binaries()
    layout = layouts.allocate(name)
    with layouts.locked(name):
        lab = Lab(layout=layout, binaries=binaries)
        if _complete(layout):
            say(f"lab {name} is up already")
            return lab
        if (layout.root / "run").exists() or isolation.leftovers(layout):
            say(f"lab {name} was left behind by a run that did not end well; removing it")
            _take_down(layout)
            layout = layouts.allocate(name)
            lab = Lab(layout=layout, binaries=binaries)
        if not any(_complete(other) for other in layouts.everything()):
            images.bound_store()
        _require_room(layout)
        try:
            _start(lab)
        except BaseException:
            say(f"lab {name} could not be started; its logs are in {layout.logs}; `python -m lab down` removes it")
            raise
    return lab


def attach(name: str) -> Lab:
    """The running lab of that name. Raises :class:`LabError` when it does not run."""
    layout = layouts.find(name)
    if layout is None or not _complete(layout):
        raise LabError(f"lab {name} is not up; run `make cluster-up`, or `make test`, which brings its own")
    return Lab(layout=layout, binaries=Binaries())


def down(name: str) -> None:
    """Stops the lab of that name and removes everything of it but what is cached. Safe to repeat."""
    layout = layouts.find(name)
    if layout is None:
        say(f"there is no lab {name}")
        return
    with layouts.locked(name), step(f"taking down lab {name}", usually="10 s, 1 min with large images"):
        _take_down(layout)


def status(name: str) -> list[str]:
    """Lines that say what of the lab runs."""
    layout = layouts.find(name)
    if layout is None:
        return [f"there is no lab {name}"]
    lines = [f"lab {name} in {layout.root}"]
    for part in _PARTS:
        pid = daemons.pid_of(layout, part)
        lines.append(f"  {part:<26}{f'pid {pid}' if pid else 'not running'}")
    if daemons.pid_of(layout, "kube-apiserver"):
        lines.append(f"  API {layout.api}, registry {layout.registry}, S3 {layout.s3_endpoint}")
        lines.append(
            run([tool("kubectl"), "--kubeconfig", str(layout.kubeconfig), "get", "nodes"], timeout=20, check=False)
        )
    return lines


# A kubelet evicts pods, and takes no new ones, long before the disk is full; what then waits does so without a word.
_LEAST_FREE_BYTES = 8 * 2**30


def _require_room(layout: Layout) -> None:
    for folder in {layout.root, cache_root()}:
        free = shutil.disk_usage(folder).free
        if free < _LEAST_FREE_BYTES:
            raise LabError(
                f"only {free / 2**30:.1f} GiB are free in {folder}, and a lab needs {_LEAST_FREE_BYTES // 2**30}: "
                f"delete what is old in {cache_root()}, or set PREHEAT_CACHE to a folder on a larger disk"
            )


_PARTS = (daemons.HOLDER, *controlplane.PARTS, "containerd", "kubelet", "kube-proxy", registry.DAEMON, "s3")


def _complete(layout: Layout) -> bool:
    return all(daemons.pid_of(layout, part) for part in _PARTS)


def _start(lab: Lab) -> None:
    layout, binaries = lab.layout, lab.binaries
    with step(f"making the network namespace of lab {layout.name}", usually="1 s"):
        isolation.make(layout)
        pki.make(layout)
    with step("starting the control plane", usually="8 s"):
        registry.start(layout, binaries)
        controlplane.start(layout, binaries)
    with step("starting the S3 server", usually="8 s"):
        lab.s3.start()
    pause = lab.images.pause()
    with step("starting the node", usually="8 s"):
        lab.node.start(pause=pause.tagged)
        # Right after the start no pod can be made: the service account that every pod names does not exist yet.
        wait_for(
            "default service account", lambda: lab.kubectl("get", "serviceaccount", "default", "-o", "name"), seconds=30
        )


def _take_down(layout: Layout) -> None:
    second.remove(layout)
    node = ("kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager")
    for part in node:
        daemons.stop(layout, part, grace=3)
    # Pods are not asked to end: nothing in a lab is worth their grace periods.
    for _ in range(3):
        daemons.kill_all(isolation.pods(layout))
    for part in ("containerd", "kube-apiserver", "etcd", "s3", registry.DAEMON):
        daemons.stop(layout, part, grace=3)
    isolation.remove(layout)
    isolation.delete_state(layout)
