"""Weights that are looked up: when is looked, what is done with what was seen, and whose credentials are used."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit.plan.simulation import Simulation, digest, spec

S3 = {"s3": {"bucket": "models", "prefix": "vision/"}, "checkIntervalSeconds": 600}
HUB = {"huggingFace": {"repository": "org/vision"}}
SEEN = "s3:" + "a" * 64


def looks(world: Simulation) -> list[dict[str, Any]]:
    return [j for j in world.open_jobs() if j["metadata"]["labels"]["preheat.dev/hardware"] == "weights.lookup"]


def compiles(world: Simulation) -> list[dict[str, Any]]:
    return [j for j in world.open_jobs() if j["metadata"]["labels"]["preheat.dev/hardware"] != "weights.lookup"]


def see(world: Simulation, seen: str) -> None:
    """Let the open look end with this."""
    (job,) = looks(world)
    message = json.dumps({"v": 1, "weights": seen})
    world.end(job, ok=True, ends={"lookup": (0, "Completed", message)})
    world.settle()


def fail(world: Simulation, message: str = "", *, pods: bool = True) -> None:
    (job,) = looks(world)
    said = json.dumps({"v": 1, "reason": "Denied", "message": message}) if message else "\x00"
    world.end(job, ok=False, ends={"lookup": (70, "Error", said)}, reason="BackoffLimitExceeded", pods=pods)
    world.settle()


def publish(world: Simulation, manifest: str) -> None:
    (job,) = compiles(world)
    world.publish(job, manifest, "main|one|Kept|Faster|1.7500|0.1200|1900000")
    world.settle()


def ready(weights: dict[str, Any] = S3) -> Simulation:
    world = Simulation(body=spec(weights=weights))
    world.settle()
    see(world, SEEN)
    publish(world, digest("a"))
    return world


def test_the_first_revision_waits_for_the_first_look() -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    assert (len(looks(world)), compiles(world)) == (1, [])
    assert world.condition("Progressing") == ("True", "LookingUpWeights")
    assert world.condition("Degraded") == ("False", "AsExpected")
    see(world, SEEN)
    assert (looks(world), len(compiles(world))) == ([], 1)
    publish(world, digest("a"))
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert (world.causes, world.status["revisions"][0]["weights"]) == (["Created"], SEEN)


def test_what_was_seen_is_in_status_before_its_job_is_stopped() -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    (job,) = looks(world)
    world.end(job, ok=True, ends={"lookup": (0, "Completed", json.dumps({"v": 1, "weights": SEEN}))})
    plan = world.pass_once()
    assert plan.status is not None
    assert plan.status.weights is not None
    assert plan.status.weights.revision == SEEN
    assert [j.uid for j in plan.stop] == [job["metadata"]["uid"]]
    assert not [j for j in plan.create if j["metadata"]["labels"]["preheat.dev/hardware"] == "weights.lookup"]


def test_it_is_looked_again_after_the_interval_and_a_change_is_checked() -> None:
    world = ready()
    plan = world.settle()
    assert plan.look_again_seconds is not None
    assert 0 < plan.look_again_seconds <= 600
    world.wait(599)
    world.settle()
    assert looks(world) == []
    world.wait(2)
    world.settle()
    see(world, SEEN)
    assert (world.causes, compiles(world)) == (["Created"], []), "nothing is new"
    world.wait(601)
    world.settle()
    see(world, "s3:" + "b" * 64)
    assert world.causes == ["WeightsChanged", "Created"]
    env = {e["name"]: e.get("value") for e in compiles(world)[0]["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert json.loads(env["PREHEAT_REQUEST"])["base"] == digest("a")
    assert world.status["weights"]["looks"] == 3


def test_a_look_that_fails_changes_nothing_needs_a_person_and_is_made_again() -> None:
    world = ready()
    world.wait(601)
    world.settle()
    fail(world, "s3://models/vision/ cannot be listed (AccessDenied)")
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.condition("Degraded") == ("True", "WeightsUnknown")
    (message,) = (c["message"] for c in world.status["conditions"] if c["type"] == "Degraded")
    assert "AccessDenied" in message
    assert (world.causes, world.status["weights"]["revision"]) == (["Created"], SEEN)
    world.wait(601)
    world.settle()
    see(world, SEEN)
    assert world.condition("Degraded") == ("False", "AsExpected")


@pytest.mark.parametrize("pods", [True, False])
def test_nobody_waits_for_weights_that_cannot_be_seen(*, pods: bool) -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    fail(world, pods=pods)
    assert len(compiles(world)) == 1
    publish(world, digest("a"))
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.condition("Degraded") == ("True", "WeightsUnknown")
    world.wait(601)
    world.settle()
    see(world, SEEN)
    assert world.causes == ["WeightsChanged", "Created"], "now they are known"


@pytest.mark.parametrize("seen", ["", "7", "s3:" + "a" * 65, "s3:a b", "other:aa", 7, None, ["s3:aa"]])
def test_what_is_no_revision_is_not_believed(seen: Any) -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    see(world, seen)
    assert "revision" not in world.status["weights"]
    assert world.status["weights"]["trouble"]


def test_another_place_is_looked_at_at_once_and_until_then_nothing_changes() -> None:
    world = ready()
    world.body = spec(weights=HUB)
    world.settle()
    (job,) = looks(world)
    assert world.causes == ["Created"]
    see(world, "hf:" + "c" * 40)
    assert (world.causes[0], world.status["revisions"][0]["weights"]) == ("WeightsChanged", "hf:" + "c" * 40)
    world.body = spec(weights={"revision": "7"})
    world.settle()
    assert looks(world) == []
    assert "weights" not in world.status
    assert world.status["revisions"][0]["weights"] == "7"
    assert job


def test_another_interval_alone_asks_for_no_look() -> None:
    world = ready()
    world.body = spec(weights={**S3, "checkIntervalSeconds": 900})
    world.settle()
    assert looks(world) == []


def test_suspended_nothing_is_looked_at() -> None:
    world = ready()
    world.wait(6000)
    world.body = spec(weights=S3, suspend="Enabled")
    world.settle()
    assert looks(world) == []


def test_a_refused_look_needs_a_person_and_holds_nothing_up() -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    (job,) = looks(world)
    world.jobs.clear()
    world.pods.clear()
    world.refused = {job["metadata"]["name"]: "exceeded quota"}
    world.settle()
    assert len(compiles(world)) == 1
    assert world.condition("Degraded") == ("True", "WeightsUnknown")


def test_a_stranger_with_the_name_of_a_look_holds_nothing_up() -> None:
    world = Simulation(body=spec(weights=S3))
    world.settle()
    (job,) = looks(world)
    world.jobs.clear()
    world.pods.clear()
    world.taken = frozenset({job["metadata"]["name"]})
    world.settle()
    assert len(compiles(world)) == 1


def test_the_pod_has_what_clients_need_of_the_serving_container_and_nothing_of_it_changes_our_python() -> None:
    world = Simulation(body=spec(weights={"s3": {"bucket": "models", "prefix": "a$(B)"}}))
    served = (world.workload or {})["spec"]["template"]["spec"]
    served["serviceAccountName"] = "vision"
    secret = {"secretKeyRef": {"name": "s3", "key": "secret"}}
    served["containers"][0] |= {
        "env": [
            {"name": "AWS_ACCESS_KEY_ID", "value": "id"}, {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": secret},
            {"name": "HF_TOKEN", "valueFrom": secret}, {"name": "PYTHONPATH", "value": "/app"},
            {"name": "LD_PRELOAD", "value": "/evil.so"}, {"name": "DATABASE_PASSWORD", "valueFrom": secret},
        ],
        "envFrom": [{"secretRef": {"name": "all"}}],
    }  # fmt: skip
    world.settle()
    (job,) = looks(world)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    env = {e["name"]: e.get("value", e.get("valueFrom")) for e in container["env"]}
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("vision", False)
    assert env["AWS_ACCESS_KEY_ID"] == "id"
    assert env["AWS_SECRET_ACCESS_KEY"] == env["HF_TOKEN"] == secret
    assert env["PYTHONPATH"] == env["LD_PRELOAD"] == ""
    assert "DATABASE_PASSWORD" not in env
    assert container["envFrom"] == [{"secretRef": {"name": "all"}}]
    assert json.loads(env["PREHEAT_LOOKUP"]) == {"s3": {"bucket": "models", "prefix": "a$$(B)"}}
    assert container["image"] == "example.org/preheat:1"
    assert container["securityContext"]["runAsNonRoot"] is True
    assert not pod.get("volumes")
    assert "preheat-publish" not in json.dumps(pod), "the store's credentials have no business there"
    assert job["spec"]["backoffLimit"] == 0
