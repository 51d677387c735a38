"""A model made ready the hard way: a forged Job waits at its Job's name, then the controller is killed and away.

Why it is no test by itself: a compile takes minutes, and all tests that need a ready model share this one. What was seen
on the way is kept, for the tests to judge.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kit

from e2e.world import jobs_ever, wait_degraded

if TYPE_CHECKING:
    from e2e.world import World


FORGED_DIGEST = "sha256:" + hashlib.sha256(b"forged").hexdigest()


@dataclass(frozen=True, kw_only=True)
class Hardships:
    """What was seen on the way.

    `forgery` is the name that the first Job had and the forged one has, `conflict` the condition about it, `meanwhile` a
    labelled pod of that time. `before` and `after` are the Job that compiles, as it was made and now that the model is
    ready; `others` counts the Jobs that ran in between besides it.
    """

    kube: kit.Kube
    forgery: str
    conflict: dict[str, Any]
    meanwhile: dict[str, Any]
    states_while_down: tuple[str, ...]
    before: dict[str, Any]
    after: dict[str, Any] | None
    others: int


def controllers(world: World) -> list[str]:
    """The uids of the controller's pods."""
    return [p["metadata"]["uid"] for p in world.admin.list("pods", world.installed.controller_selector)]


def the_job(kube: kit.Kube, *, beside: str = "") -> dict[str, Any] | None:
    """The only Job there may be, `beside` one of that name; None when there is none yet."""
    found = [job for job in kube.list("jobs") if job["metadata"]["name"] != beside]
    assert len(found) <= 1, "one Job for a target"
    return found[0] if found else None


def finished(kube: kit.Kube, *, beside: str = "") -> bool:
    """Whether the Job is complete."""
    job = the_job(kube, beside=beside)
    return bool(job) and kit.condition(job, "Complete").get("status") == "True"


def forged_job(kube: kit.Kube, real: dict[str, Any], digest: str, image: str) -> dict[str, Any]:
    """A Job with the name and labels of a real one, whose pod reports a digest of the forger's choice."""
    message = json.dumps({"v": 1, "digest": digest, "pythonPath": None, "targets": ["main|one|Kept|Faster|9|0.1|1"]})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": real["metadata"]["name"],
            "labels": {k: v for k, v in real["metadata"]["labels"].items() if k.startswith("preheat.dev/")},
            "annotations": {
                k: v for k, v in (real["metadata"].get("annotations") or {}).items() if k.startswith("preheat.dev/")
            },
        },
        "spec": {
            "backoffLimit": 0,
            "template": {
                "metadata": {
                    "labels": {k: v for k, v in real["metadata"]["labels"].items() if k.startswith("preheat.dev/")}
                },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "publish",
                            "image": image,
                            "command": ["sh", "-c", f"printf '%s' '{message}' > /dev/termination-log"],
                        }
                    ],
                },
            },
        },
    }


def start(world: World, kube: kit.Kube) -> str:
    """Declare the model tiny, kept whatever its speed; answers its image."""
    image = world.image("tiny")
    kube.apply(kit.deployment("tiny", image, label="tiny", replicas=0))
    kube.apply(kit.compiled_model("tiny", keepIf={"minSpeedup": "0"}))
    return image


def make_ready(world: World, kube: kit.Kube) -> Hardships:
    """Make the model tiny ready in a fresh namespace."""
    image = start(world, kube)
    # What Preheat calls its Job is learned from a first one, which then makes room for the forgery.
    name = kube.wait_for("the Job", lambda: the_job(kube), timeout=300)["metadata"]["name"]
    forge(world, kube, name, image)
    conflict = wait_degraded(kube, "JobConflict", timeout=300)
    before = kube.wait_for("the Job that compiles", lambda: the_job(kube, beside=name), timeout=300, every=0.05)
    ran = jobs_ever(kube)
    killed = controllers(world)[0]
    world.kill_controller()
    kube.apply(kit.deployment("tiny", image, name="meanwhile", label="tiny", env={"COMPILE": "0"}))
    kube.wait_for("the killed one to go", lambda: killed not in controllers(world), timeout=300)
    world.wait_controller()
    kube.wait_for(
        "the one that follows to adopt the Job",
        lambda: kit.condition(kube.get("compiledmodel", "tiny"), "Progressing").get("reason") == "Compiling",
        timeout=300,
    )
    meanwhile = kit.wait_ready_pod(kube, "meanwhile")
    kube.run("delete", "deployment", "meanwhile")
    with world.controller_down():
        kube.wait_for("the Job's end", lambda: finished(kube, beside=name), timeout=900, every=2)
        model = kube.get("compiledmodel", "tiny")
        assert model is not None
        states = tuple(str(r["state"]) for r in model["status"]["revisions"])
    kit.wait_ready_model(kube, "tiny", image=image)
    return Hardships(
        kube=kube, forgery=name, conflict=conflict, meanwhile=meanwhile, states_while_down=states, before=before,
        after=the_job(kube, beside=name), others=len(jobs_ever(kube) - ran - {before["metadata"]["uid"]}),
    )  # fmt: skip


def forge(world: World, kube: kit.Kube, name: str, image: str) -> None:
    """Replace the Job of this name by a forged one that has succeeded, while no controller is there."""
    real = kube.get("job", name)
    assert real is not None
    with world.controller_down():
        kube.run("delete", "job", name, "--cascade=foreground", "--wait=false")
        kube.wait_for("the Job to go", lambda: _let_go(kube), timeout=300, every=1)
        kube.apply(forged_job(kube, real, FORGED_DIGEST, image))
        kube.wait_for(
            "the forged Job's end",
            lambda: kube.list("jobs")[0].get("status", {}).get("succeeded"),
            timeout=300,
        )


def _let_go(kube: kit.Kube) -> bool:
    """Whether no Job is left; of its pods, also one that comes late, nobody is there who reads the result."""
    for pod in kube.list("pods"):
        kube.run(
            "patch",
            "pod",
            pod["metadata"]["name"],
            "--type=merge",
            "-p",
            '{"metadata":{"finalizers":null}}',
            check=False,
        )
    return not kube.list("jobs")
