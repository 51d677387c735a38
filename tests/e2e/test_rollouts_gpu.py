"""Roll-outs where GPUs are scarce: who waits holds none, and the compile Job does not stand in the way. Their lines are with the others'."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest

from e2e.stage import end, no_active_job, set_image, two_hot_pods, workload
from e2e.traffic import gated, wait_gated

if TYPE_CHECKING:
    from collections.abc import Iterator

    import kit

    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1800)]

GPU = "example.com/gpu"


@contextlib.contextmanager
def gpus(world: World, amount: int) -> Iterator[None]:
    """The node has this many GPUs: none are there, scheduling is real."""
    world.lab.node.set_extended_resource(GPU, amount)
    try:
        yield
    finally:
        world.lab.node.set_extended_resource(GPU, 0)


def on_a_gpu(image: str, **strategy: Any) -> dict[str, Any]:
    """The Deployment with one GPU a pod."""
    thing = workload(image)
    thing["spec"]["strategy"]["rollingUpdate"] |= strategy
    resources = thing["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources.setdefault("limits", {})[GPU] = "1"
    return thing


def test_16a_the_only_free_gpu_is_that_of_the_new_pod(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    with gpus(world, 3), two_hot_pods(world, kube, thing=on_a_gpu(first)) as seen:
        set_image(seen, second)
        wait_gated(kube, "tiny", second)
        seen.wait_all(second, 2)
        end(seen, "16a", "the only free GPU is the new pod's", "who waits holds nothing: the Job has it meanwhile")


def test_16b_no_gpu_is_free_and_a_pod_may_go_first(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    with gpus(world, 3) as _, two_hot_pods(
        world, kube, thing=on_a_gpu(first, maxUnavailable=1), rollout={"whenMissing": "Wait"}
    ) as seen:  # fmt: skip
        world.lab.node.set_extended_resource(GPU, 2)
        set_image(seen, second)
        wait_gated(kube, "tiny", second)
        seen.wait_all(second, 2)
        end(seen, "16b", "no free GPU, `maxUnavailable: 1`", "the Job compiles on the GPU of the pod that went")


def test_16c_no_gpu_is_free_and_none_becomes_free(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    short = {"scheduleTimeoutSeconds": 15}
    with gpus(world, 3), two_hot_pods(world, kube, thing=on_a_gpu(first), compile=short) as seen:
        world.lab.node.set_extended_resource(GPU, 2)
        set_image(seen, second)
        waiting = wait_gated(kube, "tiny", second)
        seen.wait_reason("NoCapacity")
        kube.wait_for(
            "the pod to be let go on",
            lambda: not gated(kube.get("pod", waiting["metadata"]["name"]) or {"spec": {}}), timeout=300,
        )  # fmt: skip
        assert no_active_job(kube), "its Job does not stand in the way"
        world.lab.node.set_extended_resource(GPU, 3)
        seen.wait_all(second, 2, outcome="none")
        end(seen, "16c", "no free GPU for the Job in time", "NoCapacity lets the pod go on; it runs once a GPU is free",
            cold=True)  # fmt: skip
