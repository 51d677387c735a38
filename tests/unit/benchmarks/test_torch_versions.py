"""What the trial of torch's versions calls a miss: those that are known must go on working, or go on being refused."""

from __future__ import annotations

import json
import sys

import pytest

from lab.paths import REPOSITORY

GOOD = {"faults": [], "verdict": "Kept GatesMet"}
WRONG = {"faults": ["expected tier package, got caches"], "verdict": "Kept GatesMet"}
REFUSED = "TorchUnsupported"


@pytest.fixture
def versions(benchmark):
    return benchmark("torch_versions")


def row(version: str, *models: dict, reason: str | None = None, bad_calls: tuple[str, ...] = ()) -> dict:
    return {
        "version": version,
        "features": {"reason": reason, "message": f"torch {version} lacks something" if reason else ""},
        "models": dict(zip(("small_weights", "branching"), models, strict=False)),
        "badCalls": None if reason else list(bad_calls),
        **dict.fromkeys(("commit", "date", "machine", "python"), "x"),
    }


@pytest.mark.parametrize(
    ("version", "models", "reason", "missed"),
    [
        ("2.13.0", (GOOD, GOOD), None, None),
        ("2.14.7", (GOOD, GOOD), None, None),
        ("2.15.0", (GOOD, GOOD), None, None),
        ("2.13.0", (), REFUSED, "is refused, and must work"),
        ("2.14.7", (), REFUSED, "is refused, and must work"),
        ("2.15.0", (), REFUSED, "is refused, and must work"),
        ("2.15.0", (GOOD, WRONG), None, "neither works nor is refused"),
        ("2.15.0", (), None, "neither works nor is refused"),
        ("2.9.1", (), REFUSED, None),
        ("2.12.1", (), REFUSED, None),
        ("2.12.1", (GOOD, GOOD), None, "works, and must be refused"),
        ("2.12.1", (WRONG, GOOD), None, "neither works nor is refused"),
        ("2.16.0", (GOOD, GOOD), None, None),
        ("2.16.0", (), REFUSED, None),
        ("2.16.0", (WRONG, WRONG), None, "neither works nor is refused"),
    ],
)
def test_a_version_must_do_what_is_known_of_it(versions, version, models, reason, missed):
    found = row(version, *models, reason=reason)
    assert versions.misses(found) == missed
    assert (f"| NO: {missed} |" in versions.table([found])) == (missed is not None)


def test_one_whose_calls_are_not_refused_does_not_work_and_the_table_says_what_became_of_them(versions):
    found = row("2.14.1", GOOD, GOOD, bad_calls=("warm: ended with -6",))
    assert versions.misses(found) == "neither works nor is refused"
    assert "- 2.14.1, an index out of range: warm: ended with -6" in versions.table([found]).splitlines()


def test_what_was_measured_is_as_it_must_be_and_each_known_version_is_among_it(versions):
    rows = json.loads((REPOSITORY / "docs/measured/torch-versions.json").read_text())
    assert [versions.misses(each) for each in rows] == [None] * len(rows)
    tried = {each["version"].rpartition(".")[0] for each in rows}
    assert tried == {*versions.MUST_WORK, *versions.MUST_BE_REFUSED}


@pytest.mark.parametrize(("reason", "code"), [(REFUSED, 1), (None, 0)])
def test_one_that_must_work_and_is_refused_ends_it_with_1(versions, monkeypatch, tmp_path, capsys, reason, code):
    found = row("2.15.0", *(() if reason else (GOOD, GOOD)), reason=reason)
    monkeypatch.setattr(versions, "row", lambda _: found)
    monkeypatch.setattr(sys, "argv", ["torch_versions.py", "2.15.0", "--out", str(tmp_path)])
    assert versions.main() == code
    assert ("is refused, and must work: torch 2.15.0 lacks something" in capsys.readouterr().out) == bool(code)
