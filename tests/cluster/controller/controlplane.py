"""A control plane without nodes, and a hand that plays the kubelet: what the controller sees is real, what runs is not.

Jobs, pods, finalizers and garbage collection are the API server's and the controller manager's own. Only the status of
pods is written by the tests, because no node is there to run them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from apiserver.fixtures import eventually
from children import die_with_parent
from lab.binaries import Binaries

if TYPE_CHECKING:
    from collections.abc import Sequence

    from apiserver.server import ApiServer

REPOSITORY = Path(__file__).resolve().parents[3]
MODEL = "vision"
PRODUCT_IMAGE = "example.org/preheat:1"
_CONTROLLERS = "job-controller,garbage-collector-controller,namespace-controller,pod-garbage-collector-controller"


def start_controller_manager(server: ApiServer) -> None:
    """Start the part of the controller manager that Jobs need; it ends with the API server."""
    pki = server.folder / "pki"
    command = [
        Binaries().kubernetes("kube-controller-manager"), "--kubeconfig", str(server.kubeconfig), "--leader-elect=false",
        "--controllers", _CONTROLLERS, "--service-account-private-key-file", str(pki / "sa.key"),
        "--bind-address", "127.0.0.1", "--secure-port", "0",
    ]  # fmt: skip
    with (server.folder / "controller-manager.log").open("wb") as log:
        server.processes.append(subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_parent))


def kubeconfig_of(server: ApiServer, namespace: str, account: str) -> Path:
    """Write a kubeconfig for a service account, with a token good for an hour; its path."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    answer = server.request("POST", path, request)
    assert answer.ok, answer.message
    config = yaml.safe_load(server.kubeconfig.read_text())
    config["users"] = [
        {"name": user["name"], "user": {"token": answer.body["status"]["token"]}} for user in config["users"]
    ]
    written = server.folder / f"{account}.kubeconfig"
    written.touch(mode=0o600)
    written.write_text(yaml.safe_dump(config))
    return written


def environment(kubeconfig: Path) -> dict[str, str]:
    """The environment the chart gives the controller."""
    return {
        "KUBECONFIG": str(kubeconfig),
        "PREHEAT_IMAGE": PRODUCT_IMAGE,
        "PREHEAT_CLUSTER_ID": "test",
        "PREHEAT_STORE_ENDPOINT": "http://s3.example.org",
        "PREHEAT_STORE_BUCKET": "models",
        "PREHEAT_STORE_REGION": "us-east-1",
    }


def digest(character: str) -> str:
    """A digest that is easy to recognise."""
    return "sha256:" + character * 64


def published(manifest: str, *targets: str, python_path: str | None = None) -> str:
    """The termination message of a `publish` that succeeded."""
    return json.dumps({"v": 1, "digest": manifest, "pythonPath": python_path, "targets": list(targets)})


KEPT = "main|one|Kept|Faster|1.75|0.12|1900000"


@dataclass
class Process:
    """The controller as a process of its own, as in its pod."""

    server: ApiServer
    kubeconfig: Path
    port: int
    metrics_port: int
    resync_seconds: int = 600
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        env = {**os.environ, **environment(self.kubeconfig), "PREHEAT_HEALTH_PORT": str(self.port)}
        env["PREHEAT_METRICS_PORT"] = str(self.metrics_port)
        env["PREHEAT_RESYNC_SECONDS"] = str(self.resync_seconds)
        env["PYTHONPATH"] = f"{REPOSITORY / 'operator'}:{REPOSITORY / 'compiler_job'}"
        with (self.server.folder / "controller.log").open("ab") as log:
            command = [sys.executable, "-m", "preheat_operator.controller"]
            self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, preexec_fn=die_with_parent)

    def kill(self) -> None:
        """End it as a node failure would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=20)
            self.process = None

    def terminate(self) -> int:
        """End it as Kubernetes would; the exit code."""
        assert self.process is not None
        self.process.terminate()
        code = self.process.wait(timeout=40)
        self.process = None
        return code

    @property
    def healthy(self) -> bool:
        """Whether it serves, as its liveness probe would see."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    @property
    def log(self) -> str:
        return (self.server.folder / "controller.log").read_text()


