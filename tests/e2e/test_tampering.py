"""What is altered in the store, or forged in the cluster, is never visible to a pod."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import kit
import pytest

from e2e.hardships import FORGED_DIGEST
from e2e.world import QUICK

if TYPE_CHECKING:
    from e2e.hardships import Hardships
    from e2e.world import World

pytestmark = pytest.mark.cluster


def manifest_key(world: World, kube: kit.Kube) -> str:
    """Where the manifest of the tiny model's first image lies in the store."""
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    digest = next(r["manifest"] for r in model["status"]["revisions"] if r["image"] == world.image("tiny"))
    return world.manifest_key(kube.namespace, digest)


def start(world: World, kube: kit.Kube, name: str, env: dict[str, str] | None = None) -> kit.Served:
    kube.apply(kit.deployment("tiny", world.image("tiny"), name=name, label="tiny", env=env))
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
        result = start(world, ready, "replaced", QUICK)
        assert nothing_visible(ready, result.pod)
    assert result.outcome == "eager"
    assert "ManifestCorrupt" in result.reason
    ready.run("delete", "deployment", "replaced")


def test_the_store_healed_the_pod_is_hot_again(world: World, ready: kit.Kube) -> None:
    assert start(world, ready, "healed").outcome == "hot"
    ready.run("delete", "deployment", "healed")


def test_a_forged_job_with_the_right_name_waits(through_hardships: Hardships) -> None:
    seen, kube = through_hardships, through_hardships.kube
    assert seen.forgery in seen.conflict["message"]
    # While the forgery was the only Job that had finished, a pod started as it is, and said so.
    notes = seen.meanwhile["metadata"]["annotations"]
    assert notes["preheat.dev/manifest"] == "none"
    assert notes["preheat.dev/injected"].startswith("no: ")
    assert FORGED_DIGEST not in json.dumps(kube.get("compiledmodel", "tiny"))
    forged = kube.get("job", seen.forgery)
    assert forged is None or forged["spec"]["template"]["spec"]["containers"][0]["name"] == "publish"
    index = kube.get("compiledmodelindex", "preheat")
    assert index is not None
    assert FORGED_DIGEST not in json.dumps(index)
