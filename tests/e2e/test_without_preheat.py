"""Pods start whatever is missing: the controller, a revision, the model, the store, memory, the product image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import EAGER, QUICK

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = pytest.mark.cluster


def pod_of(kube: kit.Kube, app: str) -> dict[str, Any]:
    return kit.wait_ready_pod(kube, app, timeout=300)


def served(kube: kit.Kube, app: str) -> kit.Served:
    return kit.measure(kube, "tiny", pod_of(kube, app), calls=5)


def annotation(pod: dict[str, Any], name: str) -> str:
    return (pod["metadata"].get("annotations") or {}).get(f"preheat.dev/{name}", "")


def test_with_the_controller_down_pods_start_hot(world: World, ready: kit.Kube) -> None:
    with world.controller_down():
        ready.apply(kit.deployment("tiny", world.image("tiny"), name="orphan", label="tiny"))
        result = served(ready, "orphan")
    assert (result.outcome, result.injected) == ("hot", "yes")
    ready.run("delete", "deployment", "orphan")


def test_an_image_without_a_revision_starts_as_it_is_and_says_so(world: World, ready: kit.Kube) -> None:
    unseen = world.image("tiny", VERSION="unseen")
    with world.controller_down():
        ready.apply(kit.deployment("tiny", unseen, name="unseen", label="tiny", env=EAGER))
        pod = pod_of(ready, "unseen")
    assert annotation(pod, "manifest") == "none"
    assert annotation(pod, "injected").startswith("no: ")
    assert unseen in annotation(pod, "injected")
    assert "initContainers" not in pod["spec"]
    ready.run("delete", "deployment", "unseen")


def test_a_model_that_nobody_declared_starts_as_it_is_and_says_so(world: World, ready: kit.Kube) -> None:
    ready.apply(kit.deployment("tiny", world.image("tiny"), name="stranger", label="no-such-model", env=EAGER))
    pod = pod_of(ready, "stranger")
    assert "no-such-model" in annotation(pod, "injected")
    assert "initContainers" not in pod["spec"]
    ready.run("delete", "deployment", "stranger")


def test_in_a_namespace_without_any_model_the_controller_says_so(world: World, kube: kit.Kube) -> None:
    kube.apply(kit.deployment("tiny", world.image("tiny"), name="lonely", label="tiny", env=EAGER))
    pod_of(kube, "lonely")

    def said() -> str:
        return annotation(pod_of(kube, "lonely"), "injected")

    assert kube.wait_for("the annotation", said, timeout=300).startswith("no: ")


def test_without_the_store_the_pod_starts_cold_and_says_so(world: World, ready: kit.Kube) -> None:
    with world.store_down():
        ready.apply(kit.deployment("tiny", world.image("tiny"), name="storeless", label="tiny"))
        result = served(ready, "storeless")
    assert result.outcome == "cold"
    assert "StoreUnreachable" in result.reason
    ready.run("delete", "deployment", "storeless")


def test_without_credentials_the_pod_starts_as_its_policy_says_and_says_so(world: World, ready: kit.Kube) -> None:
    with world.without_secret(ready, "preheat-fetch"):
        ready.apply(kit.deployment("tiny", world.image("tiny"), name="keyless", label="tiny", env=QUICK))
        result = served(ready, "keyless")
    assert result.outcome == "eager"
    assert "StoreCredentialsMissing" in result.reason
    ready.run("delete", "deployment", "keyless")


def test_fetch_killed_for_memory_does_not_stop_the_pod(world: World, ready: kit.Kube) -> None:
    thing = kit.deployment("tiny", world.image("tiny"), name="small", label="tiny")
    container = thing["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["sleep", "infinity"]
    del container["readinessProbe"]
    # fetch gets the limits of the container it serves; nothing that loads torch has this little.
    container["resources"] = {"requests": {"memory": "40Mi"}, "limits": {"memory": "40Mi"}}
    ready.apply(thing)
    pod = pod_of(ready, "small")
    receipt = ready.run("exec", pod["metadata"]["name"], "--", "cat", "/opt/preheat/fetch.json")
    assert '"Killed"' in receipt
    assert "memory" in receipt
    said = ready.run("logs", pod["metadata"]["name"], "-c", "preheat-fetch")
    assert '"Killed"' in said
    ready.run("delete", "deployment", "small", "--grace-period=0", "--force")


def test_a_quota_and_a_limit_range_count_the_pod_as_without_preheat(world: World, ready: kit.Kube) -> None:
    image = world.image("tiny")
    plain = kit.deployment("tiny", image, name="plain", label="", env=EAGER)
    labelled = kit.deployment("tiny", image, name="labelled", label="tiny")
    for thing in (plain, labelled):
        container = thing["spec"]["template"]["spec"]["containers"][0]
        container["resources"] = {
            "requests": {"cpu": "300m", "memory": "600Mi"},
            "limits": {"cpu": "2", "memory": "2Gi"},
        }
    limits = {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "narrow"},
        "spec": {"limits": [{"type": "Container", "min": {"cpu": "200m", "memory": "512Mi"}, "max": {"cpu": "2", "memory": "2Gi"}}]},
    }  # fmt: skip
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "narrow"},
        "spec": {"hard": {"requests.cpu": "300m", "requests.memory": "600Mi", "limits.cpu": "2", "limits.memory": "2Gi", "pods": "1"}},
    }  # fmt: skip
    ready.run("scale", "deployment", "--all", "--replicas=0")
    ready.wait_for("no pods", lambda: not ready.list("pods", "app"), timeout=300)
    ready.apply(limits, quota)
    try:
        for thing, expected in ((plain, ""), (labelled, "hot")):
            ready.apply(thing)
            result = served(ready, thing["metadata"]["name"])
            assert result.outcome == expected, result.reason
            used = ready.wait_for(
                "the quota",
                lambda: (ready.get("resourcequota", "narrow") or {}).get("status", {}).get("used"),
                timeout=300,
            )
            assert used["requests.memory"] == "600Mi"
            ready.run("delete", "deployment", thing["metadata"]["name"])
            ready.wait_for("no pods", lambda: not ready.list("pods", "app"), timeout=300)
    finally:
        ready.run("delete", "resourcequota/narrow", "limitrange/narrow")


def test_when_the_product_image_cannot_be_pulled_injection_pauses_and_the_pod_starts(
    world: World, ready: kit.Kube
) -> None:
    with world.product_image_gone():
        ready.apply(kit.deployment("tiny", world.image("tiny"), name="unpulled", label="tiny", env=EAGER))
        pod = kit.wait_ready_pod(ready, "unpulled", timeout=300)
        assert annotation(pod, "injected").startswith("no: ")
        degraded = kit.condition(ready.get("compiledmodel", "tiny"), "Degraded")
        assert (degraded["status"], degraded["reason"]) == ("True", "InjectionPaused")
        assert "pull" in degraded["message"]
    ready.run("delete", "deployment", "unpulled")