@dataclass
class World:
    """One namespace: makes what a user makes, plays the kubelet, reads what the controller made of it."""

    server: ApiServer
    namespace: str
    finished: set[str] = field(default_factory=set)

    # What a user does.

    def deployment(self, image: str) -> None:
        """Make or change the Deployment that serves the model."""
        container = {"name": "server", "image": image, "env": [{"name": "A", "value": "$(B)"}]}
        spec = {
            "selector": {"matchLabels": {"app": MODEL}},
            "template": {
                "metadata": {"labels": {"app": MODEL, "preheat.dev/model": MODEL}},
                "spec": {"containers": [container]},
            },
        }
        self._apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": MODEL}, "spec": spec})

    def model(self, *, hardware: Sequence[str] = ("cpu",), buckets: Sequence[str] = ("one",), **spec: Any) -> None:
        """Make or change the CompiledModel. Its pods do not wait unless `rollout` says so."""
        entries = [{"name": bucket, "args": [{"tensor": {"shape": [1, 3], "dtype": "float32"}}]} for bucket in buckets]
        body = {
            "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": MODEL},
            "torch": {"factory": "model:load", "modules": [{"name": "main", "path": "", "buckets": entries}]},
            "hardware": [{"name": name} for name in hardware],
            "rollout": {"whenMissing": "Cold"},
            **spec,
        }
        self._apply(
            {
                "apiVersion": "preheat.dev/v1alpha1",
                "kind": "CompiledModel",
                "metadata": {"name": MODEL},
                "spec": {key: value for key, value in body.items() if value is not None},
            }
        )

    def delete_model(self) -> None:
        assert self.server.request("DELETE", f"{self._models}/{MODEL}").ok

    def waiting_pod(
        self, image: str, *, name: str = "waits", guess: str | None = "-", seconds: int = 480, owned: bool = False
    ) -> str:
        """Make a pod as admission leaves one that waits, also behind a gate of somebody else's; its path.

        `guess`: the PYTHONPATH it was injected for; None: nothing was added to it.
        """
        spec: dict[str, Any] = {
            "containers": [{"name": "server", "image": image}],
            "schedulingGates": [{"name": "other.example/gate"}, {"name": "preheat.dev/artifact"}],
        }
        if guess is not None:
            env = [{"name": "PREHEAT_ASSUMED_PYTHONPATH", "value": guess}]
            spec["initContainers"] = [{"name": "preheat-fetch", "image": PRODUCT_IMAGE, "env": env}]
        said = {"manifest": "pending", "injected": "no: it waits", "wait-seconds": str(seconds)}
        metadata: dict[str, Any] = {
            "name": name, "labels": {"preheat.dev/model": MODEL},
            "annotations": {f"preheat.dev/{key}": value for key, value in said.items()},
        }  # fmt: skip
        if owned:
            path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{MODEL}"
            uid = self.server.request("GET", path).body["metadata"]["uid"]
            owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": MODEL, "uid": uid, "controller": True}
            metadata["ownerReferences"] = [owner]
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        answer = self.server.request("POST", pods, body)
        assert answer.ok, answer.message
        return f"{pods}/{name}"

    def gates(self, path: str) -> list[str] | None:
        """The gates of a pod; None when it is gone or going."""
        answer = self.server.request("GET", path)
        if not answer.ok or "deletionTimestamp" in answer.body["metadata"]:
            return None
        return [gate["name"] for gate in answer.body["spec"].get("schedulingGates", ())]

    def await_gone_on(self, path: str) -> dict[str, str]:
        """Wait until our gate, and no other, is off a pod; its annotations, by the names after `preheat.dev/`."""
        eventually(lambda: self.gates(path) == ["other.example/gate"], what="our gate goes, and no other")
        annotations = self.server.request("GET", path).body["metadata"]["annotations"]
        return {key.removeprefix("preheat.dev/"): value for key, value in annotations.items()}

    # What a node does.

    def pod_of(self, job: dict[str, Any]) -> dict[str, Any]:
        """The Job's unfinished pod, once the Job controller has made it."""
        uid = job["metadata"]["uid"]
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [
                p for p in self.pods()
                if p["metadata"]["ownerReferences"][0]["uid"] == uid and p["status"].get("phase") == "Pending"
                and "deletionTimestamp" not in p["metadata"]
            ]  # fmt: skip
            return bool(found)

        eventually(there, what=f"a pod of Job {job['metadata']['name']}")
        return found[0]

    def succeed(self, job: dict[str, Any], message: str) -> None:
        """Let the Job's pod end well, with this termination message of `publish`."""
        pod = self.pod_of(job)
        self.finished.add(job["metadata"]["uid"])
        self.set_pod_status(pod, succeeded(pod, message))

    def fail(self, job: dict[str, Any], container: str, code: int, message: str = "", reason: str = "Error") -> None:
        """Let one container of the Job's pod fail, and with it the pod."""
        pod = self.pod_of(job)
        self.set_pod_status(pod, failed(pod, container, code, message, reason))

    def set_pod_status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Write a pod's status."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        answer = self.server.request("PATCH", path, {"status": status})
        assert answer.ok, answer.message

    # What is there.

    @property
    def _models(self) -> str:
        return f"/apis/preheat.dev/v1alpha1/namespaces/{self.namespace}/compiledmodels"

    def jobs(self) -> list[dict[str, Any]]:
        """The Jobs with the model's label, oldest first; those being deleted are left out."""
        path = f"/apis/batch/v1/namespaces/{self.namespace}/jobs?labelSelector=preheat.dev/compiledmodel={MODEL}"
        items = self.server.request("GET", path).body["items"]
        living = [j for j in items if "deletionTimestamp" not in j["metadata"]]
        return sorted(living, key=lambda j: (j["metadata"]["creationTimestamp"], j["metadata"]["name"]))

    def open_job(self, hardware: str | None = None) -> dict[str, Any]:
        """The Job that was neither finished by the test nor has a condition, once there is one."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [
                j for j in self.jobs()
                if j["metadata"]["uid"] not in self.finished and not j["status"].get("conditions")
                and hardware in (None, j["metadata"]["labels"]["preheat.dev/hardware"])
            ]  # fmt: skip
            return bool(found)

        eventually(there, what=f"an open Job ({hardware})")
        return found[0]

    def pods(self) -> list[dict[str, Any]]:
        """The pods with the model's label for compile pods."""
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=preheat.dev/compiledmodel={MODEL}"
        return list(self.server.request("GET", path).body["items"])

    def status(self) -> dict[str, Any]:
        """The status of the CompiledModel."""
        return dict(self.server.request("GET", f"{self._models}/{MODEL}").body.get("status") or {})

    def condition(self, kind: str) -> tuple[str, str]:
        """Status and reason of a condition; empty when it is not there yet."""
        for condition in self.status().get("conditions", ()):
            if condition["type"] == kind:
                return condition["status"], condition["reason"]
        return "", ""

    def await_condition(self, kind: str, status: str, reason: str) -> None:
        """Wait until a condition has this status and reason."""
        seen: list[tuple[str, str]] = []

        def there() -> bool:
            seen[:] = [self.condition(kind)]
            return seen == [(status, reason)]

        try:
            eventually(there, what=f"{kind} is {status} {reason}")
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(self.status(), indent=1)}") from None

    def index(self) -> str:
        """The text of the namespace's index; empty when there is none."""
        path = f"/apis/preheat.dev/v1alpha1/namespaces/{self.namespace}/compiledmodelindices/preheat"
        return str(self.server.request("GET", path).body.get("models", ""))

    def await_index(self, text: str) -> None:
        """Wait until the index says exactly this."""
        try:
            eventually(lambda: self.index() == text, what="the index")
        except AssertionError:
            assert self.index() == text

    def _apply(self, document: dict[str, Any]) -> None:
        document["metadata"]["namespace"] = self.namespace
        self.server.apply(document)


