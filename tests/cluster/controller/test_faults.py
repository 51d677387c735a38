"""The controller dies, is away, or is lied to; what it makes of it in the end is the same."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from apiserver.fixtures import eventually
from cluster.controller.controlplane import KEPT, MODEL, World, digest, environment, published
from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.cluster import resources
from preheat_operator.cluster.apply import write_status
from preheat_operator.cluster.client import Api, ApiError, connect
from preheat_operator.cluster.invalid import report_invalid
from preheat_operator.cluster.keys import Key, ModelKey, NamespaceKey
from preheat_operator.cluster.queue import WorkQueue
from preheat_operator.cluster.reconciler import Reconciler
from preheat_operator.settings import Settings
from preheat_operator.uninstall import uninstall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from apiserver.server import ApiServer
    from cluster.controller.controlplane import Process

HEAD = f"\n{MODEL} Cold 0 -\n"
READY = HEAD + f"{MODEL}|registry/vision:1={digest('a')} -\n"


class Crash(BaseException):
    """The process ends here."""


class CrashingApi(Api):
    """An API whose n-th change is the last thing the process does: before it (nothing is changed) or right after it."""

    def __init__(self, inner: Api, *, at: int, after: bool) -> None:
        super().__init__(inner._client)
        self.left, self.after = at, after

    async def request(self, method: str, path: str, **rest: Any) -> dict[str, Any]:
        counts = method != "GET" and "dryRun" not in (rest.get("query") or {})
        if counts and self.left == 0 and not self.after:
            raise Crash
        answer = await super().request(method, path, **rest)
        if counts:
            if self.left == 0:
                raise Crash
            self.left -= 1
        return answer


@pytest.fixture
async def api(kubeconfig: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """The API as the controller may use it."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    async with connect() as api:
        yield api


def reconciler(world: World, api: Api) -> Reconciler:
    settings = Settings.from_env(environment(world.server.kubeconfig))
    return Reconciler(api=api, queue=WorkQueue[Key](), installation=settings.installation)


