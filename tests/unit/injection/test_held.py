"""Pods that wait for an artifact, or fail without one: how the pure reference holds them back."""

from __future__ import annotations

import pytest

from injection_pods import DIGEST, PODS
from preheat_operator.injection.settings import InjectionSettings
from unit.injection.injecting import annotations, env, injected

GATE = {"name": "preheat.dev/artifact"}
HELD = {
    "waits": ("90", "/opt/preheat/site:/app", "/app"),
    "waits, with a PYTHONPATH of its own": ("90", "/opt/preheat/site:/own", None),
    "waits, for the PYTHONPATH of an image with a dollar": ("90", "/opt/preheat/site:/$$(X)/lib", "/$$(X)/lib"),
    "waits, nothing is known but it sets its own": ("480", "/opt/preheat/site:/own", None),
    "waits, among the gates of others": ("90", "/opt/preheat/site:/app", "/app"),
    "waits, asked in a word that is none": ("90", "/opt/preheat/site:/app", "/app"),
    "waits automatically": ("480", "/opt/preheat/site", "-"),
}


@pytest.mark.parametrize("name", HELD)
def test_a_pod_that_waits_is_injected_for_what_is_to_come_and_held_back(name: str) -> None:
    seconds, path, assumed = HELD[name]
    after = injected(name)
    assert after["spec"]["schedulingGates"].count(GATE) == 1
    said = annotations(after)
    assert said["preheat.dev/manifest"] == "pending"
    assert said["preheat.dev/wait-seconds"] == seconds
    assert said["preheat.dev/injected"] == (
        f"no: it waits for what is being compiled for image registry.example:5000/vision:2, at most {seconds} s"
    )
    fetch = env(after["spec"]["initContainers"][0])
    assert fetch.get("PREHEAT_ASSUMED_PYTHONPATH") == assumed
    assert "PREHEAT_WHEN_MISSING" not in fetch
    assert env(after["spec"]["containers"][0])["PYTHONPATH"] == path


@pytest.mark.parametrize(
    "name", ["waits, and nothing is known of its PYTHONPATH", "asked to wait, by a model that starts cold"]
)
def test_where_pythonpath_cannot_be_guessed_the_pod_is_held_back_as_it_is(name: str) -> None:
    before, after = PODS[name]("prod"), injected(name)
    assert after["spec"] == before["spec"] | {"schedulingGates": [GATE]}
    assert annotations(after)["preheat.dev/manifest"] == "pending"
    assert annotations(after)["preheat.dev/wait-seconds"] == "480"


@pytest.mark.parametrize(
    "name",
    [
        "waits, its image is ready", "waits no more, nothing will come for its image", "waits, but cannot be injected",
        "waits, but asked to start cold", "waits, but asked to fail", "automatically, of another Deployment",
        "automatically, of a Deployment with the beginning of its name", "automatically, of a StatefulSet",
        "automatically, of nobody", "automatically, but the model follows no Deployment",
        "asked to wait, while injection is paused", "fails", "fails, its image is ready",
    ],
)  # fmt: skip
def test_no_other_pod_is_held_back(name: str) -> None:
    assert "schedulingGates" not in injected(name)["spec"]
    assert "preheat.dev/wait-seconds" not in annotations(injected(name))


@pytest.mark.parametrize("name", HELD)
def test_where_nobody_releases_pods_without_the_controller_none_is_held_back(name: str) -> None:
    settings = InjectionSettings(image="i", cluster_id="c", store_bucket="b", gating=False)
    after = injected(name, settings=settings)
    assert GATE not in after["spec"].get("schedulingGates", [])
    assert annotations(after)["preheat.dev/injected"].startswith("no: nothing is ready for image")


def test_a_pod_has_our_gate_once_and_keeps_those_of_others() -> None:
    gates = injected("waits, among the gates of others")["spec"]["schedulingGates"]
    assert gates == [{"name": "kueue.x-k8s.io/admission"}, GATE]
    assert injected("waits, and is gated already")["spec"]["schedulingGates"] == [{"name": "a.example/b"}, GATE]


def test_what_the_author_wrote_of_a_wait_is_replaced() -> None:
    after = injected("waits, copied from another")
    assert annotations(after)["preheat.dev/wait-seconds"] == "90"
    assert annotations(after)["preheat.dev/injected"].startswith("no: it waits")
    assert after["spec"]["schedulingGates"] == [GATE]


@pytest.mark.parametrize("name", ["fails", "fails, nothing will come for its image", "waits, but asked to fail"])
def test_a_pod_that_fails_has_what_makes_it_fail_and_says_so(name: str) -> None:
    after = injected(name)
    assert annotations(after)["preheat.dev/manifest"] == "pending"
    assert annotations(after)["preheat.dev/injected"].endswith("and whenMissing is Fail")
    fetch = env(after["spec"]["initContainers"][0])
    assert fetch["PREHEAT_WHEN_MISSING"] == "Fail"
    assert "PREHEAT_ASSUMED_PYTHONPATH" in fetch


def test_a_pod_that_fails_without_artifacts_does_so_also_when_they_should_be_there() -> None:
    after = injected("fails, its image is ready")
    assert annotations(after) == {"preheat.dev/manifest": DIGEST, "preheat.dev/injected": "yes"}
    assert env(after["spec"]["initContainers"][0])["PREHEAT_WHEN_MISSING"] == "Fail"
