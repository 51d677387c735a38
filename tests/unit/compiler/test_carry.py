"""What of an earlier revision may be tried with new weights, and what says that there is another graph."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_compiler import carry, target
from preheat_compiler.fields import RequestError
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.work import Work
from preheat_runtime.manifest import Manifest, digest_of
from preheat_runtime.manifest import Target as Entry
from preheat_runtime.package import CallSpec, Identity, ModuleIdentity, Target
from unit.compiler import requests

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_compiler.decide import Decision

CONTRACT = Target(
    identity=Identity(modules={"": ModuleIdentity(class_name="M", code="a", attributes="b")}, tensors={}, patches=""),
    call=CallSpec(arguments=()),
)
KEY = "a" * 64
FINGERPRINT: dict[str, Any] = {"torch": "2.9.0"}


def entry(**changes: Any) -> Entry:
    base: dict[str, Any] = {
        "module": "main", "bucket": "batch", "hardware": "cpu", "verdict": "Rejected", "reason": "NoDifference",
        "message": "", "tier": None, "request_key": KEY, "fingerprint": FINGERPRINT, "figures": {}, "files": (),
        **changes,
    }  # fmt: skip
    return Entry(**base)


def make(folder: Path, *entries: Entry, contract: Target = CONTRACT) -> Work:
    manifest = Manifest(
        namespace="prod", name="vision", uid="u", revision="vision-1", image="i", image_python_path=None,
        targets=entries or (entry(),),
    )  # fmt: skip
    data = manifest.to_bytes()
    (folder / "base" / "main" / "batch" / "cpu").mkdir(parents=True)
    (folder / "base" / "manifest.json").write_bytes(data)
    contract.write(folder / "base" / "main" / "batch" / "cpu" / "target.json")
    request = parse_request(requests.make(base=digest_of(data)))
    module, bucket = request.target("main", "batch")
    return Work(
        launcher=folder, request_file=folder / "request.json", request=request, module=module, bucket=bucket,
        folder=folder / "work", deadline=time.monotonic() + 60, report=Report(target="main/batch"), request_key=KEY,
    )  # fmt: skip


def test_the_same_module_asked_for_in_the_same_way_is_found(tmp_path: Path) -> None:
    work = make(tmp_path)
    former = carry.find(work, CONTRACT)
    assert former.entry == entry()
    former.copy_to(tmp_path / "artifact")
    assert [p.name for p in (tmp_path / "artifact").iterdir()] == ["target.json"]


def another(**changes: str) -> Target:
    module = replace(CONTRACT.identity.modules[""], **changes)
    return replace(CONTRACT, identity=replace(CONTRACT.identity, modules={"": module}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"described": another(code="c")}, "the code of the module"),
        ({"described": another(attributes="c")}, "an attribute"),
        ({"entry": entry(request_key="b" * 64)}, "asked for otherwise"),
        ({"entry": entry(reason="ErrorAboveMaximum")}, "ErrorAboveMaximum"),
        ({"entry": entry(verdict="Failed", reason="Timeout")}, "has nothing for this target"),
        ({"entry": entry(hardware="gpu")}, "has nothing for this target"),
        ({"entry": entry(bucket="other")}, "has nothing for this target"),
        ({"lose": "manifest.json"}, "could not be brought"),
        ({"lose": "main/batch/cpu/target.json"}, "contract cannot be read"),
        ({"damage": "manifest.json"}, "cannot be read"),
        ({"damage": "main/batch/cpu/target.json"}, "contract cannot be read"),
    ],
)
def test_what_is_another_graph_or_not_there_is_said(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    work = make(tmp_path, *([change["entry"]] if "entry" in change else []))
    if "lose" in change:
        (tmp_path / "base" / change["lose"]).unlink()
    if "damage" in change:
        (tmp_path / "base" / change["damage"]).write_text("{}")
    with pytest.raises(carry.AnotherGraphError, match=words):
        carry.find(work, change.get("described", CONTRACT))


@pytest.mark.parametrize("base", ["", "sha256:x", 7, "latest"])
def test_a_base_that_is_no_digest_is_refused(base: object) -> None:
    with pytest.raises(RequestError, match=r"request\.base"):
        parse_request(requests.make(base=base))


def test_a_request_without_one_is_as_ever() -> None:
    assert parse_request(requests.make()).base is None


def rejected(folder: Path, report: bytes | None, **changes: Any) -> tuple[Work, Decision, dict[str, Any]]:
    """A target that was Rejected, carried over: what is decided, and the new report."""
    work = make(folder, entry(**changes))
    if report is not None:
        (folder / "base" / "main" / "batch" / "cpu" / "report.json").write_bytes(report)
    for name in (work.artifact, work.described):
        name.mkdir(parents=True)
    CONTRACT.write(work.described / "target.json")
    with work.report.stage("loading the model"):
        decision = target._carried_over(work, torch.nn.Identity(), CONTRACT, (), changes=False)
    assert decision is not None
    result = target._result(work, verdict=decision.verdict, reason=decision.reason, message=decision.message)
    work.report.write(work.artifact, result, hardware="cpu")
    return work, decision, json.loads((work.artifact / "report.json").read_text())


SEEN = {
    "formatVersion": 1, "verdict": "Rejected", "message": "too slow", "stages": [{"name": "measuring", "seconds": "9.000"}],
    "speed": [{"inputs": "typical", "speedup": "0.8000"}], "errors": [{"inputs": "typical, seed 1", "maximum": "0"}],
    "fallbacks": [{"tier": "package", "why": "ExportFailed: model.py:3"}], "environment": {"processor": "a quick one"},
}  # fmt: skip
FIGURES = {"speedup": "0.8000", "maxError": "1e-6", "compileSeconds": "17.1000"}


def test_what_stays_rejected_keeps_its_figures_and_its_report_which_says_of_which_revision_it_is(
    tmp_path: Path,
) -> None:
    work, decision, report = rejected(tmp_path, json.dumps(SEEN).encode(), message="too slow", figures=FIGURES)
    assert (decision.verdict, decision.reason) == ("Rejected", "NoDifference")
    assert decision.message == "carried over from the revision before, not compiled again: too slow"
    assert {name: report[name] for name in ("speed", "errors", "fallbacks")} == {
        name: SEEN[name] for name in ("speed", "errors", "fallbacks")
    }
    assert report["figures"] == {"speedup": "0.8000", "maxError": "1e-6"}
    assert report["carriedOver"] == [{"base": work.request.base, "environment": {"processor": "a quick one"}}]
    assert [stage["name"] for stage in report["stages"]] == ["loading the model"]


def test_what_is_carried_over_again_is_still_of_the_revision_that_saw_it(tmp_path: Path) -> None:
    _, decision, report = rejected(tmp_path, json.dumps(SEEN).encode(), message="too slow")
    (tmp_path / "next").mkdir()
    _, again, next_report = rejected(tmp_path / "next", json.dumps(report).encode(), message=decision.message)
    assert again.message == decision.message
    assert next_report["carriedOver"] == report["carriedOver"]
    assert next_report["speed"] == SEEN["speed"]


@pytest.mark.parametrize("report", [None, b"no JSON", b"[1]"])
def test_where_there_is_no_report_to_keep_that_is_said(tmp_path: Path, report: bytes | None) -> None:
    work, decision, new = rejected(tmp_path, report, message="too slow", figures=FIGURES)
    assert decision.verdict == "Rejected"
    why = "the earlier revision has no report that can be read"
    assert new["carriedOver"] == [{"base": work.request.base, "why": why}]
    assert new["figures"]["speedup"] == "0.8000"
