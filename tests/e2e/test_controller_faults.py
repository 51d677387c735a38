"""The controller is killed at the worst moments: nothing is compiled twice without need, and it ends Ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kit
import pytest

from e2e.hardships import finished, start, the_job

if TYPE_CHECKING:
    from e2e.hardships import Hardships
    from e2e.world import World

pytestmark = pytest.mark.cluster


def test_killed_after_it_created_the_job_and_down_from_the_publish_to_the_status_write(
    through_hardships: Hardships,
) -> None:
    seen = through_hardships
    assert seen.states_while_down != ("Ready",), "nobody was there to say so"
    assert seen.after is not None
    assert seen.after["metadata"]["uid"] == seen.before["metadata"]["uid"]
    assert seen.others == 0, "nothing was compiled twice"


@pytest.mark.soak
def test_the_finished_pods_node_goes_while_the_controller_is_down(world: World, kube: kit.Kube) -> None:
    image = start(world, kube)
    kube.wait_for("the Job", lambda: the_job(kube), timeout=300)
    with world.controller_down():
        kube.wait_for("the Job's end", lambda: finished(kube), timeout=600, every=2)
        with world.node_gone():
            # The pod's garbage collector takes pods of a node that is no more; the finalizer keeps this one's message.
            kube.wait_for(
                "the pod's deletion",
                lambda: [p for p in kube.list("pods") if "deletionTimestamp" in p["metadata"]],
                timeout=300,
                every=2,
            )
    kit.wait_ready_model(kube, "tiny", image=image)
    assert [j["metadata"]["labels"]["preheat.dev/attempt"] for j in kube.list("jobs")] == ["1"]
    kube.wait_for("the pod is let go", lambda: not kube.list("pods", "preheat.dev/compiledmodel"), timeout=300)


@pytest.mark.soak
def test_a_lost_message_is_asked_of_the_store(world: World, kube: kit.Kube) -> None:
    image = start(world, kube)
    kube.wait_for("the Job", lambda: the_job(kube), timeout=300)
    with world.controller_down():
        kube.wait_for("the Job's end", lambda: finished(kube), timeout=600, every=2)
        for pod in kube.list("pods"):
            name = pod["metadata"]["name"]
            kube.run("patch", "pod", name, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            kube.run("delete", "pod", name, "--force", "--grace-period=0")
    model = kit.wait_ready_model(kube, "tiny", image=image)
    assert model["status"]["targets"][0]["verdict"] == "Kept"
    newest = kube.list("jobs")[-1]
    assert newest["metadata"]["labels"]["preheat.dev/attempt"] == "2"
    pods = kube.list("pods", f"batch.kubernetes.io/controller-uid={newest['metadata']['uid']}")
    log = kube.run("logs", pods[0]["metadata"]["name"], "-c", "compile")
    assert "nothing to compile" in log, "what was published is not compiled again"
    assert "building the package" not in log
