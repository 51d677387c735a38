"""Roll-outs in which something happens: no request fails, nobody answers cold who could be hot, and it is said what is.

Each begins with two hot pods of the first image behind a Service that is asked the whole time. Which of them gate, and
where: a new image and an undo in `test_rollout`, new weights in `test_weights`, wrong answers in `test_taken_back`, uninstalling in
`test_zz_uninstall`. All of them are measured here, into docs/measured/rollouts.md.
"""

from __future__ import annotations

import contextlib
import json
import struct
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.traffic import gated, pods_of, rolling, said, wait_gated, wait_ready_pods
from e2e.watched import Watched, record, row, watched
from e2e.world import jobs_ever

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1800)]

KEEP = {"minSpeedup": "0"}
GPU = "example.com/gpu"
AS_MADE = {"seed": "3", "width": "256", "gain": "1"}


def model(**changes: Any) -> dict[str, Any]:
    """The CompiledModel of every roll-out; `changes` replace fields of its spec."""
    return kit.compiled_model("tiny", **{"keepIf": KEEP, "revisionHistoryLimit": 20, **changes})


def outside(**values: str) -> dict[str, Any]:
    """What the model reads from outside its image, as weights are: Preheat does not see into it."""
    data = {**AS_MADE, **values}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "outside"}, "data": data}


def workload(image: str, *, replicas: int = 2, kind: str = "Deployment") -> dict[str, Any]:
    """The Deployment (or StatefulSet) of every roll-out."""
    thing = rolling("tiny", image, replicas=replicas)
    env = [
        {"name": f"TINY_{key.upper()}", "valueFrom": {"configMapKeyRef": {"name": "outside", "key": key}}}
        for key in AS_MADE
    ]
    thing["spec"]["template"]["spec"]["containers"][0]["env"] = env
    if kind == "StatefulSet":
        thing["kind"] = kind
        del thing["spec"]["strategy"]
        thing["spec"] |= {"serviceName": "tiny", "podManagementPolicy": "Parallel"}
    return thing


@pytest.fixture(scope="module")
def stage(world: World) -> Iterator[kit.Kube]:
    """A namespace for all roll-outs but those that need one of their own: the first image is compiled once."""
    with world.namespace("rollouts") as kube:
        yield kube


@contextlib.contextmanager
def two_hot_pods(world: World, kube: kit.Kube, *, first: str = "", thing: dict[str, Any] | None = None,
                 **spec: Any) -> Iterator[Watched]:  # fmt: skip
    """Two hot pods of the first image, asked the whole time; whatever was before is gone, but for what was compiled."""
    first = first or world.image("tiny")
    kube.run("delete", "deployment,statefulset", "--all", "--cascade=foreground", timeout=300)
    thing = thing or workload(first)
    # Of a first install, whose pods would start cold, nobody is to be seen.
    nobody = {**thing, "spec": {**thing["spec"], "replicas": 0}}
    kube.apply(outside(), model(**spec), nobody)
    kit.wait_ready_model(kube, "tiny", image=first)
    kube.apply(thing)
    wait_ready_pods(kube, "tiny", first, 2)
    with watched(kube, "tiny", world.image("tiny")) as seen:
        seen.wait_all(first, 2, timeout=300)
        seen.hot_seconds = None
        seen.reasons.clear()
        seen.look()
        try:
            yield seen
        finally:
            kube.run("delete", "deployment,statefulset", "--all", "--cascade=foreground", timeout=300)


def set_image(seen: Watched, image: str) -> None:
    """Push a new image, the usual way."""
    seen.changed()
    seen.kube.run("set", "image", "deployment/tiny", f"server={image}")


def end(seen: Watched, name: str, what: str, note: str = "", *, cold: bool = False) -> dict[str, Any]:
    """Judge and keep the line: never a failed request; and no cold answer, unless the line is about those."""
    answered = seen.requests.so_far()[0]
    seen.requests.wait_answers(20)
    line = row(seen, what=what, note=note)
    record(name, line)
    assert answered > 20
    assert line["failed"] == 0, seen.requests.so_far()[1]
    assert cold or line["cold"] == 0, {pod: seen.outcome(pod) for pod in seen.pods}
    return line


