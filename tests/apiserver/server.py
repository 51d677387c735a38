"""Boots etcd and kube-apiserver on free loopback ports, and talks to them as any user.

Requests are plain HTTPS: a test sees exactly what the API server answers, also as an impersonated user.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from children import die_with_parent
from lab.binaries import Binaries
from lab.daemons import QUICK_GO

if TYPE_CHECKING:
    from pathlib import Path

ADMIN = "admin"
_BOOT_SECONDS = 90
_PARALLEL = {"POST": "application/json", "PUT": "application/json", "PATCH": "application/merge-patch+json"}


@dataclass(frozen=True)
class Answer:
    """What the API server said: HTTP status and object."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        return self.status < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


@dataclass
class ApiServer:
    """A running API server, and requests to it."""

    folder: Path
    url: str
    kubeconfig: Path
    context: ssl.SSLContext
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | list[Any] | None = None,
        *,
        user: str | None = None,
        groups: tuple[str, ...] = (),
        content_type: str | None = None,
    ) -> Answer:
        """One request, as `user` where given; its answer whatever the status."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Accept", "application/json")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type or _PARALLEL[method])
        if user is not None:
            request.add_header("Impersonate-User", user)
        for group in groups:
            request.add_header("Impersonate-Group", group)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return Answer(answer.status, json.loads(answer.read() or b"{}"))
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            try:
                return Answer(error.code, json.loads(text))
            except ValueError:
                return Answer(error.code, {"message": text.decode(errors="replace")})

    def apply(self, *documents: dict[str, Any]) -> None:
        """Server-side apply as the administrator, creating or changing; raises with the server's words."""
        for document in documents:
            path = f"{collection(document)}/{document['metadata']['name']}?fieldManager=test&force=true"
            answer = self.request("PATCH", path, document, content_type="application/apply-patch+yaml")
            if not answer.ok:
                raise AssertionError(f"{path}: {answer.message}")

    def delete(self, *documents: dict[str, Any]) -> None:
        for document in documents:
            answer = self.request("DELETE", f"{collection(document)}/{document['metadata']['name']}")
            if not answer.ok and answer.status != 404:
                raise AssertionError(answer.message)

    def namespace(self, name: str) -> str:
        """Make a namespace; its name."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        return name

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(timeout=20)


_PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "CompiledModel": "compiledmodels",
    "CompiledModelIndex": "compiledmodelindices",
    "Deployment": "deployments",
    "Job": "jobs",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
    "Namespace": "namespaces",
    "Pod": "pods",
    "PriorityClass": "priorityclasses",
    "ServiceAccount": "serviceaccounts",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}


def collection(document: dict[str, Any]) -> str:
    """Path of the collection an object belongs to."""
    version = document["apiVersion"]
    base = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = _PLURALS.get(document["kind"], document["kind"].lower() + "s")
    namespace = document["metadata"].get("namespace")
    return f"{base}/namespaces/{namespace}/{plural}" if namespace else f"{base}/{plural}"


def start(folder: Path) -> ApiServer:
    """Boot both, and wait until the API server says it is ready (about 5 s)."""
    binaries = Binaries()
    binaries.prepare()
    pki = folder / "pki"
    pki.mkdir(parents=True)
    _keys(pki)
    client, peer, secure = _free_ports(3)
    etcd = f"http://127.0.0.1:{client}"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    server = ApiServer(folder, f"https://127.0.0.1:{secure}", _kubeconfig(folder, pki, secure), context)
    server.processes.append(
        _spawn(
            folder,
            "etcd",
            [
                binaries.etcd, "--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
                "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                "--listen-peer-urls", f"http://127.0.0.1:{peer}",
            ],
        )
    )  # fmt: skip
    server.processes.append(
        _spawn(
            folder,
            "kube-apiserver",
            [
                binaries.kubernetes("kube-apiserver"), "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
                "--secure-port", str(secure), "--service-cluster-ip-range", "10.96.0.0/16",
                "--authorization-mode", "Node,RBAC", "--allow-privileged", "--endpoint-reconciler-type", "none",
                "--client-ca-file", str(pki / "ca.crt"),
                "--tls-cert-file", str(pki / "apiserver.crt"), "--tls-private-key-file", str(pki / "apiserver.key"),
                "--service-account-issuer", "https://kubernetes.default.svc",
                "--service-account-key-file", str(pki / "sa.key"),
                "--service-account-signing-key-file", str(pki / "sa.key"),
                # Nothing here makes the service accounts that this plugin asks for.
                "--disable-admission-plugins", "ServiceAccount",
            ],
        )
    )  # fmt: skip
    try:
        _await_ready(server)
    except BaseException:
        server.stop()
        raise
    return server


def _await_ready(server: ApiServer) -> None:
    deadline = time.monotonic() + _BOOT_SECONDS
    while time.monotonic() < deadline:
        for process in server.processes:
            if process.poll() is not None:
                raise AssertionError(f"{process.args[0]} ended; see {server.folder}")  # type: ignore[index]
        try:
            with urllib.request.urlopen(f"{server.url}/readyz", context=server.context, timeout=3):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"the API server did not become ready in {_BOOT_SECONDS} s; see {server.folder}")


def _spawn(folder: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    env = {**QUICK_GO, **os.environ}
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=env, preexec_fn=die_with_parent)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _keys(pki: Path) -> None:
    def run(*command: str) -> None:
        subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=pki, timeout=60)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    run("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test-ca", "-days", "2")
    run("genrsa", "-out", "sa.key", "2048")
    (pki / "names.ext").write_text("subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost")
    for name, subject in (("apiserver", "/CN=kube-apiserver"), (ADMIN, "/O=system:masters/CN=admin")):
        run("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        run(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-days", "2", "-out", f"{name}.crt", "-extfile", "names.ext",
        )  # fmt: skip


def _kubeconfig(folder: Path, pki: Path, port: int) -> Path:
    path = folder / "admin.kubeconfig"
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(pki / "ca.crt")}
    user = {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": ADMIN, "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": ADMIN}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config))
    return path
