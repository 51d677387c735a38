"""New weights of the same graph: checked on the artifact that is there and carried over, without a compile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import kit
import pytest

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def test_new_weights_are_carried_over_without_compiling_and_pods_are_hot_with_them(
    world: World, ready: kit.Kube
) -> None:
    kube, image = ready, world.image("tiny")
    before = next(r for r in kube.get("compiledmodel", "tiny")["status"]["revisions"] if r["image"] == image)
    # In a real image the weights come from elsewhere; a pod with other ones is told apart by its answers.
    patch = {"spec": {"weights": {"revision": "7"}}}
    try:
        kube.run("patch", "compiledmodel", "tiny", "--type=merge", "-p", json.dumps(patch))

        def carried() -> dict[str, object] | None:
            revision = kube.get("compiledmodel", "tiny")["status"]["revisions"][0]
            return revision if revision.get("weights") == "7" and revision["state"] == "Ready" else None

        new = ready.wait_for("the revision of the new weights", carried, timeout=600, every=2)
        assert (new["cause"], new["hardware"][0]["carried"], new["image"]) == ("WeightsChanged", 1, image)
        assert new["manifest"] != before["manifest"]
        assert new["imageDigest"] == image.partition("@")[2]
        old, fresh = (world.manifest(kube.namespace, r["manifest"]) for r in (before, new))
        assert library(fresh) == library(old), "the same pieces: nothing was uploaded again"
        (log,) = (
            kube.run("logs", pod["metadata"]["name"], "-c", "compile")
            for pod in kube.list("pods", f"preheat.dev/revision={new['name']}")
        )
        assert "building the package" not in log
        kit.scale(kube, "tiny", 1)
        served = kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny", image=image), calls=5)
        assert served.outcome == "hot", served.reason
    finally:
        kit.scale(kube, "tiny", 0)
        kube.run("patch", "compiledmodel", "tiny", "--type=merge", "-p", '{"spec": {"weights": null}}')
        kit.wait_ready_model(kube, "tiny", image=image)


def library(manifest: dict[str, object]) -> object:
    (target,) = manifest["targets"]  # type: ignore[misc]
    (file,) = (f for f in target["files"] if f["path"] == "model.so")
    return file
