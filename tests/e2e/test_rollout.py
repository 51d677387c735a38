"""Images of one model: a pod gets the newest ready revision for its own image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import jobs_ever

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def new_pod(kube: kit.Kube, app: str, image: str) -> dict[str, Any]:
    """Replace the pod of an app, as a node failure would, and return the new one."""
    kube.run("delete", "pods", "-l", f"app={app}", "--wait=true")
    return kit.wait_ready_pod(kube, app, image=image)


def test_a_second_image_is_compiled_while_pods_of_the_first_stay_hot_and_undo_is_hot_at_once(
    world: World, ready: kit.Kube
) -> None:
    kube = ready
    first, second = world.image("tiny"), world.image("tiny", VERSION="2")
    assert first != second
    jobs = jobs_ever(kube)
    kit.scale(kube, "tiny", 1)
    assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny"), calls=5).outcome == "hot"

    kube.run("set", "image", "deployment/tiny", f"server={second}")
    # The new pods start cold, since their image was never seen; a pod of the first image made meanwhile is hot.
    other = kit.deployment("tiny", first, name="replacement", label="tiny")
    kube.apply(other)
    assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "replacement"), calls=5).outcome == "hot"
    revisions = kube.get("compiledmodel", "tiny")["status"]["revisions"]
    assert {r["image"]: r["state"] for r in revisions}.get(second) != "Ready", "the second was still being compiled"
    model = kit.wait_ready_model(kube, "tiny", image=second)
    assert {r["image"]: r["state"] for r in model["status"]["revisions"]} == {first: "Ready", second: "Ready"}
    assert model["status"]["revisions"][0]["image"] == second, "newest first"
    kube.run("delete", "deployment", "replacement")
    assert kit.measure(kube, "tiny", new_pod(kube, "tiny", second), calls=5).outcome == "hot"

    before = jobs_ever(kube)
    assert len(before - jobs) == 1, "one Job for the second image"
    kube.run("rollout", "undo", "deployment/tiny")
    undone = kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny", image=first), calls=5)
    assert undone.outcome == "hot", undone.reason
    assert jobs_ever(kube) == before, "nothing is compiled again"
    kit.scale(kube, "tiny", 0)
