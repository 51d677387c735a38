"""A roll-out under the eyes of everybody: those who ask the Service, the pods, and whoever reads the CompiledModel.

Why it exists: every roll-out that is tested must answer the same four questions: did a request fail, who answered
without an artifact, how long until all was hot, what did a person see.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kit

from e2e.traffic import said, traffic
from lab.command import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.traffic import Traffic

EVERY_SECONDS = 1.0
_ARTIFACT = ("hot", "warm")


@dataclass(kw_only=True)
class Watched:
    """What was seen of one roll-out so far. `pods` are the last words of every pod there was, also of those that are gone."""

    kube: kit.Kube
    app: str
    requests: Traffic
    begun: float = field(default_factory=time.monotonic)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    hot_seconds: float | None = None

    def changed(self) -> None:
        """The change that starts the roll-out is made now."""
        self.begun = time.monotonic()

    def outcome(self, pod: str) -> str:
        """How a pod served its first answer, in the runtime's word; empty when it did not tell."""
        served = json.loads(said(self.pods.get(pod, {"metadata": {}}), "served") or "{}")
        words = [answer.partition("/")[0] for answer in served.get("answers", {})]
        return str(words[0]) if words else ""

    def wait_all(self, image: str, count: int, *, outcome: str = "hot", timeout: float = 600) -> list[dict[str, Any]]:
        """Wait until `count` pods serve, all of this image and with this outcome; the first time for hot is kept.

        "none": they were given nothing. A pod to which nothing was added does not tell, one that waited says cold.
        """
        outcomes = ("", "cold") if outcome == "none" else (outcome,)

        def probe() -> list[dict[str, Any]] | None:
            self.look()
            pods = kit.running_pods(self.kube, self.app)
            right = [
                p for p in pods
                if p["spec"]["containers"][0]["image"] == image and kit.is_ready(p)
                and self.outcome(p["metadata"]["name"]) in outcomes
            ]  # fmt: skip
            return pods if len(pods) == len(right) == count else None

        found: list[dict[str, Any]] = self.kube.wait_for(
            f"{count} pods of {self.app} that serve {outcome}", probe, timeout=timeout, every=EVERY_SECONDS,
        )  # fmt: skip
        if outcome == "hot" and self.hot_seconds is None:
            self.hot_seconds = time.monotonic() - self.begun
        return found

    def wait_reason(self, reason: str, *, timeout: float = 300) -> None:
        """Wait until a condition gives this reason."""

        def probe() -> bool:
            self.look()
            return any(reason in seen for seen in self.reasons)

        self.kube.wait_for(f"the reason {reason}", probe, timeout=timeout, every=EVERY_SECONDS)

    def look(self) -> None:
        """Remember what is there now."""
        for pod in self.kube.list("pods", f"app={self.app}"):
            self.pods[pod["metadata"]["name"]] = pod
        model = self.kube.get("compiledmodel", "tiny")
        words = [f"{kind}: {found['reason']}" for kind in ("Ready", "Degraded")
                 if (found := kit.condition(model, kind)) and found["reason"] != "AsExpected"]  # fmt: skip
        seen = ", ".join(words)
        if seen and (not self.reasons or self.reasons[-1] != seen):
            self.reasons.append(seen)


@contextlib.contextmanager
def watched(kube: kit.Kube, app: str, image: str) -> Iterator[Watched]:
    """Ask the Service the whole time, and look at pods and conditions, until the end."""
    with traffic(kube, app, image) as requests:
        result, over = Watched(kube=kube, app=app, requests=requests), threading.Event()

        def run() -> None:
            while not over.wait(EVERY_SECONDS):
                # The API server may be asked while something of it is away; the next look sees what this one did not.
                with contextlib.suppress(RuntimeError, ValueError):
                    result.look()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield result
        finally:
            over.set()
            thread.join()


def row(seen: Watched, *, what: str, note: str) -> dict[str, Any]:
    """One line of the table. `cold` counts answers of pods that had to do without what was compiled."""
    asked = seen.requests.all()
    outcomes = {pod: seen.outcome(pod) for pod in asked["pods"]}
    cold = sum(count for pod, count in asked["pods"].items() if outcomes[pod] not in _ARTIFACT)
    return {
        "what": what,
        "answered": asked["answered"],
        "failed": len(asked["failed"]),
        "slowest_ms": round(1000 * asked["slowest"]),
        "cold": cold,
        "hot_seconds": None if seen.hot_seconds is None else round(seen.hot_seconds),
        "seen": " → ".join(seen.reasons),
        "note": note,
        "on": datetime.now(UTC).date().isoformat(),
        "commit": run(["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"], timeout=30).strip(),
    }


def record(name: str, line: dict[str, Any]) -> None:
    """Keep a line, where PREHEAT_MEASURED names a folder; those of other tests stay as they are."""
    folder = os.environ.get("PREHEAT_MEASURED")
    print(json.dumps({name: line}, ensure_ascii=False))
    if not folder:
        return
    path = Path(folder) / "rollouts.json"
    lines = json.loads(path.read_text()) if path.exists() else {}
    lines[name] = line
    ordered = dict(sorted(lines.items()))
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")
    (Path(folder) / "rollouts.md").write_text(_page(ordered))


def _page(lines: dict[str, dict[str, Any]]) -> str:
    rows = "\n".join(
        f"| {name} | {line['what']} | {line['answered']} | {line['failed']} | {line['cold']} | {line['slowest_ms']} | "
        f"{'' if line['hot_seconds'] is None else line['hot_seconds']} | {line['seen']} | {line['note']} | {line['commit']}, {line['on']} |"
        for name, line in lines.items()
    )
    return _HEAD + rows + "\n"


_HEAD = """# Roll-outs

<!-- Written by tests/e2e/test_rollouts.py where PREHEAT_MEASURED names this folder. Do not edit. -->

A Deployment with two replicas behind a Service, asked ten times a second, every request a connection of its own; a new pod
before an old one goes. Each line is one roll-out on a real cluster of one node with two cores, as in [set-up.md](set-up.md).
*Cold*: answers of pods that had to do without what was compiled; such a pod is ready only after a first answer of its own, so
nobody who asks waits for a compile. *Hot after*: from the change until both pods serve with the artifact. *Seen*: the
reasons of the conditions `Ready` and `Degraded`, in order.

| | what happens | answered | failed | cold | slowest, ms | hot after, s | seen | | commit |
|---|---|---|---|---|---|---|---|---|---|
"""
