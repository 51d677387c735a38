"""What a pod may say, and that nothing else gets in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.answers.message import MAX_BODY_BYTES, OTHER_SHAPE, Answer, Message, MessageError, parse
from preheat_operator.api.served import MAX_CHARACTERS, Served
from preheat_runtime.reasons import CLASSES, OUTCOMES
from preheat_runtime.sending import MAX_RECORDS

RECORD = {
    "event": "preheat", "when": "first-answer", "outcome": "cold", "reasonClass": "TorchDiffers",
    "firstAnswerSeconds": 12.5, "bytes": 7,
}  # fmt: skip


def body(**changes: Any) -> bytes:
    return json.dumps({"v": 1, "model": "vision", "records": [RECORD]} | changes).encode()


def record(**changes: Any) -> bytes:
    return body(records=[RECORD | changes])


def test_a_report() -> None:
    said = parse(body(records=[RECORD, {"event": "preheat-error"}], uncovered=[{"shape": "float32[2,64]", "count": 3}]))
    assert said == Message(
        model="vision",
        answers=(Answer(first=True, outcome="cold", reason="TorchDiffers", seconds=12.5, size=7),),
        errors=1,
        uncovered=(("float32[2,64]", 3),),
        modules=(None,),
    )


def test_what_is_noted_on_the_pod() -> None:
    target = {"module": "main", "bucket": "one", "hardware": "cpu"}
    said = parse(
        body(
            records=[
                RECORD, RECORD | target | {"outcome": "hot", "reasonClass": "Package"}, RECORD | {"when": "changed"},
                {"event": "preheat-mismatch", **target}, {"event": "preheat-mismatch", "module": "A\nB"},
                {"event": "preheat-steady", **target, "timesTheJobs": 1.5, "medianMs": 7},
            ],
            uncovered=[{"shape": "none", "count": 2, "module": "main"}, {"shape": "free words", "count": 3}],
            answered=40, node={"machine": "x86_64", "gpu": "<x>"},
        )
    )  # fmt: skip
    assert said.served(7) == Served(
        hour=7, answers={"cold/TorchDiffers": 1, "hot/Package": 1}, first={"main/one/cpu": 12.5}, wrong=("main/one/cpu",),
        steady={"main/one/cpu": 1.5}, answered=40, uncovered={"main|none": 2, "|other": 3}, node={"machine": "x86_64"},
    )  # fmt: skip


def test_as_many_records_as_the_runtime_sends_at_once_are_taken() -> None:
    longest = RECORD | {"when": "first-use", "outcome": "hot", "reasonClass": "Package", "bytes": 2**40,
                        "sinceCompileSeconds": 12345.123456} | dict.fromkeys(("module", "bucket", "hardware"), "a" * 63)  # fmt: skip
    message = body(records=[longest] * MAX_RECORDS)
    assert len(parse(message).answers) == MAX_RECORDS
    assert len(message) < MAX_BODY_BYTES / 2, "and counts go along"


def test_a_later_answer_without_figures() -> None:
    said = parse(body(records=[{"event": "preheat", "when": "changed", "outcome": "hot", "reasonClass": "Package"}]))
    assert said.answers == (Answer(first=False, outcome="hot", reason="Package"),)


def test_what_a_newer_runtime_adds_is_passed_over() -> None:
    assert parse(body(more=1, records=[RECORD | {"more": 1}, {"event": "later"}])).answers == parse(body()).answers
    assert parse(record(reasonClass="Newer")).answers[0].reason == "Other"


@pytest.mark.parametrize("reason", CLASSES)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_outcome_and_class_is_known(outcome: str, reason: str) -> None:
    answer = parse(record(outcome=outcome, reasonClass=reason)).answers[0]
    assert (answer.outcome, answer.reason) == (outcome, reason)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        (b"", "no JSON"), (b"[" * 60000, "no JSON"), (b"\xff", "no JSON"), (b"[]", "no JSON object"),
        (body(v=2), "v"), (body(v=None), "v"), (body(model=None), "model"), (body(model="A b"), "model"),
        (body(model="x" * 300), "model"), (body(records={}), "records"), (body(records=[1]), "records"),
        (body(records=[RECORD] * 65), "records"), (body(uncovered="x"), "uncovered"),
        (record(outcome="fine"), r"records\[0\].outcome"), (record(outcome=["hot"]), r"records\[0\].outcome"),
        (record(firstAnswerSeconds="1"), "firstAnswerSeconds"), (record(firstAnswerSeconds=-1), "firstAnswerSeconds"),
        (record(firstAnswerSeconds=True), "firstAnswerSeconds"), (record(bytes=1e300), "bytes"),
        (record(firstAnswerSeconds=float("nan")), "firstAnswerSeconds"), (record(bytes=-1), "bytes"),
        (body(uncovered=[{"shape": 1, "count": 1}]), r"uncovered\[0\].shape"),
        (body(uncovered=[{"shape": "none", "count": 0}]), r"uncovered\[0\].count"),
        (body(uncovered=[{"shape": "none", "count": True}]), r"uncovered\[0\].count"),
        (body(uncovered=[{"shape": "none"}]), r"uncovered\[0\].count"),
        (body(answered=-1), "answered"), (body(answered="1"), "answered"), (body(answered=True), "answered"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(said: bytes, names: str) -> None:
    with pytest.raises(MessageError, match=names):
        parse(said)


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        ("float32[8,3,224,224]", True), ("int64[] bool[3]", True), ("bfloat16[1] more", True), ("none", True),
        ("other", True), ("float8_e4m3fn[1]", True), ("free words", False), ("float32[8,3]; x", False),
        ("float32[a]", False), ("x" * 1000, False), (" ".join(["float32[1]"] * 9), False), ("float32[1]\n", False),
    ],
)  # fmt: skip
def test_shapes_keep_to_their_grammar(shape: str, told: bool) -> None:
    said = parse(body(uncovered=[{"shape": shape, "count": 1}])).uncovered
    assert said == ((shape if told else OTHER_SHAPE, 1),)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@given(JSON, JSON, JSON, JSON)
def test_nothing_breaks_it(outcome: Any, seconds: Any, shape: Any, count: Any) -> None:
    for said in (
        record(outcome=outcome),
        record(firstAnswerSeconds=seconds, reasonClass=outcome),
        body(uncovered=[{"shape": shape, "count": count}]),
        body(model=outcome, answered=count, node=shape),
        body(records=[{"event": "preheat-mismatch", "module": outcome, "bucket": shape, "hardware": count}]),
        body(
            records=[
                {"event": "preheat-steady", "module": "a", "bucket": "b", "hardware": "c", "timesTheJobs": seconds}
            ]
        ),
        json.dumps(outcome).encode(),
    ):
        try:
            message = parse(said)
        except MessageError:
            continue
        assert len(message.served(1).render()) <= MAX_CHARACTERS
        assert all(answer.outcome in OUTCOMES and answer.reason in CLASSES for answer in message.answers)
