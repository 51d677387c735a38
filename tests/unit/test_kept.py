"""What tests keep of compiling is what it would make again."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import kept

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A cache of its own, and what was really made."""
    monkeypatch.setenv("PREHEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PREHEAT_FRESH", raising=False)
    # Those of the session that this test runs in are not its business.
    monkeypatch.setattr(kept, "_offered", {})
    monkeypatch.setattr(kept, "_used", set())
    return []


def get(folder: Path, runs: list[str], *what: str, inputs: tuple[str, ...] = ("pyproject.toml",)) -> str:
    """What a maker says, in a folder with a program in it; it notes its runs."""

    def make(place: Path) -> str:
        runs.append(folder.name)
        (place / "bin").mkdir()
        (place / "bin" / "tool").write_text("x" * len(runs))
        (place / "bin" / "tool").chmod(0o755)
        return f"made for {folder.name}"

    said = kept.made(folder, make, *what, inputs=inputs)
    assert os.access(folder / "bin" / "tool", os.X_OK)
    return said


def test_the_same_is_made_once_and_copied_from_then_on(runs: list[str], tmp_path: Path) -> None:
    assert get(tmp_path / "one", runs, "a") == "made for one"
    (tmp_path / "one" / "bin" / "tool").write_text("changed by the test")
    kept.settle(passed=True)
    assert get(tmp_path / "two", runs, "a") == "made for one"
    assert (tmp_path / "two" / "bin" / "tool").read_text() == "x"
    (tmp_path / "two" / "bin" / "tool").write_text("changed by this one too")
    get(tmp_path / "three", runs, "a")
    assert (tmp_path / "three" / "bin" / "tool").read_text() == "x"
    assert runs == ["one"]


def test_another_input_variable_or_file_is_another(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    get(tmp_path / "one", runs, "a")
    kept.settle(passed=True)
    get(tmp_path / "two", runs, "b")
    get(tmp_path / "three", runs, "a", inputs=("Makefile",))
    monkeypatch.setenv("CXX", "clang++")
    get(tmp_path / "four", runs, "a")
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(kept, "_machine", lambda: "another CPU")
    get(tmp_path / "five", runs, "a")
    assert runs == ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize("fresh", ["0", "1"])
def test_what_was_made_never_lies_where_it_was_made(
    runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: str
) -> None:
    """So a test that holds there alone fails at once, and not only where another run made it."""
    monkeypatch.setenv("PREHEAT_FRESH", fresh)
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "model.py").write_text("before")

    def make(place: Path) -> str:
        assert place != folder
        assert not folder.exists()
        assert (place / "model.py").read_text() == "before"
        (place / "result").write_text(str(place))
        return str(place)

    said = kept.made(folder, make)
    assert (folder / "result").read_text() == said
    assert not os.path.lexists(said)

    def fail(place: Path) -> str:
        (place / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        kept.made(folder, fail, "another")
    assert {each.name for each in folder.iterdir()} == {"model.py", "result", "half"}, "what is there tells why"


def test_a_changed_checkout_is_another(runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "REPOSITORY", tmp_path)
    (tmp_path / "code").mkdir()
    for number, text in enumerate(("a", "a", "b")):
        (tmp_path / "code" / "model.py").write_text(text)
        get(tmp_path / str(number), runs, inputs=("code",))
        kept.settle(passed=True)
    assert runs == ["0", "2"]


def test_what_names_the_place_of_the_checkout_is_refused(runs: list[str], tmp_path: Path) -> None:
    def make(place: Path) -> str:
        runs.append("made")
        (place / "result.json").write_text(f'{{"path": "{kept.REPOSITORY}/tests"}}')
        return ""

    with pytest.raises(AssertionError, match=r"one/result\.json: names .*; keep the checkout's place out"):
        kept.made(tmp_path / "one", make)
    with pytest.raises(AssertionError, match="what it said: names "):
        kept.made(tmp_path / "two", lambda _: f"wrote {kept.REPOSITORY}/tests")
    kept.settle(passed=True)
    with pytest.raises(AssertionError):
        kept.made(tmp_path / "one", make)
    assert runs == ["made", "made"]


def test_what_a_failed_session_made_or_used_is_made_again(runs: list[str], tmp_path: Path) -> None:
    get(tmp_path / "one", runs, "a")
    kept.settle(passed=False)
    get(tmp_path / "two", runs, "a")
    kept.settle(passed=True)
    get(tmp_path / "three", runs, "a")
    kept.settle(passed=False)
    get(tmp_path / "four", runs, "a")
    assert runs == ["one", "two", "four"]


def test_a_fresh_run_neither_takes_nor_leaves(runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    get(tmp_path / "one", runs, "a")
    kept.settle(passed=True)
    monkeypatch.setenv("PREHEAT_FRESH", "1")
    get(tmp_path / "two", runs, "a")
    kept.settle(passed=False)
    monkeypatch.delenv("PREHEAT_FRESH")
    get(tmp_path / "three", runs, "a")
    assert runs == ["one", "two"]


def test_the_longest_unused_goes_first(runs: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST", 2)
    for number, what in enumerate("aba"):
        get(tmp_path / str(number), runs, what)
        kept.settle(passed=True)
        for entry in (tmp_path / "cache" / "made").iterdir():  # a minute goes by
            os.utime(entry, (entry.stat().st_atime, entry.stat().st_mtime - 60))
    get(tmp_path / "c", runs, "c")
    kept.settle(passed=True)
    assert runs == ["0", "1", "c"]
    get(tmp_path / "again", runs, "a")
    get(tmp_path / "lost", runs, "b")
    assert runs == ["0", "1", "c", "lost"]
