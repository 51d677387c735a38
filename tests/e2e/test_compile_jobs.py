"""What can become of a compile Job in a real cluster, and levers on their way from the YAML to torch."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import jobs_ever, wait_degraded

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

KEEP = {"minSpeedup": "0"}


def torch_part(**changes: Any) -> dict[str, Any]:
    """spec.torch of the model tiny, with levers."""
    return {**kit.compiled_model("tiny")["spec"]["torch"], **changes}


def target(kube: kit.Kube) -> dict[str, Any]:
    """The only target of the model tiny, in status."""
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    (found,) = model["status"]["targets"]
    return dict(found)


def compiling(kube: kit.Kube) -> dict[str, Any]:
    """Wait for a pod in which the model is being compiled at this moment."""

    def probe() -> dict[str, Any] | None:
        for pod in kube.list("pods", "preheat.dev/compiledmodel=tiny"):
            for status in pod["status"].get("initContainerStatuses", []):
                if status["name"] == "compile" and "running" in status["state"]:
                    return pod
        return None

    found: dict[str, Any] = kube.wait_for("a pod that compiles", probe, timeout=300, every=0.2)
    return found


def test_too_little_memory_is_told_with_the_field_to_raise(world: World, kube: kit.Kube) -> None:
    small = {"requests": {"cpu": "100m"}, "limits": {"memory": "128Mi"}}
    hardware = [{**kit.compiled_model("tiny")["spec"]["hardware"][0], "resources": small}]
    kube.apply(kit.deployment("tiny", world.image("tiny"), label="tiny", replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP, hardware=hardware))
    message = wait_degraded(kube, "AllTargetsFailed", timeout=600)["message"]
    assert "killed for memory" in message
    assert "hardware[].resources" in message
    assert target(kube)["reason"] == "OutOfMemory"
    assert len(jobs_ever(kube)) == 1, "with the same limit it would end the same way"


def test_more_disk_than_the_pod_may_use_is_told_with_the_limit(world: World, kube: kit.Kube) -> None:
    """The kubelet looks every ten seconds, and evicts the pod."""
    small = {"requests": {"cpu": "100m"}, "limits": {"ephemeral-storage": "100Mi"}}
    hardware = [{**kit.compiled_model("tiny")["spec"]["hardware"][0], "resources": small}]
    kube.apply(kit.deployment("tiny", world.image("tiny"), label="tiny", env={"TINY_FAULT": "fills"}, replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP, hardware=hardware))
    message = wait_degraded(kube, "AllTargetsFailed", timeout=600)["message"]
    assert "local ephemeral storage limit" in message or "local storage usage exceeds" in message, message
    assert "hardware[].resources" in message
    assert target(kube)["reason"] == "DiskFull"
    assert len(jobs_ever(kube)) == 1, "it would use as much again"


def test_a_compile_pod_that_is_evicted_is_made_again_and_costs_no_attempt(world: World, kube: kit.Kube) -> None:
    image = world.image("tiny")
    kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP))
    pod = compiling(kube)
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": kube.namespace}}
    kube.run("create", "--raw", f"/api/v1/namespaces/{kube.namespace}/pods/{name}/eviction", "-f", "-",
             stdin=json.dumps(eviction))  # fmt: skip
    model = kit.wait_ready_model(kube, "tiny", image=image)
    assert [t["verdict"] for t in model["status"]["targets"]] == ["Kept"]
    assert len(jobs_ever(kube)) == 1
    pods = kube.list("pods", "preheat.dev/compiledmodel=tiny")
    assert name not in [p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Succeeded"]


def test_more_graph_breaks_than_allowed_are_rejected_with_the_line(world: World, kube: kit.Kube) -> None:
    image = world.image("tiny")
    kube.apply(kit.deployment("tiny", image, label="tiny", env={"TINY_FAULT": "breaks"}, replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf={**KEEP, "maxGraphBreaks": 0}))
    kit.wait_ready_model(kube, "tiny", image=image)
    found = target(kube)
    assert (found["verdict"], found["reason"]) == ("Rejected", "GraphBreaksAboveMaximum")
    assert "model.py" in found["message"]
    kit.scale(kube, "tiny", 1)
    served = kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny"), calls=5)
    assert served.outcome == "eager"
    assert "keepIf.maxGraphBreaks" in served.reason


def test_levers_reach_torch_and_one_it_has_not_is_refused_with_the_nearest_name(world: World, kube: kit.Kube) -> None:
    image = world.image("tiny")
    kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
    levers = torch_part(
        mode="MaxAutotuneNoCudagraphs", fullgraph="Required", autotuneTimeoutSeconds=20,
        options=[{"name": "max_fusion_size", "value": "16"}],
    )  # fmt: skip
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP, torch=levers))
    kit.wait_ready_model(kube, "tiny", image=image)
    assert target(kube)["verdict"] == "Kept", target(kube)
    kit.scale(kube, "tiny", 1)
    assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "tiny"), calls=5).outcome == "hot"

    levers["options"][0]["name"] = "max_fusion_sice"
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP, torch=levers))
    message = wait_degraded(kube, "AllTargetsFailed", timeout=300)["message"]
    assert "OptionRefused" in message
    assert "max_fusion_size" in message


def test_a_compile_that_takes_too_long_ends_in_its_time(world: World, kube: kit.Kube) -> None:
    """Sixty seconds is the least that can be asked for; the factory takes longer."""
    kube.apply(kit.deployment("tiny", world.image("tiny"), label="tiny", env={"TINY_FAULT": "sleeps"}, replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf=KEEP, compile={"timeoutSeconds": 60}))
    begun = time.monotonic()
    message = wait_degraded(kube, "AllTargetsFailed", timeout=600)["message"]
    assert "Timeout" in message
    assert "timeoutSeconds" in message
    assert time.monotonic() - begun > 30, "it was given time"