def newest(kube: kit.Kube) -> dict[str, Any]:
    """The revision that status names first."""
    found = kube.get("compiledmodel", "tiny")
    assert found is not None
    revision: dict[str, Any] = found["status"]["revisions"][0]
    return revision


def wait_newest(kube: kit.Kube, **fields: str) -> dict[str, Any]:
    """Wait until the newest revision says this, and that it is ready."""
    wanted = {"state": "Ready", **fields}

    def probe() -> dict[str, Any] | None:
        found = newest(kube)
        return found if wanted.items() <= found.items() else None

    revision: dict[str, Any] = kit.wait_for(f"a revision with {wanted}", probe, timeout=900, every=1)
    return revision


def answers(kube: kit.Kube, pod: dict[str, Any], rows: int = 1) -> list[float]:
    """What a pod answers to the usual request, or to one of more rows."""
    with kit.forwarded(kube, pod["metadata"]["name"]) as url:
        body = struct.pack(f"<{64 * rows}f", *(i / 64 for _ in range(rows) for i in range(64)))
        found: list[float] = kit.post(f"{url}/run", body)["answer"]
        return found


def no_active_job(kube: kit.Kube) -> bool:
    """Whether no compile Job is at work."""
    return not [job for job in kube.list("jobs", "preheat.dev/compiledmodel=tiny") if job["status"].get("active")]


def test_01_a_new_image(world: World, stage: kit.Kube) -> None:
    second = world.image("tiny", VERSION="r1")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, second)
        waiting = wait_gated(stage, "tiny", second)
        pods = seen.wait_all(second, 2)
        assert waiting["metadata"]["uid"] in {p["metadata"]["uid"] for p in pods}
        assert newest(stage)["cause"] == "ImageChanged"
        end(seen, "01", "a new image", "the pod that waited is one of the two")


def restarts_itself(seen: Watched, *, version: str) -> list[dict[str, Any]]:
    """Wait until the controller has had the workload restarted for new weights; the new pods."""
    kube, before = seen.kube, {p["metadata"]["uid"] for p in kit.running_pods(seen.kube, "tiny")}
    image = kit.running_pods(kube, "tiny")[0]["spec"]["containers"][0]["image"]
    seen.changed()
    kube.apply(model(rollout={"restart": "Rollout"}, weights={"revision": version}))
    wait_newest(kube, weights=version)
    kit.wait_for("new pods", lambda: not before & {p["metadata"]["uid"] for p in kit.running_pods(kube, "tiny")},
                 timeout=300)  # fmt: skip
    return seen.wait_all(image, 2)


def test_02_new_weights_of_the_same_graph(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}, weights={"revision": "1"}) as seen:
        before = answers(stage, kit.running_pods(stage, "tiny")[0])
        stage.apply(outside(seed="4"))
        pods = restarts_itself(seen, version="2")
        found = newest(stage)
        assert (found["cause"], found["hardware"][0]["carried"]) == ("WeightsChanged", 1), "nothing was compiled"
        assert all(answers(stage, pod) != before for pod in pods)
        end(seen, "02", "new weights, same graph, `restart: Rollout`", "carried over; nothing compiled")


def test_03_new_weights_of_another_shape(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}, weights={"revision": "1"}) as seen:
        before = answers(stage, kit.running_pods(stage, "tiny")[0])
        stage.apply(outside(width="320"))
        pods = restarts_itself(seen, version="3")
        found = newest(stage)
        assert (found["cause"], found["hardware"][0].get("carried", 0)) == ("WeightsChanged", 0)
        assert all(answers(stage, pod) != before for pod in pods)
        end(seen, "03", "new weights, other shape, `restart: Rollout`", "another graph: compiled")


