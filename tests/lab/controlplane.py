"""etcd, the API server, the controller manager and the scheduler of a lab.

Why it exists: the flags below differ from the defaults for reasons that each cost somebody an afternoon; they are said
beside each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab import daemons
from lab.command import LabError, run, wait_for
from lab.paths import tool

if TYPE_CHECKING:
    from lab.binaries import Binaries
    from lab.layout import Layout

SERVICES = "10.96.0.0/16"
PARTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def start(layout: Layout, binaries: Binaries) -> None:
    """Starts the control plane and returns when the API server says it is ready (about 4 s)."""
    etcd = "http://127.0.0.1:2379"
    daemons.spawn(layout, "etcd", [
        binaries.etcd, "--data-dir", str(layout.root / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
        "--listen-peer-urls", "http://127.0.0.1:2380", "--log-level", "warn",
        "--unsafe-no-fsync",  # a lab loses nothing worth keeping in a power cut
    ])  # fmt: skip
    start_api(layout, binaries)
    kubeconfig = ["--kubeconfig", str(layout.kubeconfig), "--leader-elect=false"]
    daemons.spawn(layout, "kube-controller-manager", [
        binaries.kubernetes("kube-controller-manager"), *kubeconfig, "--use-service-account-credentials",
        "--service-account-private-key-file", _pki(layout, "serviceaccounts.key"), "--root-ca-file", _pki(layout, "ca.crt"),
        "--cluster-signing-cert-file", _pki(layout, "ca.crt"), "--cluster-signing-key-file", _pki(layout, "ca.key"),
    ])  # fmt: skip
    daemons.spawn(layout, "kube-scheduler", [binaries.kubernetes("kube-scheduler"), *kubeconfig])


def start_api(layout: Layout, binaries: Binaries) -> None:
    """Starts the API server (alone: for tests of its absence) and waits until it is ready."""
    daemons.spawn(layout, "kube-apiserver", [
        binaries.kubernetes("kube-apiserver"), "--etcd-servers", "http://127.0.0.1:2379", "--service-cluster-ip-range", SERVICES,
        "--authorization-mode", "Node,RBAC", "--allow-privileged", "--bind-address", "0.0.0.0", "--secure-port", "6443",
        "--advertise-address", layout.node_address, "--client-ca-file", _pki(layout, "ca.crt"),
        "--tls-cert-file", _pki(layout, "apiserver.crt"), "--tls-private-key-file", _pki(layout, "apiserver.key"),
        "--service-account-issuer", "https://kubernetes.default.svc",
        "--service-account-key-file", _pki(layout, "serviceaccounts.key"),
        "--service-account-signing-key-file", _pki(layout, "serviceaccounts.key"),
        "--kubelet-client-certificate", _pki(layout, "admin.crt"), "--kubelet-client-key", _pki(layout, "admin.key"),
        "--kubelet-preferred-address-types", "InternalIP",  # else `kubectl logs` looks up the node's name
    ])  # fmt: skip
    wait_for("API server", lambda: ready(layout), seconds=60, hint=f"See {layout.logs}/kube-apiserver.log.")


def stop_api(layout: Layout) -> None:
    """Kills the API server; the other parts go on and reconnect."""
    daemons.stop(layout, "kube-apiserver", grace=0)


def ready(layout: Layout) -> bool:
    """Whether the API server answers and says that it is ready. Raises when it, or etcd, has ended."""
    for name in ("etcd", "kube-apiserver"):
        daemons.require_alive(layout, name)
    try:
        return run(
            [tool("kubectl"), "--kubeconfig", str(layout.kubeconfig), "get", "--raw", "/readyz", "--request-timeout=3s"], timeout=10
        ).strip() == "ok"  # fmt: skip
    except LabError:
        return False


def stop(layout: Layout) -> None:
    """Stops in the order in which nothing waits for a part that has gone already."""
    for name in reversed(PARTS):
        daemons.stop(layout, name)


def _pki(layout: Layout, name: str) -> str:
    return str(layout.pki / name)
