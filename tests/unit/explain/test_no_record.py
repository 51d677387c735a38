"""One case for each thing that leaves a pod without a record; the words must name it. Half a pod is no error."""

from __future__ import annotations

from typing import Any

import pytest

from preheat_operator.explain.decide import explain
from preheat_operator.explain.gathered import Gathered
from unit.explain.pod_and_model import log, pod, why


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
