"""Termination messages: every byte of them may be hostile."""

from __future__ import annotations

import base64
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.api.enums import Verdict, VerdictReason
from preheat_operator.plan.termination import (
    Complaint,
    Ending,
    Progress,
    Published,
    TargetName,
    plain,
    read_compile,
    read_complaint,
    read_publish,
)
from unit.plan.simulation import KEPT

DIGEST = "sha256:" + "a" * 64
ONE = Ending(
    target=TargetName(module="main", bucket="one"), verdict=Verdict.KEPT, reason=VerdictReason.FASTER,
    speedup="1.7500", first_answer="0.1200", size=1900000,
)  # fmt: skip


def message(**fields: object) -> str:
    return json.dumps({"v": 1, "digest": DIGEST, "pythonPath": None, "targets": [KEPT], **fields})


def packed(lines: object, **fields: object) -> str:
    data = base64.b64encode(zlib.compress(json.dumps(lines).encode(), 9)).decode()
    return json.dumps({"v": 1, "digest": DIGEST, "pythonPath": None, "targetsZ": data, **fields})


@pytest.mark.parametrize("text", [message(), packed([KEPT])], ids=["plain", "packed"])
def test_both_forms_say_the_same(text: str) -> None:
    assert read_publish(text) == Published(digest=DIGEST, python_path=None, endings=(ONE,))


@pytest.mark.parametrize(
    "text",
    [
        "", "no", "[]", "null", "1", "[" * 5000, '{"v":2}', message(v="1"), message(digest="sha256:zz"), message(digest=None),
        message(pythonPath=7), message(pythonPath="x" * 5000), message(targets="x"), message(targets=["x"] * 129),
        packed("x" * 400_000), packed({}), json.dumps({"v": 1, "digest": DIGEST, "targetsZ": "!"}),
        json.dumps({"v": 1, "digest": DIGEST, "targetsZ": base64.b64encode(b"x").decode()}),
        json.dumps({"v": 1, "digest": DIGEST, "targetsZ": 5}), json.dumps({"v": 1, "digest": DIGEST}),
    ],
)  # fmt: skip
def test_what_cannot_be_believed_is_nothing(text: str) -> None:
    assert read_publish(text) is None


def test_a_bomb_is_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(b" " * 5_000_000, 9)).decode()
    assert len(bomb) < 8192
    assert read_publish(json.dumps({"v": 1, "digest": DIGEST, "targetsZ": bomb})) is None


@pytest.mark.parametrize(
    "line",
    [
        "", "main|one", "main|one|Kept|Faster|1|1", "main|one|Kept|Faster|1|1|1|1", "Main|one|Kept|Faster|||",
        "../x|one|Kept|Faster|||", "main|one|Good|Faster|||", "main|one|Kept|Unschedulable|||", "main|one|Kept|X|||", 7, None,
    ],
)  # fmt: skip
def test_a_target_that_is_not_one_is_left_out(line: object) -> None:
    answer = read_publish(message(targets=[line, KEPT]))
    assert isinstance(answer, Published)
    assert answer.endings == (ONE,)


@pytest.mark.parametrize("figure", ["-1", "1e5", "NaN", "x", "1.", "9" * 40])
def test_a_figure_that_is_not_one_is_unknown(figure: str) -> None:
    answer = read_publish(message(targets=[f"main|one|Kept|Faster|{figure}|{figure}|{figure}"]))
    assert isinstance(answer, Published)
    (ending,) = answer.endings
    assert (ending.speedup, ending.first_answer, ending.size) == (None, None, None)


def test_the_first_word_on_a_target_counts() -> None:
    answer = read_publish(message(targets=[KEPT, "main|one|Failed|Internal|||"]))
    assert isinstance(answer, Published)
    assert answer.endings == (ONE,)


def test_complaints_and_progress() -> None:
    text = json.dumps({"v": 1, "reason": "TorchMissing", "message": "a\nb\x00" + "c" * 5000})
    complaint = read_compile(text)
    assert isinstance(complaint, Complaint)
    assert complaint.reason == "TorchMissing"
    assert complaint.message.startswith("a b c")
    assert len(complaint.message) == 1024
    assert read_complaint(text) == complaint
    assert read_complaint('{"v":1,"reason":"not a word"}') is None
    running = read_compile('{"v":1,"running":"main/one","done":[]}')
    assert running == Progress(running=TargetName(module="main", bucket="one"))
    assert read_compile('{"v":1,"running":"main/../one"}') == Progress(running=None)
    assert read_compile("\x00") == Progress(running=None)


@given(st.one_of(st.text(), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["v", "digest", "targets", "targetsZ", "pythonPath", "reason", "message", "running"]), inner),
    max_leaves=12).map(json.dumps)))  # fmt: skip
def test_nothing_crashes_a_reader(text: str) -> None:
    assert isinstance(read_publish(text), Published | Complaint | None)
    assert isinstance(read_compile(text), Complaint | Progress)
    assert isinstance(read_complaint(text), Complaint | None)


@given(st.text(), st.integers(2, 50))
def test_plain_text_is_one_printable_bounded_line(text: str, limit: int) -> None:
    line = plain(text, limit=limit)
    assert len(line) <= limit
    assert line.isprintable()
