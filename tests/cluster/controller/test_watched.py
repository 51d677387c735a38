"""What pods say, and come to, changes what pods get: with the controller as a process, and pods whose status a hand writes."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from apiserver.fixtures import eventually
from cluster.controller.controlplane import KEPT, MODEL, digest, published
from cluster.controller.pods import HOT, WRONG, events, serving

if TYPE_CHECKING:
    from cluster.controller.controlplane import Process, World

IMAGE = "registry/vision:1"


def await_given(world: World, *manifests: str) -> None:
    """Wait until pods of the image are given this manifest, or nothing."""

    def given() -> list[str]:
        return [line.split("=")[1].split(" ")[0] for line in world.index().splitlines() if f"{IMAGE}=sha256:" in line]

    try:
        eventually(lambda: given() == [*manifests] and MODEL in world.index(), what="what pods are given")
    except AssertionError:
        assert given() == [*manifests]
        raise


def series(process: Process) -> dict[str, float]:
    """What Prometheus would read of the controller."""
    with urllib.request.urlopen(f"http://127.0.0.1:{process.metrics_port}/metrics", timeout=10) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def two_revisions(world: World) -> None:
    """Two that were ready one after the other, of one image."""
    world.model()
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    await_given(world, digest("a"))
    world.model(keepIf={"minSpeedup": "1.2"})
    world.succeed(world.open_job(), published(digest("b"), KEPT))
    await_given(world, digest("b"))


def test_wrong_answers_of_two_pods_give_pods_the_revision_before(process: Process, world: World) -> None:
    two_revisions(world)
    serving(world, "well", digest("b"), served=HOT)
    serving(world, "wrong-1", digest("b"), served=WRONG)
    eventually(lambda: world.status()["revisions"][0].get("served", {}).get("wrong") == 1, what="one is counted")
    assert world.status()["revisions"][0]["state"] == "Ready", "and one is not enough"
    serving(world, "wrong-2", digest("b"), served=WRONG)
    world.await_condition("Degraded", "True", "RevisionTakenBack")
    await_given(world, digest("a"))
    newest = world.status()["revisions"][0]
    taken = newest["takenBack"]
    assert (newest["state"], taken["pods"], taken["wrong"], taken["crashed"]) == ("TakenBack", 3, 2, 0)
    eventually(lambda: len(events(world, "RevisionTakenBack")) == 1, what="one Event")
    assert "2 of 3 pods reported wrong answers (main/one/cpu)" in events(world, "RevisionTakenBack")[0]
    of_model = f'model="{MODEL}",namespace="{world.namespace}"'
    figures = series(process)
    assert figures[f"preheat_revisions_taken_back_total{{{of_model}}}"] == 1
    assert figures[f"preheat_model_taken_back{{{of_model}}}"] == 1
    assert figures[f'preheat_model_pods{{how="wrong",{of_model}}}'] == 2
    # The pods go, the controller is another: what was decided stays, and nothing is compiled again.
    for name in ("well", "wrong-1", "wrong-2"):
        world.server.request("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/{name}?gracePeriodSeconds=0")
    process.kill()
    process.start()
    eventually(lambda: world.status()["revisions"][0]["served"]["pods"] == 0, what="the pods are gone")
    assert world.status()["revisions"][0]["takenBack"] == taken
    await_given(world, digest("a"))
    assert len(events(world, "RevisionTakenBack")) == 1
    assert [j for j in world.jobs() if not j["status"].get("conditions")] == []


def test_crashes_are_seen_without_a_report_and_other_exits_are_not_crashes(process: Process, world: World) -> None:
    world.model()
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")
    for number, code in enumerate((137, 1, 143, 139)):
        serving(world, f"ended-{number}", digest("a"), crashed=code)
    eventually(lambda: world.status()["revisions"][0].get("served", {}).get("pods") == 4, what="all are counted")
    assert world.status()["revisions"][0]["served"]["crashed"] == 1
    world.await_condition("Ready", "True", "RevisionReady")
    serving(world, "aborted", digest("a"), crashed=134)
    world.await_condition("Ready", "False", "RevisionTakenBack")
    await_given(world)
    assert "2 of 5 pods crashed" in events(world, "RevisionTakenBack")[0]


def test_nodes_that_nothing_was_compiled_for_are_named(process: Process, world: World) -> None:
    world.model()
    world.succeed(world.open_job(), published(digest("a"), KEPT))
    world.await_condition("Ready", "True", "RevisionReady")
    node = {"machine": "x86_64", "cpuIsa": "X86_64_V3", "gpu": "NVIDIA A10G"}
    serving(world, "lost", digest("a"), served={"v": 1, "answers": {"cold/GpuDiffers": 1}, "node": node})
    world.await_condition("Degraded", "True", "HardwareNotCovered")
    eventually(lambda: events(world, "HardwareNotCovered") != [], what="an Event")
    assert "x86_64, CPU class X86_64_V3, GPU NVIDIA A10G" in events(world, "HardwareNotCovered")[0]
    world.await_condition("Ready", "True", "RevisionReady")
    await_given(world, digest("a"))
    world.server.request("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/lost?gracePeriodSeconds=0")
    world.await_condition("Degraded", "False", "AsExpected")