def succeeded(pod: dict[str, Any], message: str) -> dict[str, Any]:
    """The status of a compile pod that ended well, with this termination message of `publish`."""
    return _ended(pod, phase="Succeeded", ends={c: (0, message if c == "publish" else "") for c in _names(pod)})


def failed(pod: dict[str, Any], container: str, code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    """The status of a compile pod of which one container failed, and with it the pod."""
    ends = {}
    for name in _names(pod):
        ends[name] = (code, message) if name == container else (0, "")
        if name == container:
            break
    return _ended(pod, phase="Failed", ends=ends, reason=reason)


def _ended(
    pod: dict[str, Any], *, phase: str, ends: dict[str, tuple[int, str]], reason: str = "Completed"
) -> dict[str, Any]:
    initial = {c["name"] for c in pod["spec"].get("initContainers", ())}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    statuses: dict[str, list[dict[str, Any]]] = {"initContainerStatuses": [], "containerStatuses": []}
    for name, (code, message) in ends.items():
        ended = {"exitCode": code, "reason": reason if code else "Completed", "message": message}
        kind = "initContainerStatuses" if name in initial else "containerStatuses"
        statuses[kind].append(
            {
                "name": name, "image": "x", "imageID": "", "ready": False, "restartCount": 0,
                "state": {"terminated": {**ended, "startedAt": now, "finishedAt": now}},
            }
        )  # fmt: skip
    return {"phase": phase, **statuses}


def _names(pod: dict[str, Any]) -> list[str]:
    return [c["name"] for c in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"])]
