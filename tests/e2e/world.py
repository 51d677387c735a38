"""The world of the end-to-end tests: a cluster with Preheat installed, and ways to break each part of it and mend it.

Every breaking is a context manager that mends what it broke, also when the test fails.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import kit

from lab import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab import Lab
    from lab.install import Installed


def jobs_ever(kube: kit.Kube) -> set[str]:
    """Every Job that ever made a pod in the namespace; the events stay after a finished Job was removed."""
    return {
        event["involvedObject"]["uid"]
        for event in kube.list("events")
        if event["reason"] == "SuccessfulCreate" and event["involvedObject"]["kind"] == "Job"
    }


def wait_degraded(kube: kit.Kube, reason: str, *, timeout: float) -> dict[str, Any]:
    """Wait until the model tiny is Degraded for this reason, and return the condition."""

    def probe() -> dict[str, Any] | None:
        found = kit.condition(kube.get("compiledmodel", "tiny"), "Degraded")
        return found if found.get("reason") == reason else None

    found: dict[str, Any] = kube.wait_for(f"Degraded: {reason}", probe, timeout=timeout, every=1)
    return found


# Where what torch's own torch.compile does is not the matter, it need not take half a minute.
QUICK = {"PREHEAT_SERVING": "onMiss=Eager"}
# Where only what the pod was given is the matter, it computes eagerly: compiling by torch takes half a minute.
EAGER = {"COMPILE": "0"}
# As in the image of tiny: beside threads that spin while they wait, those that sleep get no turn.
CALM = {"OMP_WAIT_POLICY": "PASSIVE"}


@dataclass(kw_only=True)
class World:
    """A lab with Preheat in it."""

    lab: Lab
    installed: Installed
    _images: dict[tuple[str, tuple[tuple[str, str], ...]], str] = field(default_factory=dict)

    @property
    def admin(self) -> kit.Kube:
        """`kubectl` for the namespace that Preheat is installed in."""
        return kit.Kube(kubeconfig=str(self.lab.kubeconfig), namespace=self.installed.namespace)

    def image(self, example: str, **args: str) -> str:
        """The example's image, by digest; other build arguments make another image of the same model."""
        key = (example, tuple(sorted(args.items())))
        if key not in self._images:
            self._images[key] = self.lab.example_image(example, args, cached=True).pinned
        return self._images[key]

    # --- namespaces ---

    @contextlib.contextmanager
    def namespace(self, name: str) -> Iterator[kit.Kube]:
        """A fresh namespace with the store's credentials in it."""
        namespace = f"{name}-{secrets.token_hex(2)}"
        self.lab.prepare_namespace(namespace)
        try:
            yield kit.Kube(kubeconfig=str(self.lab.kubeconfig), namespace=namespace)
        finally:
            self.admin.run("delete", "namespace", namespace, timeout=300)

    def tenant(self, namespace: str) -> str:
        """The prefix of everything that the namespace has in the store."""
        return f"v1/{self.installed.cluster_id}.{namespace}"

    def manifest_key(self, namespace: str, digest: str) -> str:
        """Where the store keeps a manifest of the namespace."""
        return f"{self.tenant(namespace)}/manifests/sha256/{digest.removeprefix('sha256:')}.json"

    def manifest(self, namespace: str, digest: str) -> dict[str, Any]:
        """A manifest of the namespace, as the store has it."""
        found: dict[str, Any] = json.loads(self.read(self.manifest_key(namespace, digest)))
        return found

    @contextlib.contextmanager
    def without_secret(self, kube: kit.Kube, name: str) -> Iterator[None]:
        """Take a Secret away."""
        secret = kube.get("secret", name)
        assert secret is not None
        kube.run("delete", "secret", name)
        try:
            yield
        finally:
            kube.apply({k: secret[k] for k in ("apiVersion", "kind", "type", "data")} | {"metadata": {"name": name}})

    # --- the installation ---

    def uninstall(self) -> None:
        """Uninstall the chart, as a user does."""
        installed = self.installed
        self.lab.helm("uninstall", installed.release, "--namespace", installed.namespace, "--wait", "--timeout", "180s")

    def install(self) -> None:
        """Install the chart again."""
        self.installed = self.lab.install_preheat()

    # --- the controller ---

    def _controllers(self) -> list[str]:
        return [p["metadata"]["name"] for p in self.admin.list("pods", self.installed.controller_selector)]

    def kill_controller(self) -> None:
        """Kill the controller as a node failure would: at once, without a word."""
        self.admin.run("delete", "pods", "-l", self.installed.controller_selector, "--force", "--grace-period=0")

    def wait_controller(self) -> None:
        """Wait until a controller serves."""
        name = self.installed.controller
        self.admin.run("rollout", "status", f"deployment/{name}", "--timeout=120s", timeout=300)

    @contextlib.contextmanager
    def controller_down(self) -> Iterator[None]:
        """Take the controller away."""
        name = self.installed.controller
        self.admin.run("scale", "deployment", name, "--replicas=0")
        self.admin.wait_for("the controller to go", lambda: not self._controllers(), timeout=300)
        try:
            yield
        finally:
            self.admin.run("scale", "deployment", name, "--replicas=1")
            self.wait_controller()

    # --- the store ---

    @contextlib.contextmanager
    def store_down(self) -> Iterator[None]:
        """Stop the S3 server."""
        self.lab.s3.stop()
        try:
            yield
        finally:
            self.lab.s3.start()

    def read(self, key: str) -> bytes:
        """Read one object of the store."""
        return self.lab.s3.client().get_object(Bucket=self.lab.s3.bucket, Key=key)["Body"].read()

    @contextlib.contextmanager
    def replaced(self, key: str, data: bytes) -> Iterator[None]:
        """Replace an object of the store, as somebody with the right to write could."""
        original = self.read(key)
        client = self.lab.s3.client()
        client.put_object(Bucket=self.lab.s3.bucket, Key=key, Body=data)
        try:
            yield
        finally:
            client.put_object(Bucket=self.lab.s3.bucket, Key=key, Body=original)

    # --- the node ---

    @contextlib.contextmanager
    def node_gone(self) -> Iterator[None]:
        """Take the node away, as when a machine dies; then it comes back."""
        self.lab.node.delete()
        try:
            yield
        finally:
            self.lab.node.join()

    @contextlib.contextmanager
    def product_image_gone(self) -> Iterator[None]:
        """Remove the product image from the node and stop the registry, so that it cannot be pulled."""
        self.lab.node.ctr("images", "remove", "--sync", self.installed.image)
        registry.stop(self.lab.layout)
        try:
            yield
        finally:
            registry.start(self.lab.layout, self.lab.binaries)
