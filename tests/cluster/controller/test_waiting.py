"""Pods that wait, on a real API server: who lets them go on, with what, and that no other gate is touched."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from apiserver import chart
from apiserver.fixtures import eventually
from cluster.controller.controlplane import KEPT, MODEL, digest, kubeconfig_of, published
from preheat_operator.cluster.client import connect
from preheat_operator.cluster.overdue import Overdue
from preheat_operator.uninstall import uninstall

if TYPE_CHECKING:
    from apiserver.server import ApiServer
    from cluster.controller.controlplane import Process, World

OLD, NEW = "registry/vision:1", "registry/vision:2"
WAIT: dict[str, Any] = {"rollout": {"whenMissing": "Wait"}}


def test_an_image_of_the_deployment_is_waited_for_by_itself_and_the_pod_gets_its_manifest(
    process: Process, world: World
) -> None:
    world.model(rollout=None)
    world.succeed(world.open_job(), published(digest("a"), KEPT, python_path="/app"))
    first = f"{MODEL}|{OLD}={digest('a')} /app\n"
    world.await_index(f"\n{MODEL} Auto 480 - - /app {MODEL}\n{first}")
    assert world.status()["whenMissing"] == "Wait"
    waiting = world.waiting_pod(NEW, guess="/app")
    # As in life the pod is there before anybody has looked at the new template.
    world.deployment(NEW)
    job = world.open_job()
    assert world.gates(waiting) == ["other.example/gate", "preheat.dev/artifact"]
    world.succeed(job, published(digest("b"), KEPT, python_path="/app"))
    said = world.await_gone_on(waiting)
    assert (said["manifest"], said["injected"]) == (digest("b"), "yes")


def test_a_pod_made_for_another_pythonpath_is_made_again(process: Process, world: World) -> None:
    world.model(**WAIT)
    job = world.open_job()
    lone = world.waiting_pod(OLD, name="lone", guess="/app")
    owned = world.waiting_pod(OLD, name="owned", guess="/app", owned=True)
    plain = world.waiting_pod(OLD, name="plain", guess=None, owned=True)
    world.succeed(job, published(digest("a"), KEPT, python_path="/srv"))
    eventually(lambda: world.gates(owned) is None and world.gates(plain) is None, what="they are deleted")
    said = world.await_gone_on(lone)
    assert said["manifest"] == "none"
    assert "make the pod again" in said["injected"]


def test_when_compiling_fails_the_pod_goes_on_and_the_index_says_that_nobody_need_wait(
    process: Process, world: World
) -> None:
    world.model(**WAIT)
    waiting = world.waiting_pod(OLD)
    world.fail(world.open_job(), "compile", 65, '{"v":1,"reason":"TorchMissing","message":"no torch"}')
    said = world.await_gone_on(waiting)
    assert said["manifest"] == "none"
    assert said["injected"].startswith("no: nothing could be compiled for image")
    world.await_index(f"\n{MODEL} Wait 480 - - ? {MODEL}\n{MODEL}|{OLD}=none -\n")


@pytest.mark.parametrize("end", ["suspended", "deleted", "cold"])
def test_a_model_that_is_no_longer_there_to_be_waited_for(process: Process, world: World, end: str) -> None:
    world.model(**WAIT)
    world.open_job()
    waiting = world.waiting_pod(OLD)
    time.sleep(1)
    assert world.gates(waiting) == ["other.example/gate", "preheat.dev/artifact"]
    words = "is suspended"
    if end == "suspended":
        world.model(suspend="Enabled", **WAIT)
    elif end == "deleted":
        world.delete_model()
        words = "there is no CompiledModel"
    else:
        world.model(rollout={"whenMissing": "Cold"})
        words = "whenMissing is Cold now"
    said = world.await_gone_on(waiting)
    assert said["manifest"] == "none"
    assert words in said["injected"]


def test_a_profile_without_a_node_does_not_hold_pods_beyond_its_time(process: Process, world: World) -> None:
    world.model(compile={"scheduleTimeoutSeconds": 3}, **WAIT)
    waiting = world.waiting_pod(OLD)
    compiling = world.pod_of(world.open_job())
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: no GPU"}
    world.set_pod_status(compiling, {"conditions": [condition]})
    said = world.await_gone_on(waiting)
    assert said["manifest"] == "none"
    eventually(lambda: world.status()["targets"][0]["verdict"] == "NoCapacity", what="the verdict")
    eventually(lambda: world.jobs() == [], what="the Job leaves its place")


def test_the_controller_ends_a_wait_that_is_over(process: Process, world: World) -> None:
    world.model(**WAIT)
    world.open_job()
    said = world.await_gone_on(world.waiting_pod(OLD, seconds=2))
    assert said["injected"] == "no: nothing was ready within the 2 s that it waited"


async def test_without_a_controller_two_servers_end_it_between_them(
    controlplane: ApiServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = [world.waiting_pod(OLD, name=f"over-{number}", seconds=1) for number in range(6)]
    waiting = world.waiting_pod(OLD, name="waiting", seconds=480)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig_of(controlplane, chart.NAMESPACE, "preheat-server")))
    await asyncio.sleep(2)
    async with connect() as one, connect() as two:
        servers = [Overdue(api=api, grace=timedelta(0)) for api in (one, two)]
        await asyncio.gather(*(server.once() for server in servers))
        assert sum(await asyncio.gather(*(server.once() for server in servers))) == 0, "nothing is left to do"
    for path in over:
        said = world.await_gone_on(path)
        assert (said["manifest"], said["injected"]) == ("none", "no: nothing was ready within the 1 s that it waited")
    assert world.gates(waiting) == ["other.example/gate", "preheat.dev/artifact"]


async def test_uninstalling_switches_holding_back_off_and_lets_pods_go_on(
    controlplane: ApiServer, world: World, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.model(**WAIT)
    world.await_index(f"\n{MODEL} Wait 480 - - ? {MODEL}\n")
    waiting = world.waiting_pod(OLD)
    process.terminate()
    said: list[str] = []
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    async with connect() as admin:
        await uninstall(admin, namespace=world.namespace, controller="not-there", seconds=60, say=said.append)
    answer = world.await_gone_on(waiting)
    assert (answer["manifest"], answer["injected"]) == ("none", "no: Preheat was uninstalled while it waited")
    assert world.index() == ""
    # Pods of other tests' namespaces may have waited as well.
    released = next(i for i, line in enumerate(said) if line.endswith("pods that waited"))
    assert any(line.startswith("deleted the index") for line in said[:released])


def restarted(world: World) -> str | None:
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments/{MODEL}"
    metadata = world.server.request("GET", path).body["spec"]["template"]["metadata"]
    at: str | None = metadata.get("annotations", {}).get("kubectl.kubernetes.io/restartedAt")
    return at


def test_a_workload_is_restarted_once_for_a_change_it_does_not_see(process: Process, world: World) -> None:
    world.model(rollout={"restart": "Rollout"})
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")
    assert restarted(world) is None
    world.model(rollout={"restart": "Rollout"}, keepIf={"minSpeedup": "0"})
    world.succeed(world.open_job(), published(digest("b"), KEPT))
    eventually(lambda: restarted(world) is not None, what="the workload is restarted")
    at = restarted(world)
    assert digest("b") in world.index(), "what the new pods get was there before"

    def done() -> bool:
        restart = world.status()["revisions"][0].get("restart") or {}
        return bool(restart.get("state") == "Done" and restart["since"] == at)

    eventually(done, what="it is noted")
    # Whoever owns the workload takes the annotation away again, and the controller dies: it was asked once.
    path = f"/apis/apps/v1/namespaces/{world.namespace}/deployments/{MODEL}"
    body = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": None}}}}}
    assert world.server.request("PATCH", path, body).ok
    process.kill()
    process.start()
    world.model(rollout={"restart": "Rollout"}, keepIf={"minSpeedup": "0"}, revisionHistoryLimit=3)
    eventually(lambda: world.status()["observedGeneration"] == 3, what="the controller looked at everything again")
    time.sleep(3)
    assert restarted(world) is None


def test_a_wait_beyond_the_progress_deadline_is_a_condition(process: Process, world: World) -> None:
    world.model(rollout={"whenMissing": "Wait", "waitTimeoutSeconds": 481})
    world.await_condition("Degraded", "True", "WaitTooLong")
    world.model(rollout={"whenMissing": "Wait", "waitTimeoutSeconds": 480})
    world.await_condition("Degraded", "False", "AsExpected")
