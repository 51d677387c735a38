"""What fetch does with a pod for which nothing is ready: it starts all the same, unless it was told to fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from preheat_operator import fetch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where fetch works, and a termination log beside it."""
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path / "preheat"))
    (tmp_path / "preheat").mkdir()
    (tmp_path / "termination-log").touch()
    monkeypatch.setattr(fetch, "_TERMINATION_LOG", tmp_path / "termination-log")
    return tmp_path


def outcome(told: Path) -> str:
    return str(json.loads((told / "preheat" / "fetch.json").read_text())["outcome"])


@pytest.mark.parametrize("manifest", ["", "none", "pending"])
def test_without_a_manifest_the_pod_starts(told: Path, monkeypatch: pytest.MonkeyPatch, manifest: str) -> None:
    monkeypatch.setenv("PREHEAT_MANIFEST", manifest)
    assert fetch.main() == 0
    assert outcome(told) == "NoRevision"
    assert (told / "preheat" / "site" / "preheat_runtime").is_dir(), "what makes PYTHONPATH harmless"
    assert (told / "termination-log").read_text() == ""


@pytest.mark.parametrize("manifest", ["none", "pending", "latest", "sha256:" + "a" * 64])
def test_a_pod_that_was_told_to_fails_with_the_reason(
    told: Path, monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    monkeypatch.setenv("PREHEAT_WHEN_MISSING", "Fail")
    monkeypatch.setenv("PREHEAT_MANIFEST", manifest)
    monkeypatch.setenv("PREHEAT_FETCH_TIMEOUT_SECONDS", "3")
    monkeypatch.setenv("PREHEAT_STORE_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("PREHEAT_STORE_BUCKET", "b")
    monkeypatch.setenv("PREHEAT_STORE_TENANT", "c.prod")
    assert fetch.main() == fetch.MISSING
    assert fetch.MISSING > 0
    said = (told / "termination-log").read_text()
    assert said.startswith("whenMissing is Fail: ")
    assert outcome(told) != "Fetched"
    if manifest in ("none", "pending"):
        assert "no revision is ready for this image" in said


def test_another_word_than_fail_does_not(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREHEAT_WHEN_MISSING", "Wait")
    monkeypatch.setenv("PREHEAT_MANIFEST", "none")
    assert fetch.main() == 0
