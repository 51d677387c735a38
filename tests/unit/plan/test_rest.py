"""Whatever happens to Jobs, images and specs, plans come to rest: no Job is made twice, and the work ends."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.api.served import Served
from unit.plan.pods import HOT, WRONG, pod
from unit.plan.simulation import FAILED, KEPT, Simulation, complaint, deployment, digest, spec

MESSAGES = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        [KEPT, FAILED, complaint("StoreUnreachable"), complaint("StoreDenied"), complaint("TorchMissing"),
         json.dumps({"v": 1, "running": "main/one", "done": []}), json.dumps({"v": 1, "running": "main/two"}),
         json.dumps({"v": 1, "digest": digest("a"), "pythonPath": None, "targets": [KEPT]}),
         json.dumps({"v": 1, "digest": digest("b"), "pythonPath": "/a b", "targets": []}),
         json.dumps({"v": 1, "digest": 7, "targets": {}}), "[" * 4000]
    ),
)  # fmt: skip
ENDS = st.dictionaries(
    st.sampled_from(["toolkit", "fetch-weights", "compile", "publish"]),
    st.tuples(st.sampled_from([0, 1, 64, 65, 66, 70, 127, 128, 137, 139]),
              st.sampled_from(["Completed", "Error", "OOMKilled", "StartError"]), MESSAGES),
    max_size=3,
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("end"), st.integers(0, 7), st.booleans(), ENDS,
              st.sampled_from(["", "PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"]), st.booleans()),
    st.tuples(st.just("image"), st.integers(0, 2)),
    st.tuples(st.just("spec"), st.sampled_from(["1", "2"]), st.sampled_from(["Enabled", "Disabled"])),
    st.tuples(st.just("wait"), st.integers(0, 4000)),
    st.tuples(st.just("vanish"), st.integers(0, 7)),
    st.tuples(st.just("workload"), st.booleans()),
    st.tuples(st.just("pods"), st.sampled_from([digest("a"), digest("b")]), st.integers(0, 4), st.integers(0, 9)),
    st.tuples(st.just("args"), st.sampled_from(["", "x", "y"])),
    st.tuples(st.just("weights"), st.sampled_from([None, {"revision": "6"}, {"revision": "7"}, {"s3": {"bucket": "abc"}}])),
    st.tuples(st.just("runs"), st.integers(0, 2), st.sampled_from("123")),
    st.tuples(st.just("no pods")),
    st.tuples(st.just("rebuild"), st.sampled_from(["", "1", "2"])),
    st.tuples(st.just("pin"), st.integers(0, 5)),
    st.tuples(st.just("other torch"), st.integers(0, 5), st.integers(0, 3), st.sampled_from(["2.16.0", "2.17.0"])),
)  # fmt: skip


@given(st.lists(STEPS, max_size=14))
def test_whatever_happens_plans_come_to_rest_and_never_make_a_job_twice(steps: list[tuple[Any, ...]]) -> None:
    world = Simulation(body=spec(hardware=("cpu", "gpu"), buckets=("one", "two")))
    world.settle()
    for step in steps:
        if step[0] == "end" and world.open_jobs():
            _, which, ok, ends, reason, pods = step
            jobs = world.open_jobs()
            world.end(jobs[which % len(jobs)], ok=ok, ends=ends, reason="" if ok else reason, pods=pods)
        elif step[0] == "image":
            world.workload = deployment(f"registry/vision:{step[1]}")
        elif step[0] == "spec":
            world.generation += 1
            world.body = spec(
                hardware=("cpu", "gpu"), buckets=("one", "two"), keepIf={"minSpeedup": step[1]}, suspend=step[2]
            )
        elif step[0] == "wait":
            world.wait(step[1])
        elif step[0] == "vanish" and world.jobs:
            world.jobs.pop(sorted(world.jobs)[step[1] % len(world.jobs)])
        elif step[0] == "workload":
            world.workload = None if step[1] else deployment("registry/vision:1")
        elif step[0] == "pods":
            _, manifest, wrong, well = step
            world.served = [pod(f"w{n}", served=WRONG, manifest=manifest) for n in range(wrong)]
            world.served += [pod(f"h{n}", served=HOT, manifest=manifest) for n in range(well)]
        elif step[0] == "args" and world.workload is not None:
            world.workload["spec"]["template"]["spec"]["containers"][0]["args"] = [step[1]]
        elif step[0] == "weights":
            world.body = {**world.body, "weights": step[1]}
        elif step[0] == "runs":
            world.serve(f"p{len(world.serving_pods)}", f"registry/vision:{step[1]}", f"r/v@sha256:{step[2] * 64}")
        elif step[0] == "no pods":
            world.serving_pods.clear()
        elif step[0] == "rebuild":
            world.annotations["preheat.dev/rebuild"] = step[1]
        elif step[0] == "pin":
            names = [r["name"] for r in world.status["revisions"]]
            world.annotations["preheat.dev/pin"] = names[step[1]] if step[1] < len(names) else ""
        elif step[0] == "other torch":
            _, which, count, torch = step
            manifests = [r.get("manifest", "none") for r in world.status["revisions"]]
            cold = Served(answers={"cold/TorchDiffers": 1}, node={"torch": torch})
            given = manifests[which % len(manifests)] if manifests else "none"
            world.served = [pod(f"t{n}", served=cold, manifest=given) for n in range(count)]
        taken = {r["name"] for r in world.status["revisions"] if r["state"] == "TakenBack"}
        world.settle()
        # What was left has no Job any more, and nothing is at work but the wanted revision and a look at its weights.
        wanted = {r["name"] for r in world.status["revisions"][:1]} | {"vision-weights"}
        if world.workload is not None:
            assert {j["metadata"]["labels"]["preheat.dev/revision"] for j in world.open_jobs()} <= wanted
        for revision in world.status["revisions"]:
            if revision["state"] == "Ready":
                assert revision["manifest"].startswith("sha256:")
                assert revision["name"] not in taken, "what was taken back never comes back"
    # Left alone, and with every Job ending, it is done after a bounded number of attempts.
    world.workload = world.workload or deployment("registry/vision:1")
    world.body = spec(hardware=("cpu", "gpu"), buckets=("one", "two"))
    world.serving_pods.clear()
    for _ in range(40):
        world.wait(4000)
        world.settle()
        if not world.open_jobs():
            break
        for job in world.open_jobs():
            world.end(job, ok=False, ends={"publish": (1, "Error", complaint("StoreUnreachable"))})
    world.wait(4000)
    world.settle()
    assert world.open_jobs() == []
    assert world.condition("Progressing")[0] == "False"
