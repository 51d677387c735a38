"""A node of the lab: containerd, the kubelet and kube-proxy; and what tests do to a node.

Why it exists: tests take the node away, restart its parts, give it hardware that it does not have; and the settings
that a kubelet and containerd need inside a lab (control groups of version 1, no right to lower oom scores) are said here.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from lab import daemons
from lab.command import LabError, run, wait_for
from lab.isolation import inside
from lab.paths import cache_root, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from lab.binaries import Binaries
    from lab.layout import Layout

PODS = "10.244.0.0/16"
PARTS = ("containerd", "kubelet", "kube-proxy")
# As in cached/Dockerfile.
COMPILES = "/var/cache/compiles"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of a lab."""

    layout: Layout
    binaries: Binaries

    @property
    def name(self) -> str:
        return self.layout.node_name

    def start(self, *, pause: str) -> None:
        """Starts the node's parts. Returns when the node is Ready (about 6 s). ``pause`` is the image of pod sandboxes."""
        self._configure(pause)
        self.start_containerd()
        self.start_kubelet()
        # kube-proxy ends when the node's addresses change after its start, so the Node must exist first.
        self._kubectl_until("get", "node", self.name, "-o", "name", what="registration of the node")
        self._start_proxy()
        self.wait_ready()

    def wait_ready(self, seconds: float = 60) -> None:
        """Returns when the node's Ready condition is True."""
        query = ("get", "node", self.name, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}")
        self._kubectl_until(*query, wanted="True", what="node Ready", seconds=seconds)

    def start_containerd(self) -> None:
        path = f"{self.binaries.containerd}:/usr/sbin:/usr/bin:/sbin:/bin"
        containerd = str(self.binaries.containerd / "containerd")
        daemons.spawn(
            self.layout, "containerd", [containerd, "-c", str(self.layout.root / "containerd.toml")], env={"PATH": path}
        )
        # The kubelet ends at once when the socket is not there yet.
        wait_for("containerd", lambda: self._containerd_answers(), seconds=30, every=0.1)

    def start_kubelet(self) -> None:
        daemons.spawn(self.layout, "kubelet", [
            self.binaries.kubernetes("kubelet"), "--config", str(self.layout.root / "kubelet.yaml"),
            "--kubeconfig", str(self.layout.root / "node.kubeconfig"), "--hostname-override", self.name,
            "--node-ip", self.layout.node_address, "--root-dir", str(self.layout.root / "kubelet"),
        ])  # fmt: skip

    def stop_kubelet(self) -> None:
        """Kills the kubelet; containers go on running."""
        daemons.stop(self.layout, "kubelet", grace=0)

    def restart(self) -> None:
        """Kills and starts the kubelet and containerd, as after a crash; containers go on running."""
        for name in ("kubelet", "containerd"):
            daemons.stop(self.layout, name, grace=0)
        self.start_containerd()
        self.start_kubelet()
        self.wait_ready()

    def delete(self) -> None:
        """Takes the node out of the cluster, as when a machine is lost: its pods are deleted by the control plane.

        Follow with :meth:`join`.
        """
        daemons.stop(self.layout, "kubelet", grace=0)
        self._kubectl("delete", "node", self.name, "--ignore-not-found")

    def join(self) -> None:
        """Brings a deleted node back. A kubelet registers only when it starts."""
        daemons.stop(self.layout, "kubelet", grace=0)
        daemons.stop(self.layout, "kube-proxy")
        self.start_kubelet()
        self._kubectl_until("get", "node", self.name, "-o", "name", what="registration of the node")
        self._start_proxy()
        self.wait_ready()

    def set_extended_resource(self, resource: str, amount: int) -> None:
        """Makes the node say that it has this much of ``resource`` (``nvidia.com/gpu``); 0 takes it away.

        Scheduling is then real, the device is not.
        """
        pointer = f"/status/capacity/{resource.replace('~', '~0').replace('/', '~1')}"
        operation = (
            {"op": "add", "path": pointer, "value": str(amount)} if amount else {"op": "remove", "path": pointer}
        )
        patch = ["patch", "node", self.name, "--subresource=status", "--type=json", "-p", json.dumps([operation])]
        self._kubectl(*patch)
        # The kubelet repeats capacity as allocatable a moment later.
        query = (
            "get",
            "node",
            self.name,
            "-o",
            f"jsonpath={{.status.allocatable.{resource.replace('.', chr(92) + '.')}}}",
        )
        wait_for(f"{resource} allocatable", lambda: (self._kubectl(*query) or "0") == str(amount), seconds=60)

    def label(self, labels: Mapping[str, str | None]) -> None:
        """Sets labels of the node; None removes one."""
        self._kubectl(
            "label",
            "node",
            self.name,
            "--overwrite",
            *(f"{k}={v}" if v is not None else f"{k}-" for k, v in labels.items()),
        )

    def ctr(self, *words: str, timeout: float = 120) -> str:
        """Runs containerd's own client inside the node, in Kubernetes' namespace."""
        return run([*inside(self.layout), *self.ctr_command(), *words], timeout=timeout)

    def ctr_command(self) -> list[str]:
        """The words that :meth:`ctr` begins with."""
        return [str(self.binaries.containerd / "ctr"), "-a", str(self.layout.root / "containerd.sock"), "-n", "k8s.io"]

    def stop(self) -> None:
        """Stops the node's parts. Containers are left to :func:`lab.isolation.remove`."""
        for name in reversed(PARTS):
            daemons.stop(self.layout, name)

    def _start_proxy(self) -> None:
        daemons.spawn(self.layout, "kube-proxy", [
            self.binaries.kubernetes("kube-proxy"), "--kubeconfig", str(self.layout.kubeconfig), "--proxy-mode", "nftables",
            "--hostname-override", self.name, "--cluster-cidr", PODS,
            "--conntrack-max-per-core", "0",  # a value of the whole machine, which a namespace cannot set
        ])  # fmt: skip

    def _containerd_answers(self) -> bool:
        daemons.require_alive(self.layout, "containerd")
        if not (self.layout.root / "containerd.sock").exists():
            return False
        self.ctr("version", timeout=10)
        return True

    def _kubectl(self, *words: str) -> str:
        return run([tool("kubectl"), "--kubeconfig", str(self.layout.kubeconfig), *words], timeout=60)

    def _kubectl_until(self, *words: str, what: str, wanted: str = "", seconds: float = 60) -> None:
        def probe() -> bool:
            daemons.require_alive(self.layout, "kubelet")
            said = self._kubectl(*words).strip()
            return said == wanted if wanted else bool(said)

        wait_for(what, probe, seconds=seconds, hint=f"See {self.layout.logs}/kubelet.log.")

    def mounts(self) -> dict[str, Path]:
        """What each container of the node has mounted beside its own: the place there, and here what is there.

        Only images that are made for it use the cache of compiler output.
        """
        compiles = cache_root() / "compiles"
        compiles.mkdir(exist_ok=True)
        # Pods run as whatever user they like.
        compiles.chmod(0o1777)
        return {COMPILES: compiles}

    def _base(self) -> Path:
        """A file with what containers begin with (an OCI runtime's config.json): containerd's own default, and the mounts."""
        base = json.loads(run([str(self.binaries.containerd / "ctr"), "oci", "spec"], timeout=30))
        base["mounts"] += [
            {
                "destination": there,
                "type": "bind",
                "source": str(here),
                "options": ["bind", "ro" if here.is_file() else "rw"],
            }
            for there, here in self.mounts().items()
        ]
        path = self.layout.root / "base.json"
        path.write_text(json.dumps(base))
        return path

    def _configure(self, pause: str) -> None:
        root = self.layout.root
        cni = root / "cni"
        cni.mkdir(exist_ok=True)
        bridge = {
            "type": "bridge", "bridge": "cni0", "isGateway": True, "ipMasq": False, "hairpinMode": True,
            "ipam": {
                "type": "host-local", "dataDir": str(root / "ipam"), "ranges": [[{"subnet": self.layout.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }  # fmt: skip
        (cni / "10-lab.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge]}))
        hosts = root / "certs.d" / self.layout.registry
        hosts.mkdir(parents=True, exist_ok=True)
        address = f"http://{self.layout.registry}"
        (hosts / "hosts.toml").write_text(
            f'server = "{address}"\n[host."{address}"]\n  capabilities = ["pull", "resolve"]\n'
        )
        (root / "containerd.toml").write_text(_containerd_toml(self.layout, pause, self._base()))
        (root / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet_configuration(self.layout)))


def _containerd_toml(layout: Layout, pause: str, base: Path) -> str:
    root = layout.root
    runc = next((path for path in ("/usr/sbin/runc", "/usr/bin/runc") if os.access(path, os.X_OK)), None)
    if runc is None:
        raise LabError("runc is not installed; run `make cluster-up`, which installs what is missing")
    return f"""version = 3
root = "{root}/containerd/root"
state = "{root}/containerd/state"
[grpc]
address = "{root}/containerd.sock"
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "{root}/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
# Where root may not lower oom scores, every sandbox fails without this.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{root}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "{base}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
"""


def _kubelet_configuration(layout: Layout) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "containerRuntimeEndpoint": f"unix://{layout.root}/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(layout.pki / "kubelet.crt"),
        "tlsPrivateKeyFile": str(layout.pki / "kubelet.key"),
        "clusterDomain": "cluster.local",
        "clusterDNS": ["10.96.0.10"],  # nobody answers there, but without it every pod gets a warning
        "resolvConf": "",
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "podLogsDir": str(layout.root / "podlogs"),
    }
