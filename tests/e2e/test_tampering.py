"""What is altered in the store, or forged in the cluster, is never visible to a pod."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import wait_degraded

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def manifest_key(world: World, kube: kit.Kube) -> str:
    """Where the manifest of the tiny model's first image lies in the store."""
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    digest = next(r["manifest"] for r in model["status"]["revisions"] if r["image"] == world.image("tiny"))
    return f"{world.tenant(kube.namespace)}/manifests/sha256/{digest.removeprefix('sha256:')}.json"


def start(world: World, kube: kit.Kube, name: str) -> kit.Served:
    kube.apply(kit.deployment("tiny", world.image("tiny"), name=name, label="tiny"))
    return kit.measure(kube, "tiny", kit.wait_ready_pod(kube, name), calls=5)


def nothing_visible(kube: kit.Kube, pod: str) -> bool:
    listing = kube.run("exec", pod, "--", "sh", "-c", "find /opt/preheat -name '*.so' -o -path '*/revision/*'")
    return listing.strip() == ""


def test_an_altered_piece(world: World, ready: kit.Kube) -> None:
    manifest = json.loads(world.read(manifest_key(world, ready)))
    piece = max(
        (p for t in manifest["targets"] for f in t["files"] for p in f["pieces"]), key=lambda p: p["storedSize"]
    )
    key = f"{world.tenant(ready.namespace)}/blobs/sha256/{piece['sha256']}"
    original = world.read(key)
    middle = len(original) // 2
    with world.replaced(key, original[:middle] + bytes(64) + original[middle + 64 :]):
        result = start(world, ready, "altered")
        assert nothing_visible(ready, result.pod)
    assert result.outcome == "cold"
    assert "PieceCorrupt" in result.reason
    ready.run("delete", "deployment", "altered")


def test_a_replaced_manifest(world: World, ready: kit.Kube) -> None:
    key = manifest_key(world, ready)
    forged = json.loads(world.read(key))
    forged["targets"][0]["message"] = "altered"
    with world.replaced(key, json.dumps(forged, sort_keys=True, separators=(",", ":")).encode() + b"\n"):
        result = start(world, ready, "replaced")
        assert nothing_visible(ready, result.pod)
    assert result.outcome == "cold"
    assert "ManifestCorrupt" in result.reason
    ready.run("delete", "deployment", "replaced")


def test_the_store_healed_the_pod_is_hot_again(world: World, ready: kit.Kube) -> None:
    assert start(world, ready, "healed").outcome == "hot"
    ready.run("delete", "deployment", "healed")


def forged_job(kube: kit.Kube, real: dict[str, Any], digest: str, image: str) -> dict[str, Any]:
    """A Job with the name and labels of a real one, whose pod reports a digest of the forger's choice."""
    message = json.dumps({"v": 1, "digest": digest, "pythonPath": None, "targets": ["main|one|Kept|Faster|9|0.1|1"]})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": real["metadata"]["name"],
            "labels": {k: v for k, v in real["metadata"]["labels"].items() if k.startswith("preheat.dev/")},
            "annotations": {
                k: v for k, v in (real["metadata"].get("annotations") or {}).items() if k.startswith("preheat.dev/")
            },
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": {k: v for k, v in real["metadata"]["labels"].items() if k.startswith("preheat.dev/")}
                },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "publish",
                            "image": image,
                            "command": ["sh", "-c", f"printf '%s' '{message}' > /dev/termination-log"],
                        }
                    ],
                },
            },
        },
    }


def test_a_forged_job_with_the_right_name_waits(world: World, kube: kit.Kube) -> None:
    image = world.image("tiny")
    # What Preheat would call its Job is learned from a first run, then everything is made again around a forgery.
    kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf={"minSpeedup": "0"}))
    real = kit.wait_for("the Job", lambda: kube.list("jobs"), timeout=60)[0]
    digest = "sha256:" + hashlib.sha256(b"forged").hexdigest()
    with world.controller_down():
        kube.run("delete", "job", real["metadata"]["name"], "--cascade=foreground", "--wait=false")
        for pod in kube.list("pods"):
            kube.run("patch", "pod", pod["metadata"]["name"], "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        kit.wait_for("the Job to go", lambda: not kube.list("jobs"), timeout=60)
        kube.apply(forged_job(kube, real, digest, image))
        kit.wait_for(
            "the forged Job's end", lambda: kube.list("jobs")[0].get("status", {}).get("succeeded"), timeout=120
        )
    conflict = wait_degraded(kube, "JobConflict", timeout=60)
    assert real["metadata"]["name"] in conflict["message"]
    # While the forgery is the only Job that finished, a pod starts as it is, and says so.
    kube.apply(kit.deployment("tiny", image, name="meanwhile", label="tiny", env={"COMPILE": "0"}))
    meanwhile = kit.wait_ready_pod(kube, "meanwhile")
    assert meanwhile["metadata"]["annotations"]["preheat.dev/manifest"] == "none"
    assert meanwhile["metadata"]["annotations"]["preheat.dev/injected"].startswith("no: ")
    kube.run("delete", "deployment", "meanwhile")
    model = kit.wait_ready_model(kube, "tiny", image=image)
    assert digest not in json.dumps(model)
    forged = kube.get("job", real["metadata"]["name"])
    assert forged is None or forged["spec"]["template"]["spec"]["containers"][0]["name"] == "publish"
    index = kube.get("compiledmodelindex", "preheat")
    assert index is not None
    assert digest not in json.dumps(index)
    kit.scale(kube, "tiny", 1)
    assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny"), calls=5).outcome == "hot"
