"""Constant requests at a Service, from inside the cluster: what the users of a roll-out see of it."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kit

if TYPE_CHECKING:
    from collections.abc import Iterator

# Counts from the first answer on. Every request is a connection of its own, so that each may reach any pod.
_SCRIPT = """
import json, struct, sys, time, urllib.request
url, body = sys.argv[1], struct.pack("<64f", *(i / 64 for i in range(64)))
answered, failed, slowest, pods = 0, [], 0.0, {}
while True:
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60) as reply:
            said = json.load(reply)
        assert len(said["answer"]) == 8
        answered += 1
        slowest = max(slowest, time.monotonic() - begun)
        pods[said["pod"]] = pods.get(said["pod"], 0) + 1
    except Exception as error:
        if answered:
            failed.append(f"{type(error).__name__}: {error}")
    print(json.dumps({"answered": answered, "failed": failed, "slowest": slowest, "pods": pods}), flush=True)
    time.sleep(0.1)
"""
_CLIENT = "asks"


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """A client that asks the whole time."""

    kube: kit.Kube

    def so_far(self) -> tuple[int, list[str]]:
        """How many requests were answered, and what became of the others."""
        said = self.all()
        return said.get("answered", 0), said.get("failed", [])

    def all(self) -> dict[str, Any]:
        """Also the `slowest` answer in seconds, and how many each of the `pods` gave; empty before the first request."""
        lines = self.kube.run("logs", _CLIENT, "--tail=1", check=False).splitlines()
        try:
            return dict(json.loads(lines[-1]))
        except (IndexError, ValueError):
            return {}

    def wait_answers(self, more: int, *, timeout: float = 300) -> None:
        """Wait until `more` further requests were answered."""
        target = self.so_far()[0] + more
        self.kube.wait_for(f"{target} answers", lambda: self.so_far()[0] >= target, timeout=timeout)


@contextlib.contextmanager
def traffic(kube: kit.Kube, app: str, image: str) -> Iterator[Traffic]:
    """Ask the pods of `app` through a Service, ten times a second, until the end."""
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": app},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8080}]},
    }  # fmt: skip
    kube.apply(service)
    made = kube.get("service", app)
    assert made is not None
    url = f"http://{made['spec']['clusterIP']}/run"
    client: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": _CLIENT},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "client", "image": image, "command": ["python3", "-c", _SCRIPT, url]}],
        },
    }  # fmt: skip
    kube.apply(client)
    try:
        result = Traffic(kube=kube)
        kube.wait_for("the first answer", lambda: result.so_far()[0] > 0, timeout=300)
        yield result
    finally:
        kube.run("delete", "pod", _CLIENT, "--wait=true")
        kube.run("delete", "service", app)


def rolling(example: str, image: str, *, replicas: int, **changes: Any) -> dict[str, Any]:
    """The example's Deployment as one that loses no request: new pods first, and old ones go once nobody is sent there."""
    thing = kit.deployment(example, image, label=example, replicas=replicas, **changes)
    thing["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    thing["spec"]["template"]["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": 5}}}
    return thing


def pods_of(kube: kit.Kube, app: str, image: str) -> list[dict[str, Any]]:
    """Pods of an app with an image that are not being deleted."""
    return [p for p in kit.running_pods(kube, app) if p["spec"]["containers"][0]["image"] == image]


def wait_ready_pods(kube: kit.Kube, app: str, image: str, count: int, *, timeout: float = 300) -> list[dict[str, Any]]:
    """Wait until `count` pods of an app are ready, all with this image; return them."""

    def probe() -> list[dict[str, Any]] | None:
        pods = kit.running_pods(kube, app)
        right = [p for p in pods if p["spec"]["containers"][0]["image"] == image and kit.is_ready(p)]
        return pods if len(pods) == len(right) == count else None

    found: list[dict[str, Any]] = kube.wait_for(f"{count} ready pods of {app}", probe, timeout=timeout)
    return found


def gated(pod: dict[str, Any]) -> bool:
    """Whether our gate holds a pod back."""
    return {"name": "preheat.dev/artifact"} in pod["spec"].get("schedulingGates", [])


def wait_gated(kube: kit.Kube, app: str, image: str) -> dict[str, Any]:
    """Wait for a pod of this image that is held back."""
    found: dict[str, Any] = kube.wait_for(
        "a pod that waits",
        lambda: next((p for p in pods_of(kube, app, image) if gated(p)), None),
        timeout=300,
    )
    return found


def said(pod: dict[str, Any], name: str) -> str:
    """One of our annotations of a pod."""
    return str((pod["metadata"].get("annotations") or {}).get(f"preheat.dev/{name}", ""))
