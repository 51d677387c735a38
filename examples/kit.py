"""Deploy an example, ask it, and read how it was served: what the demo and the end-to-end tests share.

Every change goes through `kubectl`, so that each step can be repeated by hand; what is only read goes a shorter way.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import re
import statistics
import struct
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import reader
import state
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).resolve().parent
# The tests bring an example of their own.
FOLDERS = (HERE, HERE.parent / "tests" / "e2e")


class NotInTimeError(Exception):
    """Something did not happen in time; the message says what was seen last."""


@dataclass(frozen=True, kw_only=True)
class Kube:
    """One cluster and namespace: `kubectl`, and reading."""

    kubeconfig: str
    namespace: str

    def run(self, *args: str, stdin: str | None = None, timeout: float = 60, check: bool = True) -> str:
        """Run `kubectl` and return what it printed; raises RuntimeError with its error output."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", self.kubeconfig, "--namespace", self.namespace, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        """Read one object; None where there is none."""
        return reader.read(self.kubeconfig, self.namespace, kind, name=name)

    def list(self, kind: str, selector: str = "") -> list[dict[str, Any]]:
        """Read all objects of a kind, oldest first."""
        found = reader.read(self.kubeconfig, self.namespace, kind, selector=selector) or {}
        return sorted(found.get("items") or [], key=lambda each: each["metadata"]["creationTimestamp"])

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects, server-side."""
        text = yaml.safe_dump_all(objects)
        self.run("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)

    def wait_for(self, what: str, probe: Callable[[], Any], *, timeout: float, every: float = 0.5) -> Any:
        """Call `probe` until it answers something true; raises NotInTimeError after `timeout` seconds.

        The error says what there was in the namespace.
        """
        end = time.monotonic() + timeout
        while True:
            answer = probe()
            if answer:
                return answer
            if time.monotonic() > end:
                raise NotInTimeError(f"{what}: not within {timeout:.0f} s (last seen: {answer!r})\n{state.of(self)}")
            time.sleep(every)


# --- the examples' objects ---


def _read(example: str, file: str) -> dict[str, Any]:
    path = next(folder / example / file for folder in FOLDERS if (folder / example / file).exists())
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def compiled_model(example: str, **changes: Any) -> dict[str, Any]:
    """Return the example's CompiledModel; `changes` replace fields of its spec."""
    model = _read(example, "compiledmodel.yaml")
    model["spec"].update(changes)
    return model


def deployment(
    example: str, image: str, *, name: str = "", label: str = "", env: dict[str, str] | None = None, replicas: int = 1
) -> dict[str, Any]:
    """Return the example's Deployment with another image, name, model label ("" for none) or environment."""
    found = _read(example, "deployment.yaml")
    name = name or found["metadata"]["name"]
    found["metadata"]["name"] = name
    found["spec"]["replicas"] = replicas
    found["spec"]["selector"]["matchLabels"] = {"app": name}
    labels = {"app": name}
    if label:
        labels["preheat.dev/model"] = label
    found["spec"]["template"]["metadata"]["labels"] = labels
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["image"] = image
    if env:
        container["env"] = [{"name": key, "value": value} for key, value in env.items()]
    return found


# --- waiting ---