def test_04_a_new_bucket(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}) as seen:
        before = {p["metadata"]["uid"] for p in kit.running_pods(stage, "tiny")}
        torch = model()["spec"]["torch"]
        torch["modules"][0]["buckets"].append(
            {"name": "two", "args": [{"tensor": {"shape": [2, 64], "dtype": "float32"}}]}
        )
        seen.changed()
        stage.apply(model(torch=torch, rollout={"restart": "Rollout"}))
        revision = wait_newest(stage, cause="SpecChanged")
        assert revision["hardware"][0]["carried"] == 1, "only the new one is built"
        kit.wait_for("new pods", lambda: not before & {p["metadata"]["uid"] for p in kit.running_pods(stage, "tiny")},
                     timeout=300)  # fmt: skip
        for pod in seen.wait_all(world.image("tiny"), 2):
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
        first, second = (
            json.loads(
                world.read(
                    f"{world.tenant(kube.namespace)}/manifests/sha256/{r['manifest'].removeprefix('sha256:')}.json"
                )
            )
            for r in kube.get("compiledmodel", "tiny")["status"]["revisions"]
        )
        versions = [found["targets"][0]["fingerprint"]["torch"] for found in (first, second)]
        assert versions[0] != versions[1], "each is for its own torch"
        end(seen, "05", "torch upgraded in the image", f"{versions[1]} to {versions[0]}")


def test_06_what_is_slower_is_not_served(world: World, stage: kit.Kube) -> None:
    with two_hot_pods(world, stage, rollout={"restart": "Rollout"}) as seen:
        before = {p["metadata"]["uid"] for p in kit.running_pods(stage, "tiny")}
        seen.changed()
        stage.apply(model(keepIf={"minSpeedup": "1000"}, rollout={"restart": "Rollout"}))
        wait_newest(stage, cause="SpecChanged")
        seen.wait_reason("NothingKept")
        kit.wait_for("new pods", lambda: not before & {p["metadata"]["uid"] for p in kit.running_pods(stage, "tiny")},
                     timeout=300)  # fmt: skip
        seen.wait_all(world.image("tiny"), 2, outcome="eager")
        end(
            seen,
            "06",
            "compiled is slower than `keepIf` asks",
            "rejected: the new pods run eager, on purpose",
            cold=True,
        )


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
        kit.wait_for("the end of the roll-out", lambda: rolled_out(stage), timeout=300)
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
            seen.wait_reason("StoreUnreachable")
            assert len([p for p in pods_of(stage, "tiny", world.image("tiny")) if kit.is_ready(p)]) == 2
        seen.wait_all(image, 2)
        end(seen, "09", "S3 gone during the roll-out, and back", "tried again by itself; no pod gave up waiting")


