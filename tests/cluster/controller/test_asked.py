"""New revisions and what people ask of them, on a real API server, with the controller as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from apiserver.fixtures import eventually
from cluster.controller.controlplane import KEPT, MODEL, REPOSITORY, digest, published
from cluster.controller.pods import WRONG, events, serving

if TYPE_CHECKING:
    from cluster.controller.controlplane import Process, World

IMAGE = "registry/vision:1"
HEAD = f"\n{MODEL} Cold 0 -\n"


def line(image: str, manifest: str) -> str:
    return f"{MODEL}|{image}={manifest} -\n"


def preheat(world: World, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "KUBECONFIG": str(world.server.kubeconfig)}
    env["PYTHONPATH"] = f"{REPOSITORY / 'operator'}:{REPOSITORY / 'compiler_job'}"
    command = [sys.executable, "-m", "preheat_operator.cli", *words, "-n", world.namespace]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)


def causes(world: World) -> list[str]:
    return [r["cause"] for r in world.status().get("revisions", ())]


def serving_pod(world: World, name: str, image: str, image_id: str) -> None:
    """A labelled pod that runs, as a kubelet would tell it."""
    pod: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": world.namespace, "labels": {"preheat.dev/model": MODEL}},
        "spec": {"containers": [{"name": "server", "image": image}]},
    }  # fmt: skip
    world.server.apply(pod)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    status = {"name": "server", "image": image, "imageID": image_id, "ready": True, "restartCount": 0,
              "state": {"running": {"startedAt": now}}}  # fmt: skip
    world.set_pod_status({"metadata": {"name": name}}, {"phase": "Running", "containerStatuses": [status]})


def ready(world: World, manifest: str = "a", **spec: Any) -> None:
    world.model(**spec)
    world.succeed(world.open_job(), published(digest(manifest), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")


def test_a_moved_tag_is_noticed_from_a_pod_alone_and_compiled_by_digest(process: Process, world: World) -> None:
    ready(world)
    one, two = (f"registry/vision@{digest(c)}" for c in "12")
    serving_pod(world, "p1", IMAGE, one)
    eventually(lambda: world.status()["revisions"][0].get("imageDigest") == digest("1"), what="the digest is learned")
    serving_pod(world, "p2", IMAGE, two)
    job = world.open_job()
    containers = {c["name"]: c["image"] for c in job["spec"]["template"]["spec"]["initContainers"]}
    assert containers["compile"] == two
    # The Job is there before the status tells of it.
    eventually(lambda: causes(world) == ["ImageMoved", "Created"], what="the revision is in the status")
    world.succeed(job, published(digest("b"), KEPT))
    world.await_index(HEAD + line(IMAGE, digest("b")))


def test_new_weights_are_checked_on_what_is_there(process: Process, world: World) -> None:
    ready(world, weights={"revision": "6"})
    world.model(weights={"revision": "7"})
    job = world.open_job()
    env = {e["name"]: e.get("value", "") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert json.loads(env["PREHEAT_REQUEST"])["base"] == digest("a")
    message = json.loads(published(digest("b"), KEPT)) | {"carried": 1}
    world.succeed(job, json.dumps(message))
    world.await_index(HEAD + line(IMAGE, digest("b")))
    revision = world.status()["revisions"][0]
    assert (revision["cause"], revision["weights"], revision["hardware"][0]["carried"]) == ("WeightsChanged", "7", 1)


def test_a_change_that_is_taken_back_leaves_no_job(process: Process, world: World) -> None:
    ready(world)
    world.model(keepIf={"minSpeedup": "1.2"})
    world.pod_of(world.open_job())
    world.model()
    eventually(lambda: [j for j in world.jobs() if not j["status"].get("conditions")] == [], what="its Job is gone")
    world.await_condition("Ready", "True", "RevisionReady")
    assert causes(world) == ["Created"]


def test_what_people_ask_for_by_the_command_line(process: Process, world: World) -> None:
    ready(world)
    (old,) = (r["name"] for r in world.status()["revisions"])
    asked = preheat(world, "rebuild", MODEL)
    assert asked.returncode == 0, asked.stderr
    world.succeed(world.open_job(), published(digest("b"), KEPT))
    world.await_index(HEAD + line(IMAGE, digest("b")))
    assert causes(world) == ["Rebuild", "Created"]

    assert preheat(world, "rollback", MODEL).returncode == 0
    world.await_index(HEAD + line(IMAGE, digest("a")))
    world.await_condition("Ready", "True", "Pinned")
    assert preheat(world, "rollback", MODEL).returncode == 69, "there is none before that"
    told = json.loads(preheat(world, "history", MODEL, "--output", "json").stdout)
    assert [(t["cause"], t["pods"]) for t in told] == [("Rebuild", "None"), ("Created", "Pinned")]
    text = preheat(world, "history", MODEL).stdout
    assert old in text
    assert "Pinned" in text

    assert preheat(world, "unpin", MODEL).returncode == 0
    world.await_index(HEAD + line(IMAGE, digest("b")))
    refused = preheat(world, "pin", MODEL, "nobody")
    assert refused.returncode == 69
    assert old in refused.stderr
    assert preheat(world, "history", "other").returncode == 69
    jobs = [j for j in world.jobs() if not j["status"].get("conditions")]
    assert jobs == [], "nothing of this was compiled twice"


def test_the_audit_trail_tells_all_that_was_caused_asked_given_and_taken_back(process: Process, world: World) -> None:
    ready(world)
    assert preheat(world, "rebuild", MODEL).returncode == 0
    world.succeed(world.open_job(), published(digest("b"), KEPT))
    world.await_index(HEAD + line(IMAGE, digest("b")))
    first, rebuilt = (r["name"] for r in reversed(world.status()["revisions"]))
    assert preheat(world, "pin", MODEL, first).returncode == 0
    world.await_index(HEAD + line(IMAGE, digest("a")))
    world.await_condition("Ready", "True", "Pinned")
    # What is pinned turns out to be wrong: the pin holds nothing any more, and the other one is given.
    for name in ("wrong-1", "wrong-2"):
        serving(world, name, digest("a"), served=WRONG)
    world.await_index(HEAD + line(IMAGE, digest("b")))
    world.await_condition("Degraded", "True", "PinNotFound")
    told = json.loads(preheat(world, "history", MODEL, "--output", "json").stdout)
    assert [(t["name"], t["cause"], t["state"], t["pods"], t["manifest"]) for t in told] == [
        (rebuilt, "Rebuild", "Ready", "Given", digest("b")),
        (first, "Created", "TakenBack", "None", digest("a")),
    ]
    assert told[0]["rebuild"], "who asked is told by the token"
    taken = told[1]["takenBack"]
    assert (taken["pods"], taken["wrong"], taken["crashed"], taken["targets"]) == (2, 2, 0, ["main/one/cpu"])
    assert all(t["created"] <= t["finished"] for t in told)
    assert told[1]["finished"] <= taken["at"]
    assert all((h["kept"], h["attempt"]) == (1, 1) for t in told for h in t["hardware"])
    text = preheat(world, "history", MODEL).stdout
    (row,) = (r for r in text.splitlines() if r.startswith(first))
    assert "TakenBack" in row
    assert f"2 of 2 bad at {taken['at']}" in row
    (row,) = (r for r in text.splitlines() if r.startswith(rebuilt))
    assert "Rebuild" in row
    assert "Given" in row
    assert preheat(world, "pin", MODEL, first).returncode == 69, "what was taken back cannot be pinned"
    (wrong,) = events(world, "RevisionTakenBack")
    assert f"revision {first} of image {IMAGE} was taken back" in wrong
    assert "2 of 2 pods reported wrong answers (main/one/cpu)" in wrong
    assert len(events(world, "Created")) == len(events(world, "Rebuild")) == len(events(world, "Pinned")) == 1
    assert "preheat.dev/rebuild asks for it" in events(world, "Rebuild")[0]
    degraded = next(c for c in world.status()["conditions"] if c["type"] == "Degraded")
    assert f"names '{first}', which is no ready revision (ready: {rebuilt})" in degraded["message"]
    assert wrong in degraded["message"]


def test_another_torch_under_the_pods_is_compiled_for_and_told(process: Process, world: World) -> None:
    ready(world)
    cold = {"v": 1, "answers": {"cold/TorchDiffers": 1}, "node": {"torch": "2.16.0", "python": "3.12"}}
    serving(world, "cold-1", digest("a"), served=cold)
    eventually(lambda: world.status()["revisions"][0].get("served", {}).get("cold") == 1, what="one is heard")
    assert causes(world) == ["Created"], "and one is not enough"
    serving(world, "cold-2", digest("a"), served=cold)
    world.succeed(world.open_job(), published(digest("b"), KEPT))
    world.await_index(HEAD + line(IMAGE, digest("b")))
    newest = world.status()["revisions"][0]
    assert (newest["cause"], newest["environment"]) == ("TorchChanged", "torch 2.16.0, Python 3.12")
    assert "pods say that they run with torch 2.16.0, Python 3.12" in events(world, "TorchChanged")[0]
    assert "TorchChanged" in preheat(world, "history", MODEL).stdout
    assert [j for j in world.jobs() if not j["status"].get("conditions")] == []


def test_an_event_tells_the_cause(process: Process, world: World) -> None:
    ready(world)
    world.deployment("registry/vision:2")
    world.open_job()

    def reasons() -> set[str]:
        path = f"/api/v1/namespaces/{world.namespace}/events?fieldSelector=involvedObject.kind=CompiledModel"
        return {e["reason"] for e in world.server.request("GET", path).body["items"]}

    eventually(lambda: {"Created", "ImageChanged"} <= reasons(), what="an Event a cause")
