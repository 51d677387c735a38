"""One case for each thing that keeps a pod from being injected; the words must name it, and what to do."""

from __future__ import annotations

import pytest

from preheat_operator.explain import remedies
from preheat_operator.injection.refusals import REFUSALS
from unit.explain.pod_and_model import COMPILING, DIGEST, IMAGE, NOTHING, model, no, pod, why


def test_not_labelled() -> None:
    said = why(pod(labels={"app": "x"}, annotations={}))
    assert (said.outcome, said.cause) == ("cold", "NotLabelled")
    assert "preheat.dev/model" in said.remedy


def test_switched_off_by_label() -> None:
    said = why(pod(labels={"preheat.dev/model": "vision", "preheat.dev/inject": "disabled"}, annotations={}))
    assert (said.outcome, said.cause) == ("cold", "InjectDisabled")


def test_admission_never_saw_it() -> None:
    said = why(pod(annotations={}), model=None)
    assert (said.outcome, said.cause) == ("cold", "NotSeen")
    assert "kube-system" in said.remedy


def test_no_such_model() -> None:
    said = why(no("there is no CompiledModel vision in this namespace"), model=None)
    assert (said.cause, said.remedy) == ("NoModel", remedies.NO_MODEL)
    assert "vision" in said.why


def test_the_model_is_younger_than_the_pod() -> None:
    said = why(no("there is no CompiledModel vision in this namespace"))
    assert (said.cause, said.remedy) == ("NewerThanPod", remedies.REPLACE)


def test_injection_is_paused() -> None:
    degraded = model()
    degraded["status"]["conditions"].append(
        {
            "type": "Degraded",
            "status": "True",
            "reason": "InjectionPaused",
            "message": "the fetch image cannot be pulled",
        }
    )
    said = why(no("injection is paused for CompiledModel vision; its conditions say why"), model=degraded)
    assert said.cause == "Paused"
    assert any("cannot be pulled" in note for note in said.notes)


def test_nothing_is_ready_yet() -> None:
    said = why(NOTHING, model=COMPILING)
    assert (said.cause, said.remedy) == ("Compiling", remedies.WAIT)
    assert "1 of 1 targets are compiling" in said.why


@pytest.mark.parametrize(
    "reason", ["StoreCredentialsMissing", "AllTargetsFailed", "NoCapacity", "WorkloadNotFound", "InvalidSpec"]
)
def test_nothing_will_be_ready_without_a_person(reason: str) -> None:
    failed = [{"module": "main", "bucket": "one", "hardware": "cpu", "verdict": "Failed", "reason": "CompilerMissing",
               "message": "no g++"}]  # fmt: skip
    said = why(NOTHING, model=model(ready="False", reason=reason, message="do this", revisions=[], targets=failed))
    assert (said.cause, said.remedy) == (reason, remedies.CONDITION)
    assert "do this" in said.why
    assert "target main/one/cpu: Failed, CompilerMissing: no g++" in said.notes


def test_suspended() -> None:
    assert why(NOTHING, model=model(ready="False", reason="Suspended", revisions=[])).cause == "Suspended"


def test_ready_since() -> None:
    assert why(NOTHING).cause == "NewerThanPod"


def test_another_image() -> None:
    other = [{"image": "registry/vision:1.3", "state": "Ready"}]
    said = why(NOTHING, model=model(revisions=other))
    assert said.cause == "ImageUnseen"
    assert IMAGE in said.why
    assert "registry/vision:1.3" in said.why


def test_the_controller_has_not_looked() -> None:
    assert why(NOTHING, model={"status": {}}).cause == "NotLookedAt"
    assert why(NOTHING, model={}).cause == "NotLookedAt"


def test_ready_and_gone_again() -> None:
    assert why(NOTHING, model=None).cause == "NoModel"


def test_every_refusal_of_injection_is_explained() -> None:
    for refusal in REFUSALS:
        words = refusal.why.format(model="vision", container="server", image=IMAGE)
        said = why(no(words), model=None)
        assert said.outcome == "cold"
        assert said.cause in ("NoModel", "Paused", "NotInjectable")
        assert said.cause != "NotInjectable" or said.why == words


def test_what_was_taken_back_is_not_given_to_the_next_pod() -> None:
    taken = {"at": "2026-01-01T00:00:00Z", "pods": 9, "wrong": 2, "crashed": 1, "targets": ["main/one/cpu"]}
    revisions = [{"name": "vision-2", "image": IMAGE, "state": "TakenBack", "manifest": DIGEST, "takenBack": taken}]
    said = why(NOTHING, model=model(ready="False", reason="RevisionTakenBack", revisions=revisions))
    assert (said.outcome, said.cause, said.remedy) == ("cold", "RevisionTakenBack", remedies.TAKEN_BACK)
    assert "vision-2 was taken back, since 2 of 9 pods reported wrong answers and 1 of 9 pods crashed" in said.why
    older = why(NOTHING, model=model(revisions=[{"image": "other", "state": "Ready"}, *revisions]))
    assert older.cause == "RevisionTakenBack", "also when the newest revision is another image's"
    revisions[0]["takenBack"] = "nonsense"
    assert "its pods were wrong or crashed" in why(NOTHING, model=model(revisions=revisions)).why
