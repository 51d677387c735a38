"""How pods were served is counted, and told of one pod, on a real cluster: the runtime, its token, the server, `preheat why`."""

from __future__ import annotations

import base64
import contextlib
import json
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.world import QUICK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.world import World

pytestmark = pytest.mark.cluster

TOKEN = "/var/run/secrets/preheat.dev/reports/token"


def metrics(world: World) -> dict[str, float]:
    """Every series of every replica of the server, summed: what Prometheus sees."""
    sums: dict[str, float] = {}
    for pod in world.admin.list(
        "pods", f"app.kubernetes.io/component=server,app.kubernetes.io/instance={world.installed.release}"
    ):
        path = f"/api/v1/namespaces/{world.admin.namespace}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
        for line in world.admin.run("get", "--raw", path).splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                sums[series] = sums.get(series, 0) + float(value)
    return sums


def counted(world: World, kube: kit.Kube, name: str, **labels: str) -> float:
    """The sum of the series of this name and namespace with these labels."""
    wanted = {"namespace": kube.namespace, **labels}
    found = metrics(world).items()
    marks = [f'{key}="{value}"' for key, value in wanted.items()]
    return sum(
        value for series, value in found if series.startswith(f"{name}{{") and all(mark in series for mark in marks)
    )


def why(kube: kit.Kube, pod: str) -> dict[str, Any]:
    """`preheat why`, as a user calls it."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "preheat_operator.cli", "why", pod, "-n", kube.namespace, "--output", "json"],
        env={**os.environ, "KUBECONFIG": kube.kubeconfig}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@contextlib.contextmanager
def deployed(world: World, kube: kit.Kube, name: str, **changes: Any) -> Iterator[dict[str, Any]]:
    """A ready pod of the tiny model."""
    kube.apply(kit.deployment("tiny", world.image("tiny"), name=name, **({"label": "tiny"} | changes)))
    try:
        yield kit.wait_ready_pod(kube, name, timeout=300)
    finally:
        kube.run("delete", "deployment", name)


def rows(count: int) -> bytes:
    return struct.pack(f"<{64 * count}f", *([0.5] * 64 * count))


def test_a_hot_pod_is_counted_and_explained(world: World, ready: kit.Kube) -> None:
    hot = {"model": "tiny", "outcome": "hot", "reason": "Package"}
    before = counted(world, ready, "preheat_first_answers_total", **hot)
    with deployed(world, ready, "counted", env=QUICK) as pod:
        name = pod["metadata"]["name"]
        ready.wait_for(
            "the report",
            lambda: counted(world, ready, "preheat_first_answers_total", **hot) == before + 1,
            timeout=300,
        )
        assert counted(world, ready, "preheat_first_answer_seconds_count", model="tiny", outcome="hot") >= 1
        assert counted(world, ready, "preheat_artifact_bytes", model="tiny", outcome="hot") > 1000

        said = why(ready, name)
        assert (said["outcome"], said["cause"]) == ("hot", "Package")
        assert said["remedy"].startswith("Nothing")
        assert said["manifest"] == pod["metadata"]["annotations"]["preheat.dev/manifest"]
        # All this under the container runtime's own filter of system calls: 2 is a filter.
        assert ready.run("exec", name, "--", "grep", "^Seccomp:", "/proc/1/status").split() == ["Seccomp:", "2"]

        # Three calls of a shape that no bucket is for: told once in the log, counted by shape.
        with kit.forwarded(ready, name) as url:
            for _ in range(3):
                kit.post(f"{url}/run", rows(2))
        shape = {"model": "tiny", "shape": "float32[2,64]"}
        ready.wait_for(
            "the count",
            lambda: counted(world, ready, "preheat_uncovered_calls_total", **shape) >= 1,
            timeout=300,
        )
        later = next(note for note in why(ready, name)["notes"] if "a later call" in note)
        assert "(2, 64)" in later
        assert "bucket" in later


@contextlib.contextmanager
def restricted(kube: kit.Kube) -> Iterator[None]:
    """The namespace takes only pods that meet the strictest Pod Security Standard."""
    level = "pod-security.kubernetes.io/enforce"
    kube.run("label", "namespace", kube.namespace, f"{level}=restricted")
    try:
        yield
    finally:
        kube.run("label", "namespace", kube.namespace, f"{level}-")


def test_the_pod_holds_a_token_for_reports_alone(world: World, ready: kit.Kube) -> None:
    with restricted(ready), deployed(world, ready, "token") as pod:
        name = pod["metadata"]["name"]
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert [mount["name"] for mount in mounts if "preheat" in mount["mountPath"]] == [
            "preheat",
            "preheat-work",
            "preheat-reports",
        ]
        token = ready.run("exec", name, "--", "cat", TOKEN).strip()
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        assert claims["aud"] == ["preheat.dev/reports"]
        assert claims["kubernetes.io"]["pod"]["uid"] == pod["metadata"]["uid"]
        assert claims["exp"] - claims["iat"] <= 3607
        # As a pod that stole another one: the API server's own audience is refused, and so is a forged report's shape.
        stolen = ready.run("create", "token", "default").strip()
        refused = metrics(world).get('preheat_reports_refused_total{why="token"}', 0)
        assert posted(ready, name, stolen) == "401"
        assert posted(ready, name, token) == "204"
        assert metrics(world)['preheat_reports_refused_total{why="token"}'] == refused + 1


def posted(kube: kit.Kube, pod: str, token: str) -> str:
    """The status with which the server answers a report from within a pod, sent by the runtime's own code."""
    code = (
        "import os, sys; sys.path.insert(0, '/opt/preheat/site'); from preheat_runtime.sending import post; "
        'print(post(os.environ[\'PREHEAT_REPORTS_URL\'], b\'{"v":1,"model":"tiny"}\', token=sys.argv[1], '
        "ca=os.environ['PREHEAT_REPORTS_CA']))"
    )
    return kube.run("exec", pod, "--", "python3", "-c", code, token).strip()


