"""One case for each thing that can keep a pod from being hot; the words must name it, and what to do."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from preheat_operator.explain import remedies
from preheat_operator.explain.decide import Explanation, explain
from preheat_operator.explain.gathered import Gathered
from preheat_operator.injection.refusals import REFUSALS
from preheat_runtime.reasons import CLASSES

IMAGE = "registry/vision:1.4"
DIGEST = "sha256:" + "a" * 64
TORCH = "main/one/cpu: torch 2.15.0+cu132 in the pod, artifact has 2.14.1"


def pod(
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
    command: list[str] | None = None,
    fetch: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
    node: str = "n1",
) -> dict[str, Any]:
    given = {"PREHEAT_DIR": "/opt/preheat"} | (env or {})
    return {
        "metadata": {
            "name": "web-1",
            "namespace": "prod",
            "labels": {"preheat.dev/model": "vision"} if labels is None else labels,
            "annotations": {"preheat.dev/injected": "yes", "preheat.dev/manifest": DIGEST}
            if annotations is None
            else annotations,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "proxy", "image": "proxy:1"},
                {
                    "name": "server", "image": IMAGE, "command": command or ["python3", "serve.py"],
                    "env": [{"name": name, "value": value} for name, value in given.items()],
                },
            ],
        },
        "status": {
            "initContainerStatuses": [{"name": "preheat-fetch", "state": fetch or {"terminated": {"exitCode": 0}}}],
            "containerStatuses": [{"name": "server", "state": server or {"running": {}}}],
        },
    }  # fmt: skip


def model(*, ready: str = "True", reason: str = "RevisionReady", message: str = "", **status: Any) -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready, "reason": reason, "message": message}
    given: dict[str, Any] = {
        "conditions": [condition],
        "revisions": [{"name": "vision-1", "image": IMAGE, "state": "Ready", "manifest": DIGEST}],
    }
    return {"status": given | status}


def log(*records: dict[str, Any], other: str = "INFO: Started server process [1]\n") -> str:
    base = {"logger": "preheat", "event": "preheat", "when": "first-answer", "pid": 1}
    return other + "".join(json.dumps(base | record) + "\n" for record in records)


def receipt(outcome: str = "Fetched", reason: str = "", message: str = "") -> str:
    line = {"component": "preheat-fetch", "outcome": outcome, "reason": reason, "message": message}
    return json.dumps(line) + "\n"


HOT = {"outcome": "hot", "reason": "package", "reasonClass": "Package", "module": "main", "bucket": "one", "hardware": "cpu",
       "firstAnswerSeconds": 0.11, "bytes": 190000}  # fmt: skip


def cold(reason: str, **more: Any) -> dict[str, Any]:
    return {"outcome": "cold", "reason": reason, **more}


def why(document: dict[str, Any] | None = None, **gathered: Any) -> Explanation:
    given: dict[str, Any] = {"model": model(), "fetch_log": receipt(), "serving_log": ""} | gathered
    before = copy.deepcopy(document or pod())
    found = Gathered(pod=before, **given)
    said = explain(found)
    assert said == explain(found), "it is a function"
    assert said.why
    assert said.remedy
    return said


def no(words: str) -> dict[str, Any]:
    return pod(annotations={"preheat.dev/injected": f"no: {words}", "preheat.dev/manifest": "none"})


NOTHING = no(f"nothing is ready for image {IMAGE}")
COMPILING = model(
    ready="False", reason="Compiling", message="1 of 1 targets are compiling",
    revisions=[{"image": IMAGE, "state": "Compiling"}],
)  # fmt: skip
COMPILING["status"]["conditions"].append({"type": "Progressing", "status": "True", "reason": "Compiling"})


# --- before anything was done ---


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


# --- on its way ---


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


# --- answered ---


def test_hot() -> None:
    said = why(serving_log=log(HOT))
    assert (said.outcome, said.cause, said.why) == ("hot", "Package", "package")
    assert said.remedy.startswith("Nothing")
    assert said.notes == ("the first answer took 0.11 s, artifact main/one/cpu, 190000 bytes",)


FETCH_FAILURES = {
    "StoreUnreachable": "StoreUnreachable", "DeadlineExceeded": "StoreUnreachable",
    "StoreCredentialsMissing": "StoreDenied", "StoreDenied": "StoreDenied", "ManifestMissing": "Corrupt",
    "ManifestCorrupt": "Corrupt", "PieceMissing": "Corrupt", "PieceCorrupt": "Corrupt", "UnknownFormat": "Corrupt",
    "NoSpace": "FetchFailed", "Killed": "FetchFailed", "Internal": "FetchFailed",
}  # fmt: skip


@pytest.mark.parametrize(("reason", "cause"), FETCH_FAILURES.items())
def test_nothing_was_fetched(reason: str, cause: str) -> None:
    said = why(
        serving_log=log(cold(f"fetch: Failed, {reason}: the words of fetch")),
        fetch_log="noise\n" + receipt("Failed", reason, "the words of fetch"),
    )
    assert (said.outcome, said.cause) == ("cold", cause)
    assert f"fetch: Failed, {reason}, the words of fetch" in said.notes


RECORDED = [
    (cold("no revision was ready for this pod's image when it started"), "NoRevision"),
    (cold(TORCH), "TorchDiffers"),
    (cold("main/one/cpu: Python 3.12 in the pod, artifact has 3.11"), "PythonDiffers"),
    (cold("main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs"), "CpuDiffers"),
    (cold("main/one/gpu: no GPU in the pod, artifact is for NVIDIA H100"), "GpuDiffers"),
    (cold("torch.compile was called with backend='eager', which no artifact was made for"), "CompileArguments"),
    (cold("no bucket answers this call: one: argument x: has shape (2, 64), compiled for (1, 64)"), "CallNotCovered"),
    (cold("no bucket answers this call: one: grad is enabled and an input requires it"), "ProcessState"),
    (cold("no artifact is for this Net: main/one: submodule 'x' is new"), "ModelDiffers"),
    (cold("main/one/cpu: Failed, CompileFailed: torch said no"), "TargetsFailed"),
    (cold("the compiler caches did not hold it"), "CachesNotUsed"),
    (cold("Preheat failed: NativeError: x"), "LibraryFailed"),
    (cold("it is not a module's own call, and artifacts are of modules"), "NotAModule"),
    (cold("TORCHDYNAMO_DISABLE=1 is set"), "CompileOff"),
    (cold("something else"), "Other"),
    ({"outcome": "refused", "reason": "no revision was ready for this pod's image when it started"}, "NoRevision"),
    ({"outcome": "eager", "reason": "its answer differed from eager's by 0.5"}, "PackageWrong"),
    ({"outcome": "warm", "reason": "compiler caches"}, "Caches"),
    ({"outcome": "eager", "reason": "SpeedupBelowMinimum: 0.9 times as fast"}, "Rejected"),
    (
        {"outcome": "eager", "reason": "x; there is no C++ compiler in the image, so the model runs eagerly"},
        "NoCompiler",
    ),
    (
        {
            "outcome": "eager",
            "reason": "x; torch's compiler has no place to work in: /tmp is mounted noexec; y, so the model runs eagerly",
        },
        "NoRoom",
    ),
    (
        cold("main/one/cpu: /opt/preheat/revision/main/one/cpu is mounted noexec, so no code in it can run"),
        "NotExecutable",
    ),
]


@pytest.mark.parametrize(("record", "cause"), RECORDED)
def test_what_the_runtime_says(record: dict[str, Any], cause: str) -> None:
    said = why(serving_log=log(record))
    assert (said.outcome, said.cause, said.why) == (record["outcome"], cause, record["reason"])
    assert said.remedy == remedies.OF_REASON[cause]


def test_every_class_has_a_remedy() -> None:
    assert set(remedies.OF_REASON) == set(CLASSES)
    assert {cause for _, cause in RECORDED} | set(FETCH_FAILURES.values()) | {"Package"} == set(CLASSES)


def test_the_runtime_s_own_class_counts_when_it_is_known() -> None:
    assert why(serving_log=log(cold("words of a newer runtime", reasonClass="TorchDiffers"))).cause == "TorchDiffers"
    assert why(serving_log=log(cold(TORCH, reasonClass="NewerThanThis"))).cause == "TorchDiffers"


def test_a_pod_of_many_processes_is_as_cold_as_its_coldest() -> None:
    said = why(serving_log=log(HOT, cold(TORCH, pid=2), HOT | {"pid": 3}))
    assert (said.outcome, said.cause) == ("cold", "TorchDiffers")
    assert "first answers in the log: 2 hot, 1 cold" in said.notes


def test_hot_at_first_and_later_calls_that_no_bucket_covers() -> None:
    later = cold(
        "no bucket answers this call: one: argument x: has shape (9, 64), compiled for (1, 64)", when="changed"
    )
    said = why(serving_log=log(HOT, later))
    assert said.outcome == "hot"
    note = next(note for note in said.notes if "later" in note)
    assert "(9, 64)" in note
    assert "bucket" in note


def test_faults_are_told() -> None:
    text = (
        log(cold("Preheat failed: x"))
        + json.dumps({"logger": "preheat", "event": "preheat-error", "reason": "bug"})
        + "\n"
    )
    assert "a fault of Preheat's: bug" in why(serving_log=text).notes
    assert (
        "a fault of Preheat's: preheat: the hook failed: OSError"
        in why(serving_log="preheat: the hook failed: OSError\n").notes
    )


# --- no record ---


def test_the_log_cannot_be_read() -> None:
    said = why(serving_log=None, unread=("the log of server could not be read: forbidden",))
    assert (said.outcome, said.cause) == ("unknown", "LogUnreadable")
    assert said.notes[-1].endswith("forbidden")


LOADED = '{"logger": "preheat", "event": "preheat-loaded", "pid": 1}\n'


def test_it_is_loaded_and_nothing_was_compiled_yet_or_ever() -> None:
    said = why(serving_log=f"INFO: Started\n{LOADED}")
    assert (said.outcome, said.cause) == ("unknown", "NoRecord")
    assert "torch.compile is never called" in said.why
    assert "fetch: Fetched" in said.notes
    # Whatever the pod's own words would explain, they did not keep it out.
    assert why(pod(command=["python", "-I", "serve.py"]), serving_log=LOADED).cause == "NoRecord"


def test_it_was_never_loaded_and_nothing_in_the_pod_says_why() -> None:
    said = why(serving_log="INFO: Started\n")
    assert (said.outcome, said.cause) == ("unknown", "NotLoaded")
    assert "PYTHONPATH" in said.remedy
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD" in said.remedy


def test_torch_loads_nothing() -> None:
    said = why(pod(env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}))
    assert (said.outcome, said.cause) == ("unknown", "AutoloadOff")
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in said.why
    assert why(pod(env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "1"})).cause == "NotLoaded"


@pytest.mark.parametrize(
    ("command", "isolated"),
    [
        (["python", "-I", "serve.py"], "-I"), (["/usr/bin/python3.12", "-E", "-m", "x"], "-E"),
        (["python3", "-uIB", "serve.py"], "-uIB"), (["tini", "--", "python3", "-I", "-c", "pass"], "-I"),
        (["sh", "-c", "exec python -I serve.py"], "-I"), (["sh", "-c", "echo it's; python -E serve.py"], "-E"),
        (["python3", "serve.py", "-I"], None), (["python3", "-u", "serve.py", "-E"], None),
        (["python3", "-m", "serve", "-I"], None), (["serve", "-I"], None), (["sh", "-c", "python serve.py -I"], None),
    ],
)  # fmt: skip
def test_python_ignores_its_environment(command: list[str], isolated: str | None) -> None:
    said = why(pod(command=command))
    assert said.cause == ("Isolated" if isolated else "NotLoaded")
    assert isolated is None or isolated in said.why


@pytest.mark.parametrize(
    ("command", "replaced"),
    [
        ("PYTHONPATH=/app python serve.py", "PYTHONPATH=/app"), ("export PYTHONPATH=/app; serve", "PYTHONPATH=/app;"),
        ("unset PYTHONPATH; serve", "unset PYTHONPATH"), ("env -i PATH=/bin serve", "env -i"), ("env -u PYTHONPATH serve", "env -u PYTHONPATH"),
        ("PYTHONPATH=/app:$PYTHONPATH serve", None), ("PYTHONPATH=${PYTHONPATH}:/app serve", None), ("env A=-i serve", None),
    ],
)  # fmt: skip
def test_a_command_that_sets_the_path_anew(command: str, replaced: str | None) -> None:
    said = why(pod(command=["sh", "-c", command]))
    assert said.cause == ("PathReplaced" if replaced else "NotLoaded")
    assert replaced is None or repr(replaced) in said.why


def test_the_log_is_off() -> None:
    assert why(pod(env={"PREHEAT_LOG": "off"})).cause == "LogOff"


@pytest.mark.parametrize(("value", "cause"), [("1", "SwitchedOff"), ("0", "NotLoaded"), ("", "NotLoaded")])
def test_switched_off_in_the_container(value: str, cause: str) -> None:
    assert why(pod(env={"PREHEAT_DISABLE": value})).cause == cause


def test_compiled_and_never_called() -> None:
    said = why(
        serving_log=log({"when": "exit", "outcome": None, "reason": "torch.compile was called, the model never was"})
    )
    assert (said.outcome, said.cause) == ("unknown", "NeverCalled")


# --- whatever it is given ---


@pytest.mark.parametrize(
    "document",
    [
        {}, {"metadata": None, "spec": None, "status": None}, {"metadata": {"labels": None, "annotations": None}},
        {"spec": {"containers": []}, "metadata": {"labels": {"preheat.dev/model": "x"}, "annotations": {"preheat.dev/injected": "yes"}}},
        {"spec": {"nodeName": "n"}, "metadata": {"labels": {"preheat.dev/model": "x"}, "annotations": {"preheat.dev/injected": "yes"}},
         "status": {"containerStatuses": [{"name": "", "state": None}]}},
    ],
)  # fmt: skip
def test_half_a_pod_is_no_error(document: dict[str, Any]) -> None:
    said = explain(Gathered(pod=document, model={"status": None}, serving_log="", fetch_log=""))
    assert said.why


def test_torn_and_foreign_lines_are_passed_over() -> None:
    text = '{"logger": "preheat", "event": "pre\nnull preheat\n[1] preheat {\n2026-01-01 out: ' + log(HOT, other="")
    assert why(serving_log=text).outcome == "hot"


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
