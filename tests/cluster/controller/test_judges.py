"""The judges of random edits can say no: each is shown a history, or an end, that must not be. Pure; no server is needed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from cluster.controller.controlplane import digest
from cluster.controller.edits import Inputs, Step, draw
from cluster.controller.history import History, Published
from cluster.controller.rest import Seen, complaints

IMAGE = "registry/vision:1"
Raw = dict[str, Any]


def job(name: str, *, revision: str = "vision-1", hardware: str = "cpu", version: int = 1, ended: bool = False) -> Raw:
    conditions = [{"type": "Complete", "status": "True"}] if ended else []
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "ownerReferences": [{"uid": "model"}],
            "labels": {"preheat.dev/revision": revision, "preheat.dev/hardware": hardware},
        },
        "status": {"conditions": conditions},
    }  # fmt: skip


def revision(name: str = "vision-1", state: str = "Ready", manifest: str | None = digest("a"), **more: Any) -> Raw:
    given = {} if manifest is None else {"manifest": manifest}
    return {"name": name, "state": state, "image": IMAGE, "hardware": [{"name": "cpu", "kept": 1}], **given, **more}


def model(*revisions: Raw, version: int = 1, limit: int = 3) -> Raw:
    return {
        "metadata": {"name": "vision", "namespace": "n", "uid": "model", "resourceVersion": str(version), "generation": 1},
        "spec": {"revisionHistoryLimit": limit},
        "status": {
            "observedGeneration": 1, "revisions": list(revisions),
            "conditions": [{"type": "Ready", "status": "True", "reason": "RevisionReady"}],
            "targets": [{"bucket": "one", "hardware": "cpu"}],
        },
    }  # fmt: skip


def pod(name: str, manifest: str = digest("a"), *, gated: bool = False, wrong: bool = False, image: str = IMAGE) -> Raw:
    annotations = {"preheat.dev/manifest": manifest, "preheat.dev/injected": "yes"}
    if wrong:
        annotations["preheat.dev/served"] = '{"v":1,"wrong":["main/one/cpu"]}'
    return {
        "metadata": {"name": name, "labels": {"preheat.dev/model": "vision"}, "annotations": annotations},
        "spec": {
            "containers": [{"name": "server", "image": image}],
            "schedulingGates": [{"name": "preheat.dev/artifact"}] * gated,
        },
        "status": {"phase": "Running"},
    }


def history(*events: tuple[str, str, Raw], published: tuple[str, ...] = ("a", "b")) -> list[str]:
    seen = History()
    for number, character in enumerate(published, 1):
        what = Published(uid="model", revision=f"vision-{number}", image=IMAGE)
        seen.publishes(digest(character), what)
    for kind, change, raw in events:
        seen.saw(kind, change, raw)
    seen.finish()
    return seen.wrong


ONE_LIFE = (
    ("compiledmodels", "ADDED", model(version=1)),
    ("jobs", "ADDED", job("j1", version=2)),
    ("compiledmodels", "MODIFIED", model(revision(state="Compiling", manifest=None), version=3)),
    ("jobs", "MODIFIED", job("j1", version=4, ended=True)),
    ("compiledmodels", "MODIFIED", model(revision(), version=5)),
    ("compiledmodelindices", "ADDED", {"metadata": {"namespace": "n"}, "models": f"\nvision Cold 0 -\nvision|{IMAGE}={digest('a')} -\n"}),
    ("jobs", "ADDED", job("j2", revision="vision-2", version=6)),
    ("compiledmodels", "MODIFIED",
     model(revision("vision-2", "Compiling", None), revision(), version=7)),
    ("jobs", "DELETED", job("j2", revision="vision-2", version=8)),
    ("compiledmodels", "MODIFIED", model(revision(state="TakenBack"), version=9)),
)  # fmt: skip


def test_a_history_as_it_should_be_has_nothing_wrong() -> None:
    assert history(*ONE_LIFE) == []


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (("jobs", "ADDED", job("again", version=10)), "was made for cpu of vision-1, which was TakenBack"),
        (("compiledmodels", "MODIFIED", model(revision(), version=10)), "was taken back, and is Ready"),
        (("compiledmodels", "MODIFIED", model(revision("vision-2", manifest=None), version=10)), "which nobody published"),
        (("compiledmodels", "MODIFIED", model(revision("vision-2", manifest=digest("a")), version=10)),
         "which nobody published for it"),
        (("compiledmodels", "MODIFIED", model(revision("vision-2", manifest=digest("c")), version=10)), "which nobody"),
        (("compiledmodels", "MODIFIED", model(revision("vision-1", "Pending"), version=10)), "was ready, and is Pending"),
        (("compiledmodels", "MODIFIED",
          model(revision("vision-2", manifest=digest("b")), revision("vision-3", "Failed", None), version=10)),
         "and not the newest"),
        (("compiledmodels", "MODIFIED", model(version=10)), "vision-1 went, and there was room"),
        (("compiledmodelindices", "MODIFIED",
          {"metadata": {"namespace": "n"}, "models": f"\nvision|registry/vision:2={digest('a')} -\n"}),
         "for which nobody published it"),
        (("pods", "ADDED", pod("p", digest("c"))), "for which nobody published it"),
        (("pods", "ADDED", pod("p", image="registry/vision:2")), "for which nobody published it"),
    ],
)  # fmt: skip
def test_one_bad_change_more_is_told(bad: tuple[str, str, Raw], words: str) -> None:
    assert any(words in wrong for wrong in history(*ONE_LIFE, bad)), history(*ONE_LIFE, bad)


def test_two_jobs_for_a_target_are_told_also_when_one_goes_at_once() -> None:
    both = (("jobs", "ADDED", job("j1")), ("jobs", "ADDED", job("j2", version=2)), ("jobs", "DELETED", job("j1")))
    assert history(*both) == ["two Jobs at once for cpu of vision-1: j1, j2"]
    one_by_one = (both[0], ("jobs", "MODIFIED", job("j1", ended=True)), both[1])
    assert history(*one_by_one) == []
    assert history(both[0], ("jobs", "ADDED", job("j2", hardware="gpu"))) == []


def at_rest() -> Seen:
    return Seen(model=model(revision()), jobs=[job("j1", ended=True)], pods=[pod("p1"), pod("p2", wrong=True)],
                indices=[{"models": f"\nvision Cold 0 -\nvision|{IMAGE}={digest('a')} -\n"}])  # fmt: skip


def test_an_end_as_it_should_be_has_no_complaint() -> None:
    assert complaints(Inputs(), at_rest()) == []
    assert complaints(Inputs(model=False), Seen(pods=[pod("p1")])) == []


def _with(**fields: Any) -> Seen:
    return replace(at_rest(), **fields)


def _status(**fields: Any) -> Seen:
    body = copy.deepcopy(at_rest().model)
    assert body is not None
    body["status"] |= fields
    return _with(model=body)


@pytest.mark.parametrize(
    ("inputs", "seen", "words"),
    [
        (Inputs(), _with(model=None), "the model is not there"),
        (Inputs(), _status(observedGeneration=0), "was not observed"),
        (Inputs(), _with(jobs=[job("j1")]), "Jobs at work"),
        (Inputs(), _with(indices=[]), "the index says"),
        (Inputs(), _with(pods=[pod("p1", wrong=True), pod("p2", wrong=True)]), "its pods are wrong or crash"),
        (Inputs(), _with(pods=[pod("p1", gated=True)]), "still waits"),
        (Inputs(), _status(revisions=[]), "there is no revision"),
        (Inputs(), _status(revisions=[revision(state="Compiling")]), "and nobody works on it"),
        (Inputs(), _status(revisions=[revision(state="TakenBack")]), "and Ready is ('True', 'RevisionReady')"),
        (Inputs(), _status(revisions=[revision(hardware=[{"name": "cpu", "failed": 1}])]), "and Ready is"),
        (Inputs(), _status(revisions=[revision(restart={"state": "Pending"})]), "a restart is due"),
        (Inputs(image=2), at_rest(), "the workload has registry/vision:2"),
        (Inputs(weights="7"), at_rest(), "the spec names '7'"),
        (Inputs(buckets=("one", "two")), at_rest(), "targets are"),
        (Inputs(workload=False), at_rest(), "there is no workload, and Ready is"),
        (Inputs(model=False), at_rest(), "the model is still there"),
        (Inputs(model=False), Seen(jobs=[job("j1")]), "of a model that is gone"),
        (Inputs(model=False), Seen(indices=[{"models": "\n"}]), "an index without a model"),
    ],
)
def test_an_end_as_it_must_not_be_is_told(inputs: Inputs, seen: Seen, words: str) -> None:
    assert any(words in said for said in complaints(inputs, seen)), complaints(inputs, seen)


def test_the_same_number_draws_the_same_sequences_and_another_one_others() -> None:
    drawn = draw(count=20, length=10, number=1)
    assert len(drawn) == 20
    assert drawn == draw(count=20, length=10, number=1)
    assert drawn != draw(count=20, length=10, number=2)
    names = {step.name for sequence in drawn for step in sequence}
    assert {"image", "compiled", "job ends", "asked", "pod", "delete", "model", "workload", "suspend"} <= names
    assert all(isinstance(step, Step) for sequence in drawn for step in sequence)
