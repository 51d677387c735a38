"""What becomes of pods that wait when something is missing: they go on in their time, and say why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.traffic import said, wait_gated
from e2e.world import EAGER

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

KEEP = {"keepIf": {"minSpeedup": "0"}}
WAIT: dict[str, Any] = {"whenMissing": "Wait"}


def wait_index(kube: kit.Kube, words: str) -> None:
    """Wait until the namespace's index says something."""
    kube.wait_for(
        f"{words!r} in the index",
        lambda: words in (kube.get("compiledmodelindex", "preheat") or {}).get("models", ""),
        timeout=300,
    )


def first_install(kube: kit.Kube, image: str, *, env: dict[str, str] | None = None, **spec: Any) -> None:
    """A model whose pods wait from the first on: it is there before them."""
    kube.apply(kit.compiled_model("tiny", **{"rollout": WAIT, **KEEP, **spec}))
    wait_index(kube, "tiny Wait ")
    kube.apply(kit.deployment("tiny", image, label="tiny", env=env))


def test_a_pod_that_must_not_start_without_says_why_and_injection_is_not_paused(world: World, ready: kit.Kube) -> None:
    unseen = world.image("tiny", VERSION="unseen")
    thing = kit.deployment("tiny", unseen, name="strict", label="tiny")
    thing["spec"]["template"]["metadata"]["annotations"] = {"preheat.dev/when-missing": "Fail"}
    ready.apply(thing)

    def ended() -> dict[str, Any] | None:
        for pod in kit.running_pods(ready, "strict"):
            for status in pod["status"].get("initContainerStatuses", []):
                state = {**status.get("lastState", {}), **status["state"]}.get("terminated")
                if status["name"] == "preheat-fetch" and state:
                    return dict(state)
        return None

    try:
        state = ready.wait_for("fetch to fail", ended, timeout=300)
        assert state["exitCode"] == 69
        assert state["message"].startswith("whenMissing is Fail: NoRevision: no revision is ready for this image")
        # Longer than what is stuck by mistake is given.
        ready.wait_for("further attempts", lambda: _restarts(ready, "strict") >= 4, timeout=300)
        degraded = kit.condition(ready.get("compiledmodel", "tiny"), "Degraded")
        assert degraded["reason"] != "InjectionPaused"
    finally:
        ready.run("delete", "deployment", "strict")


def _restarts(kube: kit.Kube, app: str) -> int:
    return sum(
        status["restartCount"]
        for pod in kit.running_pods(kube, app)
        for status in pod["status"].get("initContainerStatuses", [])
    )


def test_a_compile_that_fails_lets_its_pods_go_on_told_why(world: World, kube: kit.Kube) -> None:
    model = kit.compiled_model("tiny")["spec"]["torch"]
    model["modules"][0]["path"] = "not.there"
    first_install(kube, world.image("tiny"), env=EAGER, torch=model)
    wait_gated(kube, "tiny", world.image("tiny"))
    pod = kit.wait_ready_pod(kube, "tiny")
    # What was tried and why it failed is a manifest too, and every pod of the image is given it.
    assert kit.condition(kube.get("compiledmodel", "tiny"), "Ready")["reason"] == "AllTargetsFailed"
    assert said(pod, "injected") == "yes"
    (target,) = world.manifest(kube.namespace, said(pod, "manifest"))["targets"]
    assert (target["verdict"], target["reason"]) == ("Failed", "ModuleNotFound")
    # Later ones do not wait for what will not come.
    kube.run("delete", "pod", pod["metadata"]["name"])
    assert not said(kit.wait_ready_pod(kube, "tiny"), "wait-seconds")


def test_a_first_install_that_waits_is_hot(world: World, kube: kit.Kube) -> None:
    image = world.image("tiny")
    first_install(kube, image)
    wait_gated(kube, "tiny", image)
    pod = kit.wait_ready_pod(kube, "tiny", timeout=900)
    served = kit.measure(kube, "tiny", pod, calls=5)
    assert served.outcome == "hot", served.reason


def test_with_the_store_gone_pods_go_on_when_their_time_is_over(world: World, kube: kit.Kube) -> None:
    with world.store_down():
        first_install(kube, world.image("tiny"), env=EAGER, rollout={**WAIT, "waitTimeoutSeconds": 30})
        wait_gated(kube, "tiny", world.image("tiny"))
        pod = kit.wait_ready_pod(kube, "tiny")
        assert "within the 30 s" in said(pod, "injected")
        ready = kit.condition(kube.get("compiledmodel", "tiny"), "Ready")
        assert ready["status"] == "False"


def test_no_capacity_is_an_end_like_any_other(world: World, kube: kit.Kube) -> None:
    nowhere = [{"name": "gpu", "nodeSelector": {"example.com/gpu": "none-has-it"}}]
    first_install(kube, world.image("tiny"), env=EAGER, hardware=nowhere, compile={"scheduleTimeoutSeconds": 5})
    waiting = wait_gated(kube, "tiny", world.image("tiny"))
    pod = kit.wait_ready_pod(kube, "tiny")
    assert pod["metadata"]["uid"] == waiting["metadata"]["uid"], "nothing was added to it, and nothing is to be"
    assert "initContainers" not in pod["spec"]
    assert said(pod, "manifest") == "none"
    assert kit.condition(kube.get("compiledmodel", "tiny"), "Ready")["reason"] == "NoCapacity"
    assert not [j for j in kube.list("jobs") if j["status"].get("active")], "its Job does not stand in the way"


def test_pods_of_a_stateful_set_are_not_held_back_by_themselves(world: World, kube: kit.Kube) -> None:
    image, unseen = world.image("tiny"), world.image("tiny", VERSION="unseen")
    thing = kit.deployment("tiny", image, label="tiny", env=EAGER)
    thing["kind"] = "StatefulSet"
    thing["spec"]["serviceName"] = "tiny"
    kube.apply(thing)
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "tiny"}
    kube.apply(kit.compiled_model("tiny", workloadRef=reference, **KEEP))
    kit.wait_ready_model(kube, "tiny", image=image)
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    assert model["status"]["whenMissing"] == "Cold"
    kube.run("set", "image", "statefulset/tiny", f"server={unseen}")
    pod = kit.wait_ready_pod(kube, "tiny", image=unseen)
    assert not said(pod, "wait-seconds")
    assert said(pod, "injected").startswith("no: nothing is ready for image")
