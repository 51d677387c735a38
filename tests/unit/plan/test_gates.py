"""Pods that wait: each goes on when its outcome is known, none waits for what will not come."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.index import ImageEntry
from preheat_operator.plan.gates import Gates, Opening, Waited, deadline, decide, overdue, waits
from preheat_operator.plan.objects import PodView, read_pod
from unit.plan.simulation import START, deployment, digest, spec

OLD, NEW = "v:1", "v:2"
GATE = "preheat.dev/artifact"
READY = ImageEntry(model="vision", image=NEW, manifest=digest("b"), python_path="/app")
NOTHING = ImageEntry(model="vision", image=NEW, manifest="none")


def revision(image: str, state: str, manifest: str | None = None) -> dict[str, Any]:
    return {
        "name": f"vision-{image[-1]}", "image": image, "manifest": manifest, "state": state, "cause": "Created",
        "created": START.isoformat(), "specHash": "0", "pythonPath": None,
    }  # fmt: skip


def model(
    *revisions: dict[str, Any], rule: str | None = "Wait", suspend: str = "Disabled", **more: Any
) -> CompiledModel:
    status: dict[str, Any] = {"revisions": list(revisions)}
    if rule is not None:
        status["whenMissing"] = rule
    return CompiledModel.model_validate(
        {
            "metadata": {"name": "vision", "namespace": "prod", "uid": "u"},
            "spec": spec(suspend=suspend, **more),
            "status": status,
        }
    )


COMPILING = model(revision(NEW, "Compiling"), revision(OLD, "Ready", digest("a")))


def pod(name: str = "a", *, guess: str | None = "/app", fail: bool = False, **more: Any) -> PodView:
    """A pod of the new image that waits, injected for what is to come, with a guess at PYTHONPATH."""
    told = {} if guess is None else {"PREHEAT_ASSUMED_PYTHONPATH": guess}
    base = PodView(
        name=name, namespace="prod", uid=f"uid-{name}", owner_uid="rs", owner_kind="ReplicaSet",
        labels={"preheat.dev/model": "vision"}, images={"preheat-fetch": "p", "server": NEW}, first="server",
        created_at=START, gates=() if fail else (GATE,), fetch_env=told | ({"PREHEAT_WHEN_MISSING": "Fail"} if fail else {}),
        annotations={"preheat.dev/manifest": "pending", "preheat.dev/injected": "no: …", "preheat.dev/wait-seconds": "90"},
    )  # fmt: skip
    return replace(base, **more)


PLAIN: dict[str, Any] = {"images": {"server": NEW}, "fetch_env": {}}


def gates(
    *pods: PodView, of: CompiledModel | None = COMPILING, entry: ImageEntry | None = None, paused: bool = False,
    after: float = 1, workload: dict[str, Any] | None = None,
) -> Gates:  # fmt: skip
    observed = Waited(
        models={} if of is None else {"vision": of},
        workloads={"vision": deployment(NEW) if workload is None else workload},
        entries={} if entry is None else {("vision", NEW): entry},
        paused=paused,
        now=START + timedelta(seconds=after),
    )
    return decide(pods, observed)


def without(answer: Gates) -> str:
    """The words with which the one pod goes on without artifacts."""
    (opening,) = answer.open
    assert (answer.replace, opening.manifest) == ((), "none")
    assert opening.injected.startswith("no: ")
    return opening.injected


def test_while_its_image_is_compiled_a_pod_waits_until_its_time_is_over() -> None:
    assert gates(pod()) == Gates(look_again_at=START + timedelta(seconds=90))
    assert gates(pod(), after=89.9).open == ()
    assert without(gates(pod(), after=90)) == "no: nothing was ready within the 90 s that it waited"


def test_when_its_image_is_ready_it_gets_the_manifest() -> None:
    waiting = pod()
    assert gates(waiting, entry=READY) == Gates(open=(Opening(pod=waiting, manifest=digest("b"), injected="yes"),))


def test_what_is_ready_at_the_last_moment_is_given_and_not_refused() -> None:
    assert gates(pod(), entry=READY, after=999).open[0].manifest == digest("b")


@pytest.mark.parametrize(
    ("guess", "path", "right"),
    [
        ("/app", "/app", True), ("-", None, True), (None, "/app", True), (None, None, True),
        ("/$$(X)", "/$(X)", True), ("-", "/app", False), ("/app", None, False), ("/app", "/srv", False),
        ("?", None, False), ("?", "/app", False),
    ],
)  # fmt: skip
def test_a_pod_made_for_another_pythonpath_is_made_again(guess: str | None, path: str | None, right: bool) -> None:
    waiting = pod(guess=guess)
    answer = gates(waiting, entry=replace(READY, python_path=path))
    assert (bool(answer.open), answer.replace) == ((True, ()) if right else (False, (waiting,)))


def test_a_pod_to_which_nothing_was_added_is_made_again_when_its_image_is_ready_and_starts_as_it_is_otherwise() -> None:
    waiting = pod(**PLAIN)
    assert gates(waiting, entry=READY).replace == (waiting,)
    assert without(gates(waiting, entry=NOTHING)).startswith("no: nothing could be compiled for image v:2")
    assert "within the 90 s" in without(gates(waiting, after=90))


@pytest.mark.parametrize("owner", [("", ""), ("job", "Job")])
def test_a_pod_that_nobody_makes_again_is_not_deleted(owner: tuple[str, str]) -> None:
    owned = {"owner_uid": owner[0], "owner_kind": owner[1]}
    assert "make the pod again" in without(gates(pod(**PLAIN, **owned), entry=READY))
    assert "another than was assumed" in without(gates(pod(guess="/srv", **owned), entry=READY))
    assert "nothing could be compiled" in without(gates(pod(**owned), entry=NOTHING))


def test_when_nothing_will_come_a_pod_that_rests_on_a_guess_is_made_again_without_it() -> None:
    waiting = pod()
    assert gates(waiting, entry=NOTHING).replace == (waiting,)
    assert "nothing could be compiled" in without(gates(pod(guess=None), entry=NOTHING))


def test_a_revision_that_ended_is_waited_for_no_longer_whatever_the_index_could_say() -> None:
    assert "failed" in without(gates(pod(), of=model(revision(NEW, "Failed"))))
    assert "cannot be given" in without(gates(pod(), of=model(revision(NEW, "Ready", digest("b")))))


ENDS = {
    "there is no CompiledModel vision": {"of": None},
    "is suspended": {"of": model(suspend="Enabled")},
    "whenMissing is Cold now": {"of": model(rule="Cold")},
    "whenMissing is Fail now": {"of": model(rule="Fail")},
}


@pytest.mark.parametrize("words", ENDS)
def test_a_pod_does_not_wait_for_a_model_that_lets_it_go(words: str) -> None:
    assert words in without(gates(pod(), **ENDS[words]))
    assert words in without(gates(pod(**PLAIN), **ENDS[words]))


def test_a_model_that_nobody_has_looked_at_yet_is_waited_for() -> None:
    assert gates(pod(), of=model(rule=None)) == Gates(wake=("vision",), look_again_at=START + timedelta(seconds=90))
    assert gates(pod(fail=True), of=model(rule=None)) == Gates()


def test_the_pod_s_own_word_counts_before_the_model_s() -> None:
    def asked(word: str) -> PodView:
        return pod(annotations=pod().annotations | {"preheat.dev/when-missing": word})

    assert gates(asked("Wait"), of=model(revision(NEW, "Compiling"), rule="Cold")).open == ()
    assert "whenMissing is Cold now" in without(gates(asked("Cold")))
    assert gates(asked("wait")).open == (), "no word at all"


def test_where_injection_is_paused_nothing_that_was_added_may_start() -> None:
    """It is paused because what was added keeps pods from starting; also what is ready is not given then."""
    waiting, lone, plain = pod("a"), pod("b", owner_uid="", owner_kind=""), pod("c", **PLAIN)
    answer = gates(waiting, lone, plain, entry=READY, paused=True)
    assert answer.replace == (waiting,)
    assert {o.pod.name: o.manifest for o in answer.open} == {"b": "none", "c": "none"}


def test_a_label_that_says_no_ends_the_wait() -> None:
    copied = pod(labels={"preheat.dev/model": "vision", "preheat.dev/inject": "disabled"})
    assert "preheat.dev/inject" in without(gates(copied))


def test_an_image_that_the_workload_has_left_is_not_waited_for_once_its_controller_has_acted() -> None:
    left = deployment(OLD) | {"metadata": {"generation": 3}}
    unsettled = left | {"status": {"observedGeneration": 2}}
    assert gates(pod(), of=model(), workload=unsettled) == Gates(look_again_at=START + timedelta(seconds=3))
    words = without(gates(pod(), of=model(), workload=left | {"status": {"observedGeneration": 3}}))
    assert "nothing is compiled for image v:2" in words


def test_an_image_that_the_model_has_not_taken_up_yet_wakes_it() -> None:
    answer = gates(pod(), of=model(revision(OLD, "Ready", digest("a"))))
    assert (answer.open, answer.replace, answer.wake) == ((), (), ("vision",))


def test_a_workload_that_is_not_there_may_still_come() -> None:
    observed = Waited(models={"vision": model()}, workloads={"vision": None}, entries={}, paused=False, now=START)
    assert decide([pod()], observed) == Gates(look_again_at=START + timedelta(seconds=90))


def test_the_container_that_serves_is_chosen_as_admission_does() -> None:
    two = {"preheat-fetch": "p", "proxy": "x", "server": NEW}
    assert "nothing is compiled for image x" in without(gates(pod(images=two, first="proxy"), entry=READY))
    chosen = pod().annotations | {"preheat.dev/container": "server"}
    assert gates(pod(images=two, first="proxy", annotations=chosen), entry=READY).open
    named = model(
        revision(NEW, "Compiling"),
        workloadRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "vision", "container": "server"},
    )
    assert gates(pod(images=two, first="proxy"), of=named, entry=READY).open


def test_a_pod_that_must_not_start_without_goes_on_only_with_artifacts() -> None:
    failing = pod(fail=True)
    model_ = model(revision(NEW, "Failed"), rule="Fail")
    assert gates(failing, of=model_, entry=NOTHING, after=9999) == Gates()
    assert gates(failing, of=model_, entry=READY).open[0].manifest == digest("b")
    assert gates(pod(fail=True, guess="?"), of=model_, entry=READY).replace
    for ended in ({"of": None}, {"of": model(rule="Cold")}, {"of": model_, "paused": True}):
        assert gates(failing, **ended).replace == (failing,), "what is made in its place starts"
        assert gates(pod(fail=True, owner_uid=""), **ended) == Gates()


def test_pods_that_do_not_wait_are_left_alone() -> None:
    given = {"preheat.dev/manifest": digest("a"), "preheat.dev/injected": "yes"}
    for other in (
        pod(gates=()), pod(gates=("kueue.x-k8s.io/admission",)), pod(deleting=True), pod(phase="Failed"),
        pod(fail=True, annotations=given), pod(fail=True, phase="Running"),
    ):  # fmt: skip
        assert not waits(other)
        assert gates(other, of=None) == Gates()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("0", 0),
        ("86400", 86400),
        ("999999", 86400),
        ("1000000", 480),
        ("", 480),
        ("x", 480),
        ("-5", 480),
        ("٣", 480),
    ],
)
def test_a_time_limit_is_always_there_and_bounded(text: str, seconds: int) -> None:
    waiting = pod(annotations={"preheat.dev/wait-seconds": text})
    assert deadline(waiting) == START + timedelta(seconds=seconds)
    assert f"{seconds} s" in overdue(waiting).injected
    assert overdue(waiting).manifest == "none"


def test_a_pod_is_read_as_the_api_server_has_it() -> None:
    raw = {
        "metadata": {"name": "a", "annotations": {"preheat.dev/manifest": "pending"}},
        "spec": {
            "schedulingGates": [{"name": "x"}, {"name": GATE}],
            "initContainers": [
                {
                    "name": "preheat-fetch", "image": "p",
                    "env": [
                        {"name": "PREHEAT_MANIFEST", "valueFrom": {"fieldRef": {}}},
                        {"name": "PREHEAT_ASSUMED_PYTHONPATH", "value": "/app"},
                        {"name": "PREHEAT_WHEN_MISSING", "value": "Fail"},
                    ],
                }
            ],
            "containers": [{"name": "server", "image": NEW}, {"name": "other", "image": "x"}],
        },
    }  # fmt: skip
    view = read_pod(raw)
    assert (view.gated, view.must_fetch, view.first) == (True, True, "server")
    assert view.fetch_env == {"PREHEAT_ASSUMED_PYTHONPATH": "/app", "PREHEAT_WHEN_MISSING": "Fail"}


MODELS = (
    None, COMPILING, model(), model(revision(NEW, "Failed")), model(revision(NEW, "Ready", digest("b"))),
    model(revision(NEW, "Compiling"), suspend="Enabled"), model(revision(NEW, "Compiling"), rule="Cold"),
    model(revision(NEW, "Compiling"), rule="Fail"), model(rule=None),
)  # fmt: skip
OWNERS = ({}, {"owner_uid": "", "owner_kind": ""}, {"owner_kind": "Job"})
WORKLOADS = (deployment(NEW), deployment(OLD), deployment(OLD) | {"metadata": {"generation": 2}}, {})


def test_whatever_is_observed_the_promises_hold() -> None:
    """Every combination: no pod waits beyond its time or for what will not come, none is given what is not for it."""
    pods = [pod(guess=g, **o) for g in ("/app", "-", "?", None) for o in OWNERS]
    pods += [pod(**PLAIN, **o) for o in OWNERS] + [pod(guess=g, fail=True, **o) for g in ("/app", "?") for o in OWNERS]
    count = 0
    for waiting, of, entry, paused, after, workload in itertools.product(
        pods, MODELS, (None, READY, NOTHING), (False, True), (0, 89, 90, 10_000), WORKLOADS
    ):
        answer = gates(waiting, of=of, entry=entry, paused=paused, after=after, workload=workload)
        assert answer == gates(waiting, of=of, entry=entry, paused=paused, after=after, workload=workload)
        goes = bool(answer.open or answer.replace)
        assert len(answer.open) + len(answer.replace) <= 1
        for opening in answer.open:
            if opening.manifest == "none":
                assert opening.injected.startswith("no: ")
            else:
                assert (opening.manifest, opening.injected, paused) == (digest("b"), "yes", False)
                assert waiting.fetch_env.get("PREHEAT_ASSUMED_PYTHONPATH") in (None, "/app")
                assert "preheat-fetch" in waiting.images
        assert all(p.owner_uid and p.owner_kind != "Job" for p in answer.replace)
        if waiting.gated:
            lets = of is not None and of.status.when_missing in ("Wait", None) and of.spec.suspend == "Disabled"
            if after >= 90 or not lets or paused or entry is not None:
                assert goes
            if not goes:
                assert answer.look_again_at is not None
                assert answer.look_again_at <= deadline(waiting)
        count += 1
    assert count > 10_000
