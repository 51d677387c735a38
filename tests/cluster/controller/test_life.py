"""The life of a CompiledModel, with the controller as a process and real Jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from apiserver.fixtures import eventually
from cluster.controller.controlplane import KEPT, MODEL, digest, published

if TYPE_CHECKING:
    from cluster.controller.controlplane import Process, World

IMAGE = "registry/vision:1"


def line(image: str, manifest: str, path: str = "-") -> str:
    return f"{MODEL}|{image}={manifest} {path}\n"


HEAD = f"\n{MODEL} Cold 0 -\n"


def test_from_one_yaml_to_a_ready_image(process: Process, world: World) -> None:
    world.model()
    world.await_condition("Ready", "False", "Compiling")
    world.await_index(HEAD)
    world.succeed(world.open_job(), published(digest("a"), KEPT, python_path="/app"))
    world.await_condition("Ready", "True", "RevisionReady")
    world.await_condition("Progressing", "False", "Complete")
    world.await_condition("Degraded", "False", "AsExpected")
    world.await_index(HEAD + line(IMAGE, digest("a"), "/app"))
    status = world.status()
    assert status["kept"] == "1/1"
    assert status["targets"][0]["speedup"] == "1.75"
    assert status["revisions"][0]["cause"] == "Created"
    eventually(lambda: not any(p["metadata"].get("finalizers", []) for p in world.pods()), what="pods are let go")


def test_health_is_served(process: Process, world: World) -> None:
    eventually(lambda: process.healthy, what="/healthz answers")
    assert process.terminate() == 0


def test_a_new_image_is_compiled_while_the_old_stays_and_a_rollback_needs_no_job(
    process: Process, world: World
) -> None:
    world.model()
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")
    world.deployment("registry/vision:2")
    second = world.open_job()
    world.await_index(HEAD + line(IMAGE, digest("a")))
    world.succeed(second, published(digest("b"), KEPT))
    world.await_index(HEAD + line(IMAGE, digest("a")) + line("registry/vision:2", digest("b")))
    names = [r["name"] for r in world.status()["revisions"]]
    world.deployment(IMAGE)
    eventually(lambda: [r["name"] for r in world.status()["revisions"]] == names[::-1], what="the old one is first")
    world.await_condition("Ready", "True", "RevisionReady")
    # Not one Job more: what is there is at most the Job of the image that was left.
    assert [j["metadata"]["uid"] for j in world.jobs() if not j["status"].get("conditions")] == []
    world.await_index(HEAD + line(IMAGE, digest("a")) + line("registry/vision:2", digest("b")))


def test_the_parts_of_two_profiles_become_one_manifest(process: Process, world: World) -> None:
    world.model(hardware=["cpu", "gpu"])
    world.succeed(world.open_job("cpu"), published(digest("a"), KEPT))
    world.succeed(world.open_job("gpu"), published(digest("b"), KEPT))
    merge = world.open_job("merge.all")
    environment = {e["name"]: e.get("value") for e in merge["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["PREHEAT_PARTS"] == f"{digest('a')},{digest('b')}"
    world.succeed(merge, published(digest("c")))
    world.await_condition("Ready", "True", "RevisionReady")
    world.await_index(HEAD + line(IMAGE, digest("c")))
    assert world.status()["kept"] == "2/2"


def test_an_image_without_torch_ends_in_words(process: Process, world: World) -> None:
    world.model()
    message = '{"v":1,"reason":"TorchMissing","message":"no module named torch; install it in the image"}'
    world.fail(world.open_job(), "compile", 65, message)
    world.await_condition("Ready", "False", "AllTargetsFailed")
    assert world.status()["targets"][0]["reason"] == "TorchMissing"
    degraded = next(c for c in world.status()["conditions"] if c["type"] == "Degraded")
    assert "install it in the image" in degraded["message"]


def test_missing_credentials_are_a_condition(process: Process, world: World) -> None:
    world.model()
    message = '{"v":1,"reason":"StoreCredentialsMissing","message":"the Secret preheat-publish is not there"}'
    world.fail(world.open_job(), "publish", 70, message)
    world.await_condition("Degraded", "True", "StoreCredentialsMissing")
    world.await_condition("Progressing", "True", "Retrying")


def test_a_pod_that_finds_no_node_is_no_capacity(process: Process, world: World) -> None:
    world.model(compile={"scheduleTimeoutSeconds": 1})
    pod = world.pod_of(world.open_job())
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    world.set_pod_status(pod, {"conditions": [condition]})
    world.await_condition("Ready", "False", "NoCapacity")
    eventually(lambda: world.jobs() == [] and world.pods() == [], what="the Job and its pod are gone")


def test_a_workload_that_is_not_there_is_said_and_followed_when_it_comes(process: Process, world: World) -> None:
    world.model(workloadRef={"kind": "Deployment", "name": "other"})
    world.await_condition("Ready", "False", "WorkloadNotFound")
    world.model()
    world.await_condition("Ready", "False", "Compiling")


def test_a_refused_template_is_quoted_and_recovers(process: Process, world: World) -> None:
    template = {
        "spec": {"containers": [{"name": "a", "image": IMAGE, "volumeMounts": [{"name": "x", "mountPath": "/x"}]}]}
    }
    world.model(workloadRef=None, template=template)
    world.await_condition("Ready", "False", "TemplateRefused")
    degraded = next(c for c in world.status()["conditions"] if c["type"] == "Degraded")
    assert 'Not found: "x"' in degraded["message"]
    assert world.jobs() == []
    template["spec"]["volumes"] = [{"name": "x", "emptyDir": {}}]
    world.model(workloadRef=None, template=template)
    world.await_condition("Ready", "False", "Compiling")
    world.await_condition("Degraded", "False", "AsExpected")


def test_suspending_stops_the_job_and_resuming_makes_it_again(process: Process, world: World) -> None:
    world.model()
    first = world.open_job()
    world.model(suspend="Enabled")
    world.await_condition("Ready", "False", "Suspended")
    eventually(lambda: world.jobs() == [], what="the Job is gone")
    world.model(suspend="Disabled")
    again = world.open_job()
    assert again["metadata"]["name"] == first["metadata"]["name"]
    assert again["metadata"]["uid"] != first["metadata"]["uid"]


def test_deleting_the_model_in_the_middle_leaves_nothing(process: Process, world: World) -> None:
    world.model()
    pod = world.pod_of(world.open_job())
    assert "preheat.dev/result" in pod["metadata"]["finalizers"]
    world.delete_model()
    eventually(lambda: world.jobs() == [] and world.pods() == [], what="Jobs and pods are gone")
    eventually(lambda: world.index() == "", what="the index is gone")


def test_a_labelled_pod_that_nobody_injected_says_why(process: Process, world: World) -> None:
    labels = {"preheat.dev/model": "nobody"}
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "lonely", "namespace": world.namespace, "labels": labels},
        "spec": {"containers": [{"name": "a", "image": "x"}]},
    }  # fmt: skip
    world.server.apply(pod)
    path = f"/api/v1/namespaces/{world.namespace}/pods/lonely"

    def said() -> bool:
        annotations = world.server.request("GET", path).body["metadata"].get("annotations", {})
        return annotations.get("preheat.dev/injected", "") == (
            "no: there is no CompiledModel 'nobody' in this namespace"
        )

    eventually(said, what="the pod says why")


def test_events_are_written_once_for_each_transition(process: Process, world: World) -> None:
    world.model()
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")

    def reasons() -> list[str]:
        path = f"/api/v1/namespaces/{world.namespace}/events?fieldSelector=involvedObject.kind=CompiledModel"
        return sorted(e["reason"] for e in world.server.request("GET", path).body["items"])

    eventually(lambda: reasons() == ["Compiling", "Created", "RevisionReady"], what="three Events")