def test_10_the_controller_is_killed_at_each_step(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r10")
    with two_hot_pods(world, stage) as seen:
        jobs = jobs_ever(stage)
        earlier = {p["metadata"]["uid"] for p in stage.list("pods", "preheat.dev/compiledmodel=tiny")}

        def killed(what: str, there: Callable[[], object]) -> None:
            kit.wait_for(what, there, timeout=300, every=0.2)
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
        with world.controller_down():
            set_image(seen, image)
            waiting = wait_gated(stage, "tiny", image)
            pods = seen.wait_all(image, 2, outcome="none")
            assert waiting["metadata"]["uid"] in {p["metadata"]["uid"] for p in pods}
            assert all("within the 20 s" in said(pod, "injected") for pod in pods)
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
        before = {p["metadata"]["uid"] for p in pods_of(stage, "tiny", first)}
        set_image(seen, image)
        wait_gated(stage, "tiny", image)
        kit.wait_for("a Job for it", lambda: not no_active_job(stage), timeout=300)
        stage.run("rollout", "undo", "deployment/tiny")
        pods = seen.wait_all(first, 2)
        assert {p["metadata"]["uid"] for p in pods} == before, "no old pod went for it"
        kit.wait_for("no Job for it", lambda: no_active_job(stage), timeout=300)
        end(seen, "13", "`rollout undo` mid-way", "its Job is stopped; the old pods never went")


def test_14_scaled_up_mid_way(world: World, stage: kit.Kube) -> None:
    first, image = world.image("tiny"), world.image("tiny", VERSION="r14")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        wait_gated(stage, "tiny", image)
        # As an autoscaler would: pods of the old image are added while those of the new one wait.
        stage.run("scale", "deployment", "tiny", "--replicas=4")
        kit.wait_for(
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


@contextlib.contextmanager
def gpus(world: World, amount: int) -> Iterator[None]:
    """The node has this many GPUs: none are there, scheduling is real."""
    world.lab.node.set_extended_resource(GPU, amount)
    try:
        yield
    finally:
        world.lab.node.set_extended_resource(GPU, 0)


def on_a_gpu(image: str, **strategy: Any) -> dict[str, Any]:
    """The Deployment with one GPU a pod."""
    thing = workload(image)
    thing["spec"]["strategy"]["rollingUpdate"] |= strategy
    resources = thing["spec"]["template"]["spec"]["containers"][0]["resources"]
    resources.setdefault("limits", {})[GPU] = "1"
    return thing


def test_16a_the_only_free_gpu_is_that_of_the_new_pod(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    with gpus(world, 3), two_hot_pods(world, kube, thing=on_a_gpu(first)) as seen:
        set_image(seen, second)
        wait_gated(kube, "tiny", second)
        seen.wait_all(second, 2)
        end(seen, "16a", "the only free GPU is the new pod's", "who waits holds nothing: the Job has it meanwhile")


def test_16b_no_gpu_is_free_and_a_pod_may_go_first(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    with gpus(world, 3) as _, two_hot_pods(
        world, kube, thing=on_a_gpu(first, maxUnavailable=1), rollout={"whenMissing": "Wait"}
    ) as seen:  # fmt: skip
        world.lab.node.set_extended_resource(GPU, 2)
        set_image(seen, second)
        wait_gated(kube, "tiny", second)
        seen.wait_all(second, 2)
        end(seen, "16b", "no free GPU, `maxUnavailable: 1`", "the Job compiles on the GPU of the pod that went")


def test_16c_no_gpu_is_free_and_none_becomes_free(world: World, kube: kit.Kube) -> None:
    first, second = world.image("tiny"), world.image("tiny", VERSION="r1")
    short = {"scheduleTimeoutSeconds": 15}
    with gpus(world, 3), two_hot_pods(world, kube, thing=on_a_gpu(first), compile=short) as seen:
        world.lab.node.set_extended_resource(GPU, 2)
        set_image(seen, second)
        waiting = wait_gated(kube, "tiny", second)
        seen.wait_reason("NoCapacity")
        kit.wait_for(
            "the pod to be let go on",
            lambda: not gated(kube.get("pod", waiting["metadata"]["name"]) or {"spec": {}}), timeout=300,
        )  # fmt: skip
        assert no_active_job(kube), "its Job does not stand in the way"
        world.lab.node.set_extended_resource(GPU, 3)
        seen.wait_all(second, 2, outcome="none")
        end(seen, "16c", "no free GPU for the Job in time", "NoCapacity lets the pod go on; it runs once a GPU is free",
            cold=True)  # fmt: skip


def test_99_uninstalled_with_pods_that_wait(world: World, stage: kit.Kube) -> None:
    image = world.image("tiny", VERSION="r12")
    with two_hot_pods(world, stage) as seen:
        set_image(seen, image)
        waiting = wait_gated(stage, "tiny", image)
        world.uninstall()
        try:
            pods = wait_ready_pods(stage, "tiny", image, 2)
            assert waiting["metadata"]["uid"] in {p["metadata"]["uid"] for p in pods}
            end(
                seen,
                "12",
                "uninstalled while pods wait",
                "they are let go on at once, and compile for themselves",
                cold=True,
            )
        finally:
            world.install()