def condition(thing: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    """Return one condition of an object, empty where there is none."""
    found = ((thing or {}).get("status") or {}).get("conditions") or []
    return next((c for c in found if c["type"] == kind), {})


def wait_ready_model(
    kube: Kube, name: str, *, timeout: float = 900, image: str = "", tell: Callable[[str], None] | None = None
) -> dict[str, Any]:
    """Wait until the CompiledModel has a ready revision (for `image`, if given) and return it; tell what goes on."""
    said: set[str] = set()

    def say(line: str) -> None:
        if tell and line and line not in said:
            said.add(line)
            tell(line)

    def probe() -> dict[str, Any] | None:
        model = kube.get("compiledmodel", name)
        if model is None:
            return None
        progress = condition(model, "Progressing")
        if progress:
            say(f"{progress['reason']}: {progress['message']}")
        if tell and progress.get("status") == "True":
            say(compile_log_line(kube, name))
        observed = (model.get("status") or {}).get("observedGeneration") == model["metadata"]["generation"]
        revisions = (model.get("status") or {}).get("revisions") or []
        newest = next((r for r in revisions if image in ("", r["image"])), None)
        if observed and newest and newest["state"] == "Ready":
            return model
        if observed and condition(model, "Ready").get("reason") == "AllTargetsFailed":
            raise RuntimeError(f"{name}: {json.dumps(model['status'], indent=1)}")
        return None

    return kube.wait_for(f"a ready revision of {name}", probe, timeout=timeout, every=2)


def compile_log_line(kube: Kube, name: str) -> str:
    """Return what the model's compile pod said last, without its time; "" while it says nothing."""
    selector = f"preheat.dev/compiledmodel={name}"
    log = kube.run("logs", "-l", selector, "-c", "compile", "--tail=20", check=False)
    lines = [line.partition(" preheat: ")[2] for line in log.splitlines() if " preheat: " in line]
    return lines[-1] if lines else ""


def running_pods(kube: Kube, app: str) -> list[dict[str, Any]]:
    """Return the pods of an app that are not being deleted and have not ended.

    One that the kubelet turned away (its node's GPUs, say, were there for the scheduler first) is replaced, and stays as Failed.
    """
    return [
        p for p in kube.list("pods", f"app={app}")
        if "deletionTimestamp" not in p["metadata"] and p.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]  # fmt: skip


def is_ready(pod: dict[str, Any]) -> bool:
    """Say whether the pod serves."""
    return condition(pod, "Ready").get("status") == "True"


def wait_ready_pod(kube: Kube, app: str, *, timeout: float = 600, image: str = "") -> dict[str, Any]:
    """Wait until exactly one pod of `app` is there and ready (running `image`, if given), and return it."""

    def probe() -> dict[str, Any] | None:
        pods = running_pods(kube, app)
        if len(pods) == 1 and is_ready(pods[0]) and image in ("", pods[0]["spec"]["containers"][0]["image"]):
            return pods[0]
        return None

    return kube.wait_for(f"a ready pod of {app}", probe, timeout=timeout)


def scale(kube: Kube, app: str, replicas: int, *, wait: bool = True) -> None:
    """Scale a Deployment, and for 0 wait until its pods are gone, unless told not to."""
    kube.run("scale", "deployment", app, f"--replicas={replicas}")
    if replicas == 0 and wait:
        kube.wait_for(f"no pods of {app}", lambda: not kube.list("pods", f"app={app}"), timeout=120)


# --- asking ---


@contextlib.contextmanager
def forwarded(kube: Kube, pod: str) -> Iterator[str]:
    """Give a loopback URL for port 8080 of a pod."""
    process = subprocess.Popen(
        ["kubectl", "--kubeconfig", kube.kubeconfig, "-n", kube.namespace, "port-forward", f"pod/{pod}", ":8080"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        match = re.search(r"127\.0\.0\.1:(\d+)", line)
        if not match:
            raise RuntimeError(f"port-forward to {pod}: {line.strip()}")
        yield f"http://127.0.0.1:{match.group(1)}"
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout:
            process.stdout.close()


def image_bytes(seed: int) -> bytes:
    """Return a 3x224x224 float32 image of noise, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311
    n = 3 * 224 * 224
    return struct.pack(f"<{n}f", *(rng.gauss(0, 1) for _ in range(n)))


def tone_bytes(hertz: float) -> bytes:
    """Return one frame of a sine, 1024 float32 samples at 16 kHz."""
    return struct.pack("<1024f", *(math.sin(2 * math.pi * hertz * i / 16_000) for i in range(1024)))


ROUTES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "vision": ("/classify", lambda: image_bytes(1)),
    "pitch": ("/pitch", lambda: tone_bytes(440)),
    "tiny": ("/run", lambda: struct.pack("<64f", *(i / 64 for i in range(64)))),
}


#: So long a pod is asked, and so often in any case; the first three answers do not count.
ASKED_SECONDS, FEWEST_CALLS = 3.0, 13


def post(url: str, body: bytes) -> dict[str, Any]:
    """POST and parse the answer."""
    with urllib.request.urlopen(urllib.request.Request(url, data=body), timeout=60) as reply:  # noqa: S310
        answer: dict[str, Any] = json.load(reply)
    return answer


def log_events(kube: Kube, pod: str) -> list[dict[str, Any]]:
    """Return the JSON lines that the pod's server container logged."""
    events = []
    for line in kube.run("logs", pod, "-c", "server").splitlines():
        with contextlib.suppress(ValueError):
            event = json.loads(line[line.index("{") :])
            if isinstance(event, dict):
                events.append(event)
    return events


@dataclass(frozen=True, kw_only=True)
class Served:
    """How one pod served."""

    pod: str
    """Its name."""
    first_answer_seconds: float
    """From before the first call of the model to its answer."""
    since_start_seconds: float
    """From the start of the script, `import torch` included, to its first answer."""
    p50_ms: float
    """Median of the later calls."""
    answer: dict[str, Any]
    """What it answers to the example's usual request."""
    outcome: str
    """hot, warm, cold or eager as Preheat's runtime says; "" for a pod without Preheat."""
    reason: str
    """Why, in the runtime's words."""
    injected: str
    """The pod's annotation preheat.dev/injected."""


def _answers(url: str, body: bytes, *, calls: int) -> list[dict[str, Any]]:
    """Ask `calls` times, of a slow one less often: its median is told as well by what it answers in a few seconds."""
    enough = time.monotonic() + ASKED_SECONDS
    answers = [post(url, body) for _ in range(min(calls, FEWEST_CALLS))]
    while len(answers) < calls and time.monotonic() < enough:
        answers.append(post(url, body))
    return answers


def measure(kube: Kube, example: str, pod: dict[str, Any], *, calls: int = 40) -> Served:
    """Ask a ready pod up to `calls` times and read what it logged."""
    name = pod["metadata"]["name"]
    path, make_body = ROUTES[example]
    body = make_body()
    with forwarded(kube, name) as url:
        answers = _answers(url + path, body, calls=calls)
    events = log_events(kube, name)
    first = next(e for e in events if e.get("event") == "ready")
    said = [e for e in events if "outcome" in e]
    return Served(
        pod=name,
        first_answer_seconds=first["first_answer_seconds"],
        since_start_seconds=first["since_start_seconds"],
        p50_ms=1000 * statistics.median(a["seconds"] for a in answers[3:]),
        answer=answers[-1],
        outcome=said[-1]["outcome"] if said else "",
        reason=said[-1].get("reason", "") if said else "",
        injected=(pod["metadata"].get("annotations") or {}).get("preheat.dev/injected", ""),
    )


def start_one(
    kube: Kube,
    example: str,
    image: str,
    *,
    label: str,
    env: dict[str, str] | None = None,
    name: str = "",
    calls: int = 40,
) -> Served:
    """Start one pod of the example's Deployment from nothing and measure it; it is left running.

    With another environment it is to be a Deployment of another `name`: in the model's own it would be a reason to compile.
    """
    name = name or example
    kube.apply(deployment(example, image, name=name, label=label, env=env, replicas=0))
    scale(kube, name, 0)
    scale(kube, name, 1)
    return measure(kube, example, wait_ready_pod(kube, name, image=image), calls=calls)


def from_environment(namespace: str) -> Kube:
    """Return `kubectl` for the cluster that KUBECONFIG names."""
    return Kube(kubeconfig=os.environ["KUBECONFIG"], namespace=namespace)