@contextlib.contextmanager
def server_down(world: World) -> Iterator[None]:
    """Take every replica of the server away."""
    name = world.installed.server
    world.admin.run("scale", "deployment", name, "--replicas=0")
    world.admin.wait_for(
        "the server to go",
        lambda: not world.admin.list("pods", "app.kubernetes.io/component=server"),
        timeout=300,
    )
    try:
        yield
    finally:
        world.admin.run("scale", "deployment", name, "--replicas=2")
        world.admin.run("rollout", "status", f"deployment/{name}", "--timeout=120s", timeout=300)


def test_with_the_server_down_pods_start_and_answer_as_before(world: World, ready: kit.Kube) -> None:
    with server_down(world), deployed(world, ready, "unheard") as pod:
        result = kit.measure(ready, "tiny", pod, calls=5)
        assert (result.outcome, result.injected) == ("hot", "yes")
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        assert why(ready, result.pod)["outcome"] == "hot"


def test_why_of_pods_that_are_not_hot(world: World, ready: kit.Kube) -> None:
    # One that Preheat was not asked about, one that asks for what nobody declared, one whose torch loads no entry points.
    pods: dict[str, dict[str, Any]] = {
        "unlabelled": {"label": "", "env": {"COMPILE": "0"}},
        "stranger": {"label": "no-such-model", "env": {"COMPILE": "0"}},
        "unloaded": {"label": "tiny", "env": {"COMPILE": "0", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}},
    }
    ready.apply(*(kit.deployment("tiny", world.image("tiny"), name=name, **changes) for name, changes in pods.items()))
    try:
        said = {name: why(ready, kit.wait_ready_pod(ready, name, timeout=300)["metadata"]["name"]) for name in pods}
    finally:
        ready.run("delete", "deployment", *pods)
    assert {name: (each["outcome"], each["cause"]) for name, each in said.items()} == {
        "unlabelled": ("cold", "NotLabelled"),
        "stranger": ("cold", "NoModel"),
        "unloaded": ("unknown", "AutoloadOff"),
    }


def test_why_of_a_pod_that_got_nothing(world: World, ready: kit.Kube) -> None:
    nothing = {"model": "tiny", "outcome": "eager", "reason": "StoreDenied"}
    before = counted(world, ready, "preheat_first_answers_total", **nothing)
    with world.without_secret(ready, "preheat-fetch"), deployed(world, ready, "keyless", env=QUICK) as pod:
        said = why(ready, pod["metadata"]["name"])
        assert (said["outcome"], said["cause"]) == ("eager", "StoreDenied")
        assert "preheat-fetch" in said["remedy"]
        assert any(note.startswith("fetch: Failed, Store") for note in said["notes"])
        ready.wait_for(
            "the report",
            lambda: counted(world, ready, "preheat_first_answers_total", **nothing) == before + 1,
            timeout=300,
        )
