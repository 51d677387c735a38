"""One line for each thing worth knowing, and never an exception."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from preheat_operator.api.spec import MAX_TARGETS
from preheat_runtime import report
from preheat_runtime.report import Answer, Checked, Reporter

SOURCES = str(Path(report.__file__).resolve().parents[1])


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


def use(bucket, **changes):
    return Answer(outcome="hot", reason="package", module="main", bucket=bucket, class_name="Net", **changes)


def test_each_bucket_s_first_use_is_said_whatever_was_said_before(reporter, capfd):
    for number in range(report.MAX_LINES + 5):
        reporter.answered(Answer(outcome="cold", reason=f"reason {number}", class_name="Net"))
    assert [line["when"] for line in lines(capfd)] == ["first-answer", *["changed"] * (report.MAX_LINES - 1)]
    for _ in range(2):
        for number in range(40):
            reporter.answered(use(f"b{number}"))
    said = lines(capfd)
    assert [(line["when"], line["bucket"]) for line in said] == [("first-use", f"b{number}") for number in range(40)]


def test_first_uses_take_no_lines_from_the_others_and_are_bounded(reporter, capfd):
    for number in range(report.MAX_BUCKETS + 20):
        reporter.answered(use(f"b{number}"))
    said = lines(capfd)
    assert [line["when"] for line in said] == ["first-answer", *["first-use"] * (report.MAX_BUCKETS - 1)]
    for number in range(report.MAX_LINES):
        reporter.answered(replace(use("b1"), outcome="cold", reason=f"reason {number}"))
        reporter.failed("binding", ValueError("a"))
    said = lines(capfd)
    assert [line.get("when") for line in said].count("changed") == report.MAX_LINES - 1
    assert [line["event"] for line in said].count("preheat-error") == 1


def test_all_buckets_that_a_model_may_have_are_told():
    assert report.MAX_BUCKETS == MAX_TARGETS


def test_a_forked_child_says_its_own_first_uses(reporter, capfd):
    reporter.answered(use("b1"))
    lines(capfd)
    reporter._begin()  # as in a child
    reporter.answered(use("b1"))
    assert [line["when"] for line in lines(capfd)] == ["first-answer"]


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


def test_what_was_not_checked_keeps_back_nothing_that_is_wrong(reporter, capfd):
    not_checked = Checked(
        module="main", bucket="one", hardware="cpu", class_name="Net", reason="a call holds 7 bytes", mode="After"
    )
    for number in range(report.MAX_LINES + 5):
        reporter.checked(replace(not_checked, bucket=f"b{number}"))
    reporter.checked(replace(not_checked, reason="the numbers differ", error=0.5, allowed=1e-3))
    assert [line["event"] for line in lines(capfd)] == [
        *["preheat-unchecked"] * report.MAX_LINES,
        "preheat-mismatch",
    ]


UNCOVERED = """
import os, signal, sys, torch
from preheat_runtime.report import Reporter
reporter = Reporter(os.environ, manifest=None)
for _ in range(9):
    reporter.uncovered((torch.zeros(2, 3),), {}, "main")
reporter.uncovered((torch.zeros(5),), {}, "main")
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_has_told_what_no_bucket_is_for(tmp_path, how):
    script = f"{UNCOVERED}\nos.kill(os.getpid(), {int(how)})"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES, "PREHEAT_WORK_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == -how, done.stderr
    said = [json.loads(line) for line in done.stderr.splitlines()]
    assert {(line["event"], line["when"]) for line in said} == {("preheat-uncovered", "doubled")}
    assert [line["calls"] for line in said] == [{"float32[2,3]": count} for count in (2, 4, 8)]
    assert [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()] == said


def test_a_process_that_ends_by_itself_tells_all_of_them(tmp_path):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES, "PREHEAT_WORK_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", UNCOVERED], env=env, capture_output=True, text=True, timeout=120)
    counts = [line for line in map(json.loads, done.stderr.splitlines()) if line["event"] == "preheat-uncovered"]
    assert (counts[-1]["when"], counts[-1]["calls"]) == ("exit", {"float32[2,3]": 9, "float32[5]": 1})


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
