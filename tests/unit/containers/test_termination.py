"""What `fetch` came to is in the pod's status, where the kubelet will look, and nowhere else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from preheat_operator import fetch
from preheat_operator.containers import termination

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_fetch_says_what_it_came_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    (tmp_path / "preheat").mkdir()
    for name, value in {
        "PREHEAT_DIR": tmp_path / "preheat",
        "PREHEAT_MANIFEST": "none",
        "PREHEAT_TERMINATION_LOG": log,
    }.items():
        monkeypatch.setenv(name, str(value))
    fetch.main()
    assert json.loads(log.read_text()) == {"v": 1, "outcome": "NoRevision", "reason": ""}
    monkeypatch.setenv("PREHEAT_MANIFEST", "nonsense")
    fetch.main()
    assert json.loads(log.read_text()) == {"v": 1, "outcome": "Failed", "reason": "UnknownFormat"}


def test_outside_of_a_pod_no_such_file_is_made(tmp_path: Path) -> None:
    termination.note(b"x", {"PREHEAT_TERMINATION_LOG": str(tmp_path / "none")})
    assert list(tmp_path.iterdir()) == []
