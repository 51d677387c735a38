"""A revision that answers wrong is taken back, from the runtime's check to the next pod's admission."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
from typing import TYPE_CHECKING, Any

import kit
import pytest

from e2e.test_reports import why
from e2e.world import QUICK, jobs_ever, wait_degraded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.world import World

pytestmark = pytest.mark.cluster


def revision(kube: kit.Kube, image: str) -> dict[str, Any]:
    """What status says of the image's newest revision."""
    model = kube.get("compiledmodel", "tiny")
    assert model is not None
    return next(r for r in model["status"]["revisions"] if r["image"] == image)


@contextlib.contextmanager
def given_back(world: World, kube: kit.Kube, image: str) -> Iterator[None]:
    """Afterwards the revision is ready again, for the tests that share it: nothing of Preheat's would ever do that."""
    try:
        yield
    finally:
        model = kube.get("compiledmodel", "tiny")
        assert model is not None
        status = model["status"]
        for each in status["revisions"]:
            if each["image"] == image and each["state"] == "TakenBack":
                each["state"] = "Ready"
                del each["takenBack"], each["served"]
        controller = f"system:serviceaccount:{world.admin.namespace}:{world.installed.controller}"
        patch = json.dumps({"status": {"revisions": status["revisions"]}})
        kube.run(
            "patch", "compiledmodel", "tiny", "--subresource=status", "--type=merge", "-p", patch, f"--as={controller}"
        )
        digest = revision(kube, image)["manifest"]
        # The status says so at once, by this very patch; pods are given what the index holds.
        kube.wait_for(
            "the index to have it again",
            lambda: (i := kube.get("compiledmodelindex", "preheat")) and digest in i["models"],
            timeout=300,
        )


def test_two_pods_that_answer_wrong_take_the_revision_back_and_the_next_starts_without_it(
    world: World, ready: kit.Kube
) -> None:
    kube, image = ready, world.image("tiny")
    digest, before = revision(kube, image)["manifest"], jobs_ever(kube)
    with given_back(world, kube, image):
        # The package was proved with another gain than these pods have, of which nothing can be seen from outside.
        wrong = kit.deployment("tiny", image, name="wrong", label="tiny", replicas=2, env={"TINY_GAIN": "2", **QUICK})
        kube.apply(wrong)
        try:
            said = wait_degraded(kube, "RevisionTakenBack", timeout=300)
            assert "2 of 2 pods reported wrong answers (main/one/cpu)" in said["message"]
            for pod in kit.running_pods(kube, "wrong"):
                annotations = pod["metadata"]["annotations"]
                assert annotations["preheat.dev/manifest"] == digest, "what it was given stays what it was"
                assert json.loads(annotations["preheat.dev/served"])["wrong"] == ["main/one/cpu"]
                events = kit.log_events(kube, pod["metadata"]["name"])
                assert [e["outcome"] for e in events if e.get("when") == "first-answer"] == ["hot"], "and it serves on"
            found = revision(kube, image)
            assert (found["state"], found["manifest"]) == ("TakenBack", digest)
            assert {key: found["takenBack"][key] for key in ("pods", "wrong", "crashed")} == {
                "pods": 2,
                "wrong": 2,
                "crashed": 0,
            }
            told = [e for e in kube.list("events") if e["reason"] == "RevisionTakenBack"]
            assert [e["type"] for e in told] == ["Warning"]

            # The next pod of the same image starts as it is, and says so; as does `preheat why`.
            index = kube.wait_for(
                "the index",
                lambda: (i := kube.get("compiledmodelindex", "preheat")) and digest not in i["models"] and i,
                timeout=300,
            )
            assert "\ntiny " in index["models"]
            kube.apply(kit.deployment("tiny", image, name="next", label="tiny", env={"COMPILE": "0"}))
            pod = kit.wait_ready_pod(kube, "next", timeout=300)
            assert pod["metadata"]["annotations"]["preheat.dev/manifest"] == "none"
            assert pod["metadata"]["annotations"]["preheat.dev/injected"] == f"no: nothing is ready for image {image}"
            explained = why(kube, pod["metadata"]["name"])
            assert (explained["outcome"], explained["cause"]) == ("cold", "RevisionTakenBack")
            assert "2 of 2 pods" in explained["why"]
            assert jobs_ever(kube) == before, "nothing is compiled again by itself"
        finally:
            kube.run("delete", "deployment", "wrong", "next", "--ignore-not-found")
            kube.wait_for("the pods to go", lambda: not kube.list("pods", "preheat.dev/model=tiny"), timeout=300)
    kube.apply(kit.deployment("tiny", image, name="after", label="tiny"))
    assert kit.measure(kube, "tiny", kit.wait_ready_pod(kube, "after"), calls=5).outcome == "hot"
    kube.run("delete", "deployment", "after")


def crash(kube: kit.Kube, pod: str) -> None:
    """Have the server read where there is nothing to be read; it does not live to answer."""
    with (
        kit.forwarded(kube, pod) as url,
        contextlib.suppress(urllib.error.URLError, http.client.HTTPException, OSError),
    ):
        kit.post(f"{url}/crash", b"")


@pytest.mark.soak
def test_two_pods_that_crash_take_it_back_as_well_without_a_report(world: World, ready: kit.Kube) -> None:
    kube, image = ready, world.image("tiny")
    with given_back(world, kube, image):
        kube.apply(
            kit.deployment("tiny", image, name="crashes", label="tiny", replicas=2, env={"PREHEAT_REPORTS_URL": ""})
        )
        try:
            pods = ready.wait_for(
                "two ready pods",
                lambda: len(found := [p for p in kit.running_pods(kube, "crashes") if kit.is_ready(p)]) == 2 and found,
                timeout=300,
            )
            crash(kube, pods[0]["metadata"]["name"])
            kube.wait_for(
                "one to be counted",
                lambda: revision(kube, image).get("served", {}).get("crashed") == 1,
                timeout=300,
            )
            assert revision(kube, image)["state"] == "Ready", "one is not enough"
            crash(kube, pods[1]["metadata"]["name"])
            said = wait_degraded(kube, "RevisionTakenBack", timeout=300)
            assert "2 of 2 pods crashed" in said["message"]
            for pod in kit.running_pods(kube, "crashes"):
                (server,) = pod["status"]["containerStatuses"]
                assert server["lastState"]["terminated"]["exitCode"] == 139
                assert "preheat.dev/served" not in pod["metadata"]["annotations"]
        finally:
            kube.run("delete", "deployment", "crashes", "--ignore-not-found")
            kube.wait_for("the pods to go", lambda: not kube.list("pods", "preheat.dev/model=tiny"), timeout=300)
