"""What every roll-out that is watched begins with and ends with: two hot pods of the first image, and the line about it."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any

import kit

from e2e.traffic import rolling, wait_ready_pods
from e2e.watched import Watched, record, row, watched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from e2e.world import World

KEEP = {"minSpeedup": "0"}
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

    revision: dict[str, Any] = kube.wait_for(f"a revision with {wanted}", probe, timeout=900, every=1)
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


def uids(pods: Iterable[dict[str, Any]]) -> set[str]:
    """Which pods these are."""
    return {pod["metadata"]["uid"] for pod in pods}


def restarts_itself(
    seen: Watched, *, change: dict[str, Any], outcome: str = "hot", **fields: str
) -> list[dict[str, Any]]:
    """Change the model, wait until its newest revision says so and the workload was restarted for it; the new pods."""
    kube, pods = seen.kube, kit.running_pods(seen.kube, "tiny")
    before, image = uids(pods), pods[0]["spec"]["containers"][0]["image"]
    seen.changed()
    kube.apply(model(rollout={"restart": "Rollout"}, **change))
    wait_newest(kube, **fields)
    kube.wait_for("new pods", lambda: not before & uids(kit.running_pods(kube, "tiny")), timeout=300)
    return seen.wait_all(image, 2, outcome=outcome)
