"""Certificates of a lab: one authority, and one certificate for each part that must prove who it is.

Why it exists: the API server tells its clients apart by certificate (an administrator, the node), and that is what the
access rules under test rest on. Keys live in the lab's folder only, for as long as the lab does.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import yaml

from lab.command import run

if TYPE_CHECKING:
    from pathlib import Path

    from lab.layout import Layout, SecondLayout

SERVICE_ADDRESS = "10.96.0.1"  # of the `kubernetes` Service: the first of the service network


def make(layout: Layout) -> None:
    """Makes every key, certificate and kubeconfig of the lab."""
    layout.pki.mkdir(mode=0o700)
    _openssl(
        layout.pki,
        "req",
        "-x509",
        *_NEW_KEY,
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
        "-subj",
        "/CN=preheat-lab",
        "-days",
        "365",
    )
    names = f"IP:{layout.node_address},IP:127.0.0.1,IP:{SERVICE_ADDRESS},DNS:localhost,DNS:kubernetes.default.svc"
    _issue(layout.pki, "apiserver", "/CN=kube-apiserver", names)
    _issue(layout.pki, "admin", "/O=system:masters/CN=admin")
    _openssl(layout.pki, "genrsa", "-out", "serviceaccounts.key", "2048")
    _kubeconfig(layout, "admin")
    _make_node(layout)


def join(layout: SecondLayout) -> None:
    """Makes what a second node proves itself with, by the lab's own authority."""
    layout.pki.mkdir(mode=0o700)
    for name in ("ca.crt", "ca.key"):
        shutil.copy2(layout.first.pki / name, layout.pki / name)
    _make_node(layout)


def _make_node(layout: Layout) -> None:
    _issue(layout.pki, "kubelet", f"/CN={layout.node_name}", f"IP:{layout.node_address},DNS:{layout.node_name}")
    _issue(layout.pki, "node", f"/O=system:nodes/CN=system:node:{layout.node_name}")
    _kubeconfig(layout, "node")


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *words: str) -> None:
    run(["openssl", *words], timeout=30, cwd=folder)


def _issue(folder: Path, name: str, subject: str, alternatives: str = "") -> None:
    _openssl(folder, "req", *_NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={alternatives}\n" if alternatives else "")
    ca = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "365", "-extfile", extensions.name)
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *ca, "-out", f"{name}.crt")


def _kubeconfig(layout: Layout, user: str) -> None:
    files = {
        key: str(layout.pki / f"{user}.{ending}")
        for key, ending in (("client-certificate", "crt"), ("client-key", "key"))
    }
    cluster = {"server": layout.api, "certificate-authority": str(layout.pki / "ca.crt")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": layout.name, "cluster": cluster}],
        "users": [{"name": user, "user": files}],
        "contexts": [{"name": layout.name, "context": {"cluster": layout.name, "user": user}}],
        "current-context": layout.name,
    }
    path = layout.root / f"{user}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
