"""Two hardware profiles on two nodes: whichever node a pod comes to, it gets what fits there, or says that nothing does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.traffic import wait_ready_pods
from e2e.world import QUICK, wait_degraded

if TYPE_CHECKING:
    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak]

KIND = "example.com/kind"
# Of a line of CPUs that ended years ago: no machine that runs this has it, and nothing is compiled to it.
EXTRA = "tbm"


def spread(image: str, *, replicas: int, **changes: Any) -> dict[str, Any]:
    """Pods of the example that share themselves out over the nodes."""
    thing = kit.deployment("tiny", image, name="spread", label="tiny", replicas=replicas, **changes)
    selector = {"matchLabels": {"app": "spread"}}
    thing["spec"]["template"]["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
    ]  # fmt: skip
    return thing


def by_node(pods: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Names of pods, by their node's."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        found.setdefault(pod["spec"]["nodeName"], []).append(pod["metadata"]["name"])
    return found


def told(kube: kit.Kube, pod: str) -> dict[str, Any]:
    """What the runtime said of the pod's answers."""
    said = [event for event in kit.log_events(kube, pod) if "outcome" in event]
    assert said, f"{pod} says nothing"
    return said[-1]


def test_each_pod_gets_what_fits_its_node(world: World, kube: kit.Kube) -> None:
    first, image = world.lab.node, world.image("tiny")
    with world.lab.second_node() as second:
        second.seem(lambda flags: flags | {EXTRA})
        for node, kind in ((first, "usual"), (second, "new")):
            node.label({KIND: kind})
        kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
        hardware = [
            {"name": "any", "nodeSelector": {KIND: "usual"}},
            {"name": "own", "nodeSelector": {KIND: "new"}, "cpuIsa": "Native"},
        ]
        kube.apply(kit.compiled_model("tiny", hardware=hardware, keepIf={"minSpeedup": "0"}))
        model = kit.wait_ready_model(kube, "tiny", image=image, timeout=1500)
        assert {t["hardware"]: t["verdict"] for t in model["status"]["targets"]} == {"any": "Kept", "own": "Kept"}
        for profile, node in (("any", first), ("own", second)):
            (ran,) = {p["spec"]["nodeName"] for p in kube.list("pods", f"preheat.dev/hardware={profile}")}
            assert ran == node.name

        kube.apply(spread(image, replicas=4))
        pods = by_node(wait_ready_pods(kube, "spread", image, 4))
        assert {node: len(names) for node, names in pods.items()} == {first.name: 2, second.name: 2}
        for node, profile in ((first, "any"), (second, "own")):
            for pod in pods[node.name]:
                said = told(kube, pod)
                assert (said["outcome"], said["hardware"]) == ("hot", profile), said["reason"]
        kit.scale(kube, "spread", 0)

        # A node kind that matches no profile: by what it is, not by what it is called.
        second.seem(lambda flags: flags - {"avx2"})
        kube.apply(spread(image, replicas=2, env=QUICK))
        pods = by_node(wait_ready_pods(kube, "spread", image, 2))
        assert told(kube, pods[first.name][0])["outcome"] == "hot"
        lost = told(kube, pods[second.name][0])
        assert lost["outcome"] == "eager"
        assert "CPU lacks avx2" in lost["reason"]
        degraded = wait_degraded(kube, "HardwareNotCovered", timeout=300)
        assert second.name in degraded["message"]
        kit.scale(kube, "spread", 0)
    first.label({KIND: None})
