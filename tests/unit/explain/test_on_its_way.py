"""A pod that is not far enough to have answered: without a node, fetching, not started, held back until something is ready."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.explain import remedies
from preheat_operator.explain.decide import Explanation, explain
from preheat_operator.explain.gathered import Gathered
from unit.explain.pod_and_model import IMAGE, TORCH, cold, log, model, pod, why


def test_without_a_node() -> None:
    waiting = pod(node="")
    waiting["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes fit"}]}
    said = why(waiting)
    assert (said.outcome, said.cause) == ("waiting", "Unscheduled")
    assert "0/3 nodes fit" in said.why


@pytest.mark.parametrize("state", [{"waiting": {"reason": "ImagePullBackOff", "message": "denied"}}, {"running": {}}])
def test_fetching(state: dict[str, Any]) -> None:
    said = why(pod(fetch=state, server={"waiting": {"reason": "PodInitializing"}}))
    assert (said.outcome, said.cause) == ("waiting", "Fetching")
    assert "running" in state or "ImagePullBackOff: denied" in said.why


def test_the_server_does_not_start() -> None:
    said = why(pod(server={"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}))
    assert (said.outcome, said.cause) == ("waiting", "NotStarted")
    assert "CrashLoopBackOff" in said.why


def test_a_crash_after_the_answer_hides_nothing() -> None:
    crashed = pod(server={"waiting": {"reason": "CrashLoopBackOff"}})
    assert why(crashed, serving_log=log(cold(TORCH))).cause == "TorchDiffers"


HELD = {"preheat.dev/manifest": "pending", "preheat.dev/wait-seconds": "90"}


def explained(document: dict[str, Any], of: dict[str, Any] | None = None) -> Explanation:
    return explain(Gathered(pod=document, model=of or model(ready="False", reason="Compiling", message="m")))


def test_a_pod_that_is_held_back_waits_and_is_not_cold() -> None:
    document = pod(annotations=HELD | {"preheat.dev/injected": f"no: it waits for image {IMAGE}"}, node="")
    document["spec"]["schedulingGates"] = [{"name": "preheat.dev/artifact"}]
    found = explained(document)
    assert (found.outcome, found.cause, found.remedy) == ("waiting", "Gated", remedies.GATED)
    assert IMAGE in found.why
    assert any("Compiling" in note for note in found.notes)


def test_a_pod_that_must_not_start_without_waits() -> None:
    document = pod(
        annotations=HELD | {"preheat.dev/injected": "no: nothing is ready for image x, and whenMissing is Fail"}
    )
    found = explained(document)
    assert (found.outcome, found.cause, found.remedy) == ("waiting", "MustBeReady", remedies.MUST_BE_READY)


def test_a_pod_whose_wait_ended_in_nothing_is_cold_and_says_why() -> None:
    said = {
        "preheat.dev/manifest": "none",
        "preheat.dev/injected": "no: nothing was ready within the 90 s that it waited",
    }
    found = explained(pod(annotations=HELD | said))
    assert (found.outcome, found.cause, found.remedy) == ("cold", "WaitEnded", remedies.WAIT_ENDED)
    assert "within the 90 s" in found.why
