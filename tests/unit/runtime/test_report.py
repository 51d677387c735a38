"""One line for each thing worth knowing, and never an exception."""

import json
import threading
from dataclasses import replace

import pytest

from preheat_runtime import report
from preheat_runtime.report import Answer, Checked, Reporter


@pytest.fixture
def reporter(monkeypatch, tmp_path):
    monkeypatch.setattr("atexit.register", lambda function: None)
    return Reporter({"PREHEAT_MODEL": "vision", "PREHEAT_WORK_DIR": str(tmp_path)}, manifest="sha256:1")


def lines(capfd):
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_each_distinct_answer_once(reporter, capfd, tmp_path):
    for _ in range(3):
        reporter.answered(Answer(outcome="hot", reason="package", class_name="Net", first_answer_seconds=0.0123456789))
    reporter.answered(Answer(outcome="cold", reason="another shape", class_name="Net"))
    reporter.answered(Answer(outcome="hot", reason="package", class_name="Other"))
    said = lines(capfd)
    assert [(line["when"], line["outcome"], line["class"]) for line in said] == [
        ("first-answer", "hot", "Net"),
        ("changed", "cold", "Net"),
        ("first-answer", "hot", "Other"),
    ]
    assert said[0]["firstAnswerSeconds"] == 0.012346
    assert said[0]["model"] == "vision"
    assert [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()] == said


def test_a_process_that_keeps_changing_is_not_a_flood(reporter, capfd):
    for number in range(200):
        reporter.answered(Answer(outcome="cold", reason=f"reason {number}"))
    assert len(lines(capfd)) == report.MAX_LINES


def test_failures_are_said_once_for_each_kind(reporter, capfd):
    for _ in range(3):
        reporter.failed("binding", ValueError("a"))
    reporter.failed("binding", KeyError("b"))
    assert [line["reason"] for line in lines(capfd)] == ["binding: ValueError: a", "binding: KeyError: 'b'"]


def test_a_check_is_said_once_and_holds_sizes_only(reporter, capfd):
    wrong = Checked(
        module="main", bucket="one", hardware="cpu", class_name="Net", reason="the numbers differ", mode="After",
        error=0.123456, allowed=1e-3,
    )  # fmt: skip
    for _ in range(2):
        reporter.checked(wrong)
        reporter.checked(replace(wrong, error=None, allowed=None, reason="a call holds 7 bytes"))
        reporter.checked(replace(wrong, error=None, allowed=None, reason="a call holds 8 bytes"))
    first, second = lines(capfd)
    expected = {"event": "preheat-mismatch", "bucket": "one", "error": "0.123", "allowed": "0.001", "verify": "After"}
    assert expected.items() <= first.items()
    assert (second["event"], second["reason"]) == ("preheat-unchecked", "a call holds 7 bytes")
    assert "error" not in second


def test_nowhere_to_write_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr("sys.stderr", None)
    silent = Reporter({"PREHEAT_WORK_DIR": str(tmp_path / "none" / "here")}, manifest=None)
    silent.answered(Answer(outcome="hot", reason="package"))
    assert not (tmp_path / "none").exists()


def test_log_off_still_keeps_the_file(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr("atexit.register", lambda function: None)
    quiet = Reporter({"PREHEAT_LOG": "off", "PREHEAT_WORK_DIR": str(tmp_path)}, manifest=None)
    quiet.answered(Answer(outcome="hot", reason="package"))
    assert lines(capfd) == []
    assert json.loads((tmp_path / "reports.jsonl").read_text())["outcome"] == "hot"


def test_lines_of_many_threads_do_not_tear(reporter, tmp_path):
    def say(number):
        reporter.answered(Answer(outcome="cold", reason=f"{number} " + "x" * 500))

    threads = [threading.Thread(target=say, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]) == 16
