"""Roll-outs in which something happens: no request fails, nobody answers cold who could be hot, and it is said what is.

Each begins with two hot pods of the first image behind a Service that is asked the whole time. Which of them gate, and
where: a new image and an undo in `test_rollout`, new weights in `test_weights`, wrong answers in `test_taken_back`, uninstalling in
`test_zz_uninstall`. All of them are measured here, into docs/measured/rollouts.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import kit
import pytest

from e2e.stage import (
    answers,
    end,
    model,
    newest,
    no_active_job,
    outside,
    restarts_itself,
    set_image,
    two_hot_pods,
    uids,
    workload,
)  # fmt: skip
from e2e.traffic import gated, pods_of, said, wait_gated, wait_ready_pods
from e2e.world import jobs_ever

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def stage(world: World) -> Iterator[kit.Kube]:
    """A namespace for all roll-outs but those that need one of their own: the first image is compiled once."""
    with world.namespace("rollouts") as kube:
        yield kube


def test_01_a_new_image(world: World, stage: kit.Kube) -> None:
    second = world.image("tiny", VERSION="r1")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, second)
        waiting = wait_gated(stage, "tiny", second)
        pods = seen.wait_all(second, 2)
        assert uids([waiting]) <= uids(pods)
        assert newest(stage)["cause"] == "ImageChanged"
        end(seen, "01", "a new image", "the pod that waited is one of the two")


def test_02_new_weights_of_the_same_graph(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}, weights={"revision": "1"}) as seen:
        before = answers(stage, kit.running_pods(stage, "tiny")[0])
        stage.apply(outside(seed="4"))
        pods = restarts_itself(seen, change={"weights": {"revision": "2"}}, weights="2")
        found = newest(stage)
        assert (found["cause"], found["hardware"][0]["carried"]) == ("WeightsChanged", 1), "nothing was compiled"
        assert all(answers(stage, pod) != before for pod in pods)
        end(seen, "02", "new weights, same graph, `restart: Rollout`", "carried over; nothing compiled")


def test_03_new_weights_of_another_shape(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}, weights={"revision": "1"}) as seen:
        before = answers(stage, kit.running_pods(stage, "tiny")[0])
        stage.apply(outside(width="320"))
        pods = restarts_itself(seen, change={"weights": {"revision": "3"}}, weights="3")
        found = newest(stage)
        assert (found["cause"], found["hardware"][0].get("carried", 0)) == ("WeightsChanged", 0)
        assert all(answers(stage, pod) != before for pod in pods)
        end(seen, "03", "new weights, other shape, `restart: Rollout`", "another graph: compiled")


def test_04_a_new_bucket(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}) as seen:
        torch = model()["spec"]["torch"]
        torch["modules"][0]["buckets"].append(
            {"name": "two", "args": [{"tensor": {"shape": [2, 64], "dtype": "float32"}}]}
        )
        pods = restarts_itself(seen, change={"torch": torch}, cause="SpecChanged")
        assert newest(stage)["hardware"][0]["carried"] == 1, "only the new one is built"
        for pod in pods:
            assert len(answers(stage, pod, rows=2)) == 8
            events = kit.log_events(stage, pod["metadata"]["name"])
            assert {e["outcome"] for e in events if "outcome" in e} == {"hot"}, "and no call that no bucket is for"
        end(seen, "04", "a new bucket, `restart: Rollout`", "the other bucket is carried over")


def test_05_torch_is_upgraded_in_the_image(world: World, kube: kit.Kube) -> None:
    older, upgraded = world.image("tiny", TORCH="older"), world.image("tiny")
    with two_hot_pods(world, kube, first=older) as seen:
        set_image(seen, upgraded)
        wait_gated(kube, "tiny", upgraded)
        seen.wait_all(upgraded, 2)
        revisions = kube.get("compiledmodel", "tiny")["status"]["revisions"]
        first, second = (world.manifest(kube.namespace, r["manifest"]) for r in revisions)
        versions = [found["targets"][0]["fingerprint"]["torch"] for found in (first, second)]
        assert versions[0] != versions[1], "each is for its own torch"
        end(seen, "05", "torch upgraded in the image", f"{versions[1]} to {versions[0]}")


def test_06_what_is_slower_is_not_served(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}) as seen:
        restarts_itself(seen, change={"keepIf": {"minSpeedup": "1000"}}, outcome="eager", cause="SpecChanged")
        seen.wait_reason("NothingKept")
        note = "rejected: the new pods run eager, on purpose"
        end(seen, "06", "compiled is slower than `keepIf` asks", note, cold=True)


def test_07_what_answers_wrong_is_taken_back(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r7")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        seen.wait_all(image, 2)
        # Baked into the package and changed behind its back: the pods made from now on would be answered for wrong.
        stage.apply(outside(gain="2"))
        stage.run("rollout", "restart", "deployment/tiny")
        seen.wait_reason("RevisionTakenBack")
        told = kit.condition(stage.get("compiledmodel", "tiny"), "Degraded")["message"]
        assert "reported wrong answers" in told
        stage.wait_for("the end of the roll-out", lambda: rolled_out(stage), timeout=300)
        stage.run("rollout", "restart", "deployment/tiny")
        pods = seen.wait_all(image, 2, outcome="none")
        assert all(said(pod, "manifest") == "none" for pod in pods)
        end(
            seen,
            "07",
            "answers go wrong after a restart",
            "taken back: the next pods compile for themselves",
            cold=True,
        )


def rolled_out(kube: kit.Kube) -> bool:
    """Whether every pod of the Deployment is of its newest template, and serves."""
    thing = kube.get("deployment", "tiny")
    assert thing is not None
    status, wanted = thing["status"], thing["spec"]["replicas"]
    return bool(
        status.get("observedGeneration") == thing["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("availableReplicas") == status.get("replicas") == wanted
    )


def test_08_a_compile_that_fails(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", FAULT="only-serves")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        wait_gated(stage, "tiny", image)
        seen.wait_reason("AllTargetsFailed")
        # They are given the revision that holds the verdict, which their runtime tells.
        seen.wait_all(image, 2, outcome="none")
        assert "loads in its server alone" in kit.condition(stage.get("compiledmodel", "tiny"), "Degraded")["message"]
        end(seen, "08", "the compile fails", "the pods go on as they are: they compile for themselves", cold=True)


def test_09_the_store_is_gone_during_the_roll_out(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r9")
    with two_hot_pods(world, stage) as seen:
        with world.store_down():
            set_image(seen, image)
            wait_gated(stage, "tiny", image)
            # It compiles, and tries to publish for two minutes, before it says so.
            seen.wait_reason("StoreUnreachable", timeout=900)
            assert len([p for p in pods_of(stage, "tiny", world.image("tiny")) if kit.is_ready(p)]) == 2
        seen.wait_all(image, 2)
        end(seen, "09", "S3 gone during the roll-out, and back", "tried again by itself; no pod gave up waiting")


def test_10_the_controller_is_killed_at_each_step(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r10")
    with two_hot_pods(world, stage) as seen:
        jobs = jobs_ever(stage)
        earlier = uids(stage.list("pods", "preheat.dev/compiledmodel=tiny"))

        def killed(what: str, there: Callable[[], object]) -> None:
            stage.wait_for(what, there, timeout=300, every=0.2)
            world.kill_controller()

        def compile_pods(*phases: str) -> list[str]:
            pods = stage.list("pods", "preheat.dev/compiledmodel=tiny")
            return [
                p["metadata"]["name"]
                for p in pods
                if p["metadata"]["uid"] not in earlier and p["status"].get("phase") in phases
            ]

        set_image(seen, image)
        killed("a pod that waits", lambda: any(gated(p) for p in pods_of(stage, "tiny", image)))
        killed("its Job", lambda: jobs_ever(stage) - jobs)
        killed("a compile at work", lambda: compile_pods("Running"))
        killed("its end", lambda: compile_pods("Succeeded") or newest(stage)["state"] == "Ready")
        killed("a pod that goes on", lambda: any(not gated(p) for p in pods_of(stage, "tiny", image)))
        killed("a pod that serves", lambda: any(kit.is_ready(p) for p in pods_of(stage, "tiny", image)))
        seen.wait_all(image, 2)
        assert len(jobs_ever(stage) - jobs) == 1, "nothing is compiled twice"
        world.wait_controller()
        end(seen, "10", "the controller killed at six steps", "one Job")


def test_11_the_controller_is_scaled_to_zero(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r11")
    with two_hot_pods(world, stage, rollout={"waitTimeoutSeconds": 20}) as seen:
        jobs = jobs_ever(stage)
        with world.controller_down():
            set_image(seen, image)
            waiting = wait_gated(stage, "tiny", image)
            pods = seen.wait_all(image, 2, outcome="none")
            assert uids([waiting]) <= uids(pods)
            for pod in pods:
                assert (said(pod, "manifest"), said(pod, "wait-seconds")) == ("none", "20")
                assert "within the 20 s" in said(pod, "injected")
            # Before anybody is there to compile for it.
            stage.run("rollout", "undo", "deployment/tiny")
            seen.wait_all(world.image("tiny"), 2)
        assert jobs_ever(stage) == jobs
        end(
            seen,
            "11",
            "the controller scaled to zero",
            "the server lets pods go on when their 20 s are over",
            cold=True,
        )


def test_13_undone_mid_way(world: World, stage: kit.Kube) -> None:
    first, image = world.image("tiny"), world.image("tiny", VERSION="r13")
    with two_hot_pods(world, stage) as seen:
        before = uids(pods_of(stage, "tiny", first))
        set_image(seen, image)
        waiting = wait_gated(stage, "tiny", image)
        stage.wait_for("a Job for it", lambda: not no_active_job(stage), timeout=300)
        stage.run("rollout", "undo", "deployment/tiny")
        pods = seen.wait_all(first, 2)
        assert uids(pods) == before, "no old pod went for it"
        assert not uids([waiting]) & uids(pods_of(stage, "tiny", image))
        stage.wait_for("no Job for it", lambda: no_active_job(stage), timeout=300)
        end(seen, "13", "`rollout undo` mid-way", "its Job is stopped; the old pods never went")


def test_14_scaled_up_mid_way(world: World, stage: kit.Kube) -> None:
    first, image = world.image("tiny"), world.image("tiny", VERSION="r14")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        wait_gated(stage, "tiny", image)
        # As an autoscaler would: pods of the old image are added while those of the new one wait.
        stage.run("scale", "deployment", "tiny", "--replicas=4")
        stage.wait_for(
            "more old pods",
            lambda: len([p for p in pods_of(stage, "tiny", first) if kit.is_ready(p)]) >= 3,
            timeout=300,
        )
        seen.wait_all(image, 4)
        end(seen, "14", "scaled from 2 to 4 mid-way", "old pods are added hot, new ones wait, all are hot in the end")


def test_15_a_stateful_set(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "tiny"}
    thing = workload(first, kind="StatefulSet")
    with two_hot_pods(world, kube, thing=thing, workloadRef=reference, rollout={"whenMissing": "Wait"}) as seen:
        seen.changed()
        kube.run("set", "image", "statefulset/tiny", f"server={second}")
        wait_gated(kube, "tiny", second)
        assert len([p for p in pods_of(kube, "tiny", first) if kit.is_ready(p)]) == 1, "it takes one away first"
        seen.wait_all(second, 2)
        end(seen, "15", "a StatefulSet, `whenMissing: Wait`", "one of two pods serves while the other waits")


def test_99_uninstalled_with_pods_that_wait(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r12")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        waiting = wait_gated(stage, "tiny", image)
        world.uninstall()
        try:
            pods = wait_ready_pods(stage, "tiny", image, 2)
            assert uids([waiting]) <= uids(pods)
            end(
                seen,
                "12",
                "uninstalled while pods wait",
                "they are let go on at once, and compile for themselves",
                cold=True,
            )
        finally:
            world.install()
