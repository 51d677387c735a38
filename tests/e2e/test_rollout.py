"""A new image of one model: pods get the newest ready revision for their own image, and nobody answers cold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kit
import pytest

from e2e.traffic import gated, pods_of, rolling, said, traffic, wait_gated, wait_ready_pods
from e2e.world import jobs_ever

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def test_a_second_image_is_compiled_while_its_pods_wait_and_old_ones_serve_and_undo_is_hot_at_once(
    world: World, ready: kit.Kube
) -> None:
    kube = ready
    first, second = world.image("tiny"), world.image("tiny", VERSION="2")
    assert first != second
    jobs = jobs_ever(kube)
    kube.apply(rolling("tiny", first, replicas=2))
    for pod in wait_ready_pods(kube, "tiny", first, 2):
        assert kit.measure(kube, "tiny", pod, calls=5).outcome == "hot"
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    assert model["status"]["whenMissing"] == "Wait"

    with traffic(kube, "tiny", first) as requests:
        kube.run("set", "image", "deployment/tiny", f"server={second}")
        waiting = wait_gated(kube, "tiny", second)
        assert (said(waiting, "manifest"), said(waiting, "wait-seconds")) == ("pending", "480")
        assert second in said(waiting, "injected")
        # A pod of the first image made meanwhile is hot, as the replacement of one that a node lost would be.
        kube.apply(kit.deployment("tiny", first, name="replacement", label="tiny"))
        other = kit.wait_ready_pod(kube, "replacement")
        assert kit.measure(kube, "tiny", other, calls=5).outcome == "hot"
        kube.run("delete", "deployment", "replacement")
        revisions = kube.get("compiledmodel", "tiny")["status"]["revisions"]
        assert {r["image"]: r["state"] for r in revisions}.get(second) != "Ready", "it is still being compiled"
        assert [gated(pod) for pod in pods_of(kube, "tiny", second)] == [True]
        assert len([p for p in pods_of(kube, "tiny", first) if kit.is_ready(p)]) == 2, "old pods serve on"

        model = kit.wait_ready_model(kube, "tiny", image=second)
        assert {r["image"]: r["state"] for r in model["status"]["revisions"]} == {first: "Ready", second: "Ready"}
        assert model["status"]["revisions"][0]["image"] == second, "newest first"
        pods = wait_ready_pods(kube, "tiny", second, 2)
        assert waiting["metadata"]["uid"] in [pod["metadata"]["uid"] for pod in pods], "the pod that waited, no other"
        for pod in pods:
            served = kit.measure(kube, "tiny", pod, calls=5)
            assert served.outcome == "hot", served.reason
            assert (said(pod, "manifest"), said(pod, "injected")) == (
                model["status"]["revisions"][0]["manifest"],
                "yes",
            )

        before = jobs_ever(kube)
        assert len(before - jobs) == 1, "one Job for the second image"
        kube.run("rollout", "undo", "deployment/tiny")
        for pod in wait_ready_pods(kube, "tiny", first, 2):
            assert not said(pod, "wait-seconds"), "what is ready is not waited for"
            undone = kit.measure(kube, "tiny", pod, calls=5)
            assert undone.outcome == "hot", undone.reason
        assert jobs_ever(kube) == before, "nothing is compiled again"
        requests.wait_answers(20)
        answered, failed = requests.so_far()
        assert failed == []
        assert answered > 100
    kube.apply(kit.deployment("tiny", first, label="tiny", replicas=0))
    kit.scale(kube, "tiny", 0)
