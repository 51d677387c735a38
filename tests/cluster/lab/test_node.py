"""The node of the lab is a real one: it runs pods from the registry, with digests, and reaches what pods need."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lab.cluster import Lab
    from lab.images import Image

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def image(lab: Lab) -> Image:
    """Debian with Python, in the lab's registry."""
    return lab.images.push(lab.images.base())


def run_pod(lab: Lab, namespace: str, image: str, script: str, *, name: str = "probe", **spec: Any) -> dict[str, Any]:
    """Runs a Python script in a pod to its end and returns the pod."""
    container = {"name": "main", "image": image, "command": ["python3", "-c", script], **spec.pop("container", {})}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    lab.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod}, namespace=namespace)

    def ended() -> dict[str, Any] | None:
        found = lab.get("pod", name, "-n", namespace)
        return found if found["status"]["phase"] in ("Succeeded", "Failed") else None

    found: dict[str, Any] = lab.wait(f"end of pod {name}", ended, seconds=120)
    return found


def output(lab: Lab, namespace: str, name: str = "probe") -> Any:
    return json.loads(lab.kubectl("logs", name, "-n", namespace))


def test_pod_runs_from_the_registry_and_shows_the_digest(lab: Lab, namespace: str, image: Image) -> None:
    pod = run_pod(lab, namespace, image.tagged, "import sys, json; print(json.dumps(sys.version_info[0]))")
    assert pod["status"]["phase"] == "Succeeded"
    assert pod["status"]["containerStatuses"][0]["imageID"] == image.pinned
    assert output(lab, namespace) == 3


def test_moved_tag_is_pulled_by_its_new_digest(lab: Lab, namespace: str) -> None:
    first = lab.images.push(lab.images.base(), name="moving", tag="latest")
    moved = lab.images.push(f"localhost/pause:{lab.images.pause().tag}", name="moving", tag="latest")
    assert moved.digest != first.digest
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": moved.tagged, "imagePullPolicy": "Always"}],
    }
    lab.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "moved"}, "spec": pod}, namespace=namespace)

    def image_id() -> str:
        statuses = lab.get("pod", "moved", "-n", namespace)["status"].get("containerStatuses", [{}])
        return str(statuses[0].get("imageID", ""))

    assert lab.wait("image of the pod", image_id) == moved.pinned


def test_pod_reaches_the_api_and_the_store(lab: Lab, namespace: str, image: Image) -> None:
    script = f"""
import json, ssl, urllib.request, urllib.error
token = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read()
context = ssl.create_default_context(cafile="/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")
request = urllib.request.Request("https://10.96.0.1/version", headers={{"Authorization": "Bearer " + token}})
api = json.load(urllib.request.urlopen(request, context=context, timeout=10))["gitVersion"]
try:
    urllib.request.urlopen("{lab.s3.endpoint}/{lab.s3.bucket}", timeout=10)
    store = 200
except urllib.error.HTTPError as error:
    store = error.code
print(json.dumps([api, store]))
"""
    pod = run_pod(lab, namespace, image.tagged, script)
    assert pod["status"]["phase"] == "Succeeded", lab.kubectl("logs", "probe", "-n", namespace)
    api, store = output(lab, namespace)
    assert api.startswith("v1.37.")
    assert store == 403  # it answers, and refuses whoever has no credentials


@pytest.mark.parametrize("where", ["pod", "node"])
def test_nothing_else_can_be_reached(lab: Lab, namespace: str, image: Image, where: str) -> None:
    # The machine's end of the link, and a documentation address that only a default route could lead to.
    addresses = [lab.layout.host_address, "192.0.2.1", "203.0.113.1"]
    script = f"""
import json, socket
def outcome(address):
    try:
        socket.create_connection((address, 9), timeout=2).close()
        return "connected"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return error.strerror
print(json.dumps([outcome(address) for address in {addresses!r}]))
"""
    host_network = {"hostNetwork": True} if where == "node" else {}
    run_pod(lab, namespace, image.tagged, script, **host_network)
    machine, *elsewhere = output(lab, namespace)
    # The node itself has the machine at the other end of its link (nothing listens there); its pods have not.
    assert machine == "Connection refused"
    assert set(elsewhere) <= {"No route to host", "Network is unreachable", "no answer"}


def test_extended_resource_is_scheduled(lab: Lab, namespace: str, image: Image) -> None:
    resource = {"resources": {"limits": {"example.com/accelerator": "1"}}}
    lab.node.set_extended_resource("example.com/accelerator", 2)
    try:
        pod = run_pod(lab, namespace, image.tagged, "print(1)", container=resource)
        assert pod["status"]["phase"] == "Succeeded"
    finally:
        lab.node.set_extended_resource("example.com/accelerator", 0)


def test_init_container_killed_for_memory_is_seen(lab: Lab, namespace: str, image: Image) -> None:
    hungry = {"resources": {"limits": {"memory": "64Mi"}}}
    pod = run_pod(lab, namespace, image.tagged, "x = bytearray(2**30)", container=hungry)
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"


def test_port_forward_and_exec_work(lab: Lab, namespace: str, image: Image) -> None:
    container = {"name": "main", "image": image.tagged, "command": ["sleep", "600"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    lab.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sleeper"}, "spec": spec}, namespace=namespace)
    lab.kubectl("wait", "pod/sleeper", "-n", namespace, "--for=condition=Ready", "--timeout=60s")
    assert lab.kubectl("exec", "sleeper", "-n", namespace, "--", "echo", "here").strip() == "here"