async def settle(world: World, api: Api) -> None:
    """What a fresh controller does when nothing more happens: look at the model, then at its namespace."""
    fresh = reconciler(world, api)
    for _ in range(3):
        await fresh(ModelKey(world.namespace, MODEL))
    await fresh(NamespaceKey(world.namespace))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_crash_at_any_change_costs_nothing(controlplane: ApiServer, api: Api, after: bool) -> None:
    """Every change of a whole life is once the last one; then a fresh controller takes over."""
    for at in range(32):
        world = World(controlplane, controlplane.namespace(f"crash-{secrets.token_hex(4)}"))
        world.deployment("registry/vision:1")
        world.model()
        crashing = reconciler(world, CrashingApi(api, at=at, after=after))
        crashed = False
        try:
            await crashing(ModelKey(world.namespace, MODEL))
            await crashing(NamespaceKey(world.namespace))
            world.succeed(world.open_job(), published(digest("a"), KEPT))
            eventually(lambda w=world: w.jobs()[0]["status"].get("succeeded") == 1, what="the Job ends")
            eventually(lambda w=world: len(w.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
            await crashing(ModelKey(world.namespace, MODEL))
            await crashing(NamespaceKey(world.namespace))
        except Crash:
            crashed = True
        await settle(world, api)
        if world.condition("Ready") != ("True", "RevisionReady"):
            world.succeed(world.open_job(), published(digest("a"), KEPT))
            eventually(lambda w=world: len(w.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
            await settle(world, api)
        assert world.condition("Ready") == ("True", "RevisionReady"), at
        assert world.index() == READY, at
        jobs = world.jobs()
        assert [j["metadata"]["labels"]["preheat.dev/attempt"] for j in jobs] == ["1"], at
        assert len(world.pods()) == 1, at
        assert "preheat.dev/result" not in world.pods()[0]["metadata"].get("finalizers", []), at
        if not crashed:
            assert at >= 5, "a life has at least: Job, status, index, status, finalizer, index"
            return
    pytest.fail("the life never came to its end")


async def test_looking_again_changes_nothing(world: World, api: Api) -> None:
    world.model()
    await settle(world, api)
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    eventually(lambda: len(world.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
    await settle(world, api)
    # The next change would be a crash: there must be none.
    again = reconciler(world, CrashingApi(api, at=0, after=False))
    await again(ModelKey(world.namespace, MODEL))
    await again(NamespaceKey(world.namespace))


async def test_a_forged_job_of_the_right_name_is_avoided_and_named(world: World, api: Api) -> None:
    world.model()
    await settle(world, api)
    job = world.jobs()[0]
    name = job["metadata"]["name"]
    path = f"/apis/batch/v1/namespaces/{world.namespace}/jobs"
    uid = job["metadata"]["uid"]
    world.pod_of(job)
    assert world.server.request(
        "DELETE", f"{path}/{name}", {"propagationPolicy": "Background"}, content_type="application/json"
    ).ok
    eventually(lambda: not world.server.request("GET", f"{path}/{name}").ok, what="the Job is gone")
    forged = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": world.namespace},
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "publish", "image": "evil"}]}},
        },
    }  # fmt: skip
    world.server.apply(forged)
    await settle(world, api)
    assert world.condition("Degraded") == ("True", "JobConflict")
    degraded = next(c for c in world.status()["conditions"] if c["type"] == "Degraded")
    assert name in degraded["message"]
    own = world.open_job()
    assert own["metadata"]["name"] != name
    assert own["metadata"]["labels"]["preheat.dev/attempt"] == "2"
    assert own["metadata"]["uid"] != uid
    world.succeed(own, published(digest("a"), KEPT))
    eventually(lambda: len(world.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
    await settle(world, api)
    assert world.index() == READY
    assert world.condition("Degraded") == ("False", "AsExpected")
    assert world.server.request("GET", f"{path}/{name}").ok, "somebody else's Job is left alone"


async def test_what_was_decided_for_a_model_is_not_written_on_the_one_made_in_its_place(world: World, api: Api) -> None:
    world.model()
    await settle(world, api)
    raw = await api.get(resources.compiled_models(world.namespace, MODEL))
    assert raw is not None
    model = CompiledModel.model_validate(raw)
    world.delete_model()
    world.model()
    decided = model.status.model_copy(update={"kept": "1/1"})
    with pytest.raises(ApiError) as refused:
        await write_status(api, model, decided)
    assert refused.value.status == 409
    with pytest.raises(ApiError) as refused:
        await report_invalid(api, raw, unreadable(), datetime.now(UTC))
    assert refused.value.status == 409
    assert world.status() == {}


def unreadable() -> ValidationError:
    try:
        CompiledModel.model_validate({"metadata": {"name": "x", "namespace": "y"}, "spec": {"torch": 1}})
    except ValidationError as error:
        return error
    raise AssertionError("it can be read")


async def test_a_lost_message_leads_to_an_attempt_that_knows_the_lost_job(world: World, api: Api) -> None:
    world.model()
    await settle(world, api)
    job = world.open_job()
    world.succeed(job, "what is this")
    eventually(lambda: len(world.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
    await settle(world, api)
    second = world.open_job()
    environment_of = {e["name"]: e.get("value") for e in second["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment_of["PREHEAT_RECOVER_JOB"] == job["metadata"]["uid"]
    assert second["metadata"]["labels"]["preheat.dev/attempt"] == "2"


def test_the_process_is_killed_and_another_one_goes_on(process: Process, world: World) -> None:
    world.model()
    job = world.open_job()
    process.kill()
    world.succeed(job, published(digest("a"), KEPT))
    eventually(lambda: len(world.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
    process.start()
    world.await_condition("Ready", "True", "RevisionReady")
    world.await_index(READY)
    assert len(world.jobs()) == 1


def test_the_finished_pod_is_deleted_with_its_node_while_nobody_looks(process: Process, world: World) -> None:
    """As the garbage collector deletes the pods of a node that is no more: the finalizer keeps the message."""
    world.model()
    job = world.open_job()
    process.kill()
    world.succeed(job, published(digest("a"), KEPT))
    eventually(lambda: len(world.jobs()[0]["status"].get("conditions", ())) > 1, what="the Job ends")
    (pod,) = world.pods()
    path = f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}"
    assert world.server.request("DELETE", f"{path}?gracePeriodSeconds=0").ok
    (held,) = world.pods()
    assert "deletionTimestamp" in held["metadata"], "it is held"
    process.start()
    world.await_condition("Ready", "True", "RevisionReady")
    world.await_index(READY)
    eventually(lambda: not world.pods(), what="the pod is let go")
    assert [j["metadata"]["labels"]["preheat.dev/attempt"] for j in world.jobs()] == ["1"]


def test_the_model_is_deleted_while_nobody_looks(process: Process, world: World) -> None:
    world.model()
    world.pod_of(world.open_job())
    process.kill()
    world.delete_model()
    eventually(lambda: world.jobs() == [], what="the Job is collected")
    assert world.pods(), "the finalizer holds the pod"
    process.start()
    eventually(lambda: world.pods() == [] and world.index() == "", what="the pod and the index are gone")


def test_the_model_is_deleted_and_made_again_while_nobody_looks(process: Process, world: World) -> None:
    world.model()
    before = world.pod_of(world.open_job())["metadata"]["uid"]
    process.kill()
    world.delete_model()
    eventually(lambda: world.jobs() == [], what="the Job is collected")
    world.model()
    process.start()
    world.pod_of(world.open_job())
    eventually(lambda: before not in [p["metadata"]["uid"] for p in world.pods()], what="the earlier one's pod is gone")


async def test_uninstalling_leaves_no_stuck_object(
    controlplane: ApiServer, world: World, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.model()
    await settle(world, api)
    world.pod_of(world.open_job())
    said: list[str] = []
    # The model's Deployment stands in for the controller's, which the hook's account may only stop in its own namespace.
    monkeypatch.setenv("KUBECONFIG", str(controlplane.kubeconfig))
    async with connect() as admin:
        await uninstall(admin, namespace=world.namespace, controller=MODEL, seconds=60, say=said.append)
    eventually(lambda: world.jobs() == [] and world.pods() == [], what="Jobs and pods are gone")
    assert world.index() == ""
    deployment = world.server.request("GET", f"/apis/apps/v1/namespaces/{world.namespace}/deployments/{MODEL}").body
    assert deployment["spec"]["replicas"] == 0
    assert any("compile Jobs" in line for line in said)
    assert world.status(), "the CompiledModel stays"
    world.delete_model()
    assert world.server.request("DELETE", f"/api/v1/namespaces/{world.namespace}").ok
    eventually(
        lambda: not world.server.request("GET", f"/api/v1/namespaces/{world.namespace}").ok,
        what="the namespace is gone",
    )
