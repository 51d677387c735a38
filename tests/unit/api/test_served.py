"""What is kept on a pod of how it was served: bounded, whatever it is made of, and read the same as it was written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from preheat_operator.api.served import (
    MAX_CHARACTERS,
    Served,
    call_of,
    facts,
    gather,
    is_answer,
    is_call,
    is_target,
    merge,
    parse,
)

HOUR = 490_000
TARGETS = st.sampled_from(
    ["main/one/cpu", "main/two/cpu", "unet/one/gpu", "a/b/c", "x" * 63 + "/b/c", "/".join(["y" * 63] * 3)]
)
ANSWERS = st.sampled_from(["hot/Package", "warm/Caches", "cold/TorchDiffers", "eager/Rejected", "cold/Other", "refused/Other",
                           "cold/CpuDiffers", "eager/PackageWrong"])  # fmt: skip
CALLS = st.sampled_from(
    [f"main|float32[{n},64]" for n in range(8)]
    + ["|none", "main|other", "|" + " ".join(["float32[1000000,2,3,4]"] * 5)]
)
COUNTS = st.integers(1, 10**9)
SERVED = st.builds(
    Served,
    answers=st.dictionaries(ANSWERS, COUNTS, max_size=8),
    first=st.dictionaries(TARGETS, st.floats(0, 9e4), max_size=6),
    steady=st.dictionaries(TARGETS, st.floats(0, 9e4), max_size=6),
    wrong=st.lists(TARGETS, max_size=6, unique=True).map(tuple),
    hour=st.just(HOUR),
    answered=st.integers(0, 10**12),
    uncovered=st.dictionaries(CALLS, COUNTS, max_size=10),
    node=st.just({}) | st.just({"machine": "x86_64", "cpuIsa": "X86_64_V3", "gpu": "NVIDIA H100 80GB HBM3"}),
)


def test_what_it_looks_like() -> None:
    on_pod, left = merge(
        Served(),
        Served(
            hour=HOUR, answers={"hot/Package": 3}, first={"main/one/cpu": 0.11}, steady={"main/one/cpu": 1.2345},
            wrong=("main/one/cpu",), answered=100, uncovered={"main|float32[2,64]": 5}, node={"machine": "x86_64"},
        ),
        hour=HOUR,
    )  # fmt: skip
    assert json.loads(on_pod.render()) == {
        "v": 1, "answers": {"hot/Package": 2}, "first": {"main/one/cpu": "0.11"}, "steady": {"main/one/cpu": "1.23"},
        "wrong": ["main/one/cpu"], "hour": HOUR, "answered": 64, "uncovered": {"main|float32[2,64]": 4},
        "node": {"machine": "x86_64"},
    }  # fmt: skip
    assert (left.answers, left.answered, left.uncovered) == ({"hot/Package": 1}, 36, {"main|float32[2,64]": 1})


@given(st.lists(SERVED, max_size=6))
@example([Served(hour=HOUR, steady={"main/one/cpu": 999.5})])
def test_it_fits_and_is_read_as_it_was_written(reports: list[Served]) -> None:
    on_pod = Served()
    for report in reports:
        on_pod, _ = merge(on_pod, report, hour=HOUR)
        text = on_pod.render()
        assert len(text) <= MAX_CHARACTERS
        read = parse(text)
        assert read is not None
        assert (read.wrong, read.answers) == (on_pod.wrong, on_pod.answers), "what decides is never what gives way"
        assert read.render() == text
    said = {target for report in reports for target in report.wrong}
    assert bool(on_pod.wrong) == bool(said)


@given(st.lists(st.integers(1, 1000), max_size=40), st.booleans())
def test_counts_grow_by_powers_of_two_and_nothing_is_lost_on_the_way(counts: list[int], two: bool) -> None:
    on_pod, waiting, writes = Served(), [Served(hour=HOUR), Served(hour=HOUR)], 0
    for turn, count in enumerate(counts):
        which = turn % 2 if two else 0
        more = gather(waiting[which], Served(hour=HOUR, answered=count), hour=HOUR)
        before = on_pod
        on_pod, waiting[which] = merge(on_pod, more, hour=HOUR)
        writes += on_pod != before
    total = sum(counts)
    assert on_pod.answered + sum(w.answered for w in waiting) == total
    assert on_pod.answered == 0 or on_pod.answered & (on_pod.answered - 1) == 0
    assert writes <= max(1, total).bit_length() + 1
    if not two and total:
        assert on_pod.answered * 2 > total


def test_an_hour_ends_and_so_does_the_next() -> None:
    on_pod, _ = merge(Served(), Served(hour=HOUR, answered=8, uncovered={"main|none": 4}), hour=HOUR)
    later = on_pod.at(HOUR + 1)
    assert (later.answered, later.uncovered) == (0, {})
    assert (later.answered_before, later.uncovered_before) == (8, {"main|none": 4})
    added, _ = merge(on_pod, Served(hour=HOUR + 1, uncovered={"main|none": 2}), hour=HOUR + 1)
    assert (added.uncovered, added.uncovered_before) == ({"main|none": 2}, {"main|none": 4})
    for gone in (on_pod.at(HOUR + 2), on_pod.at(HOUR - 1)):
        assert (gone.uncovered, gone.uncovered_before, gone.answered_before) == ({}, {}, 0)
    late, _ = merge(on_pod, Served(hour=HOUR - 1, uncovered={"main|none": 64}, wrong=("a/b/c",)), hour=HOUR)
    assert late.uncovered == {"main|none": 4}, "what waited for an hour is not of this one"
    assert late.wrong == ("a/b/c",), "but what does not end is kept"


@pytest.mark.parametrize(
    "text",
    [None, "", "x", "[]", "null", "7", "[" * 4000, '{"v":2}', '{"v":1,"wrong":["a/b/c"]}' + " " * MAX_CHARACTERS],
)
def test_what_is_no_annotation_says_nothing(text: str | None) -> None:
    assert parse(text) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | CALLS | TARGETS | ANSWERS, inner, max_size=8)
    ),
    max_leaves=20,
)
FIELDS = st.sampled_from(
    [
        "answers",
        "first",
        "steady",
        "wrong",
        "hour",
        "answered",
        "answeredBefore",
        "uncovered",
        "uncoveredBefore",
        "node",
    ]
)


@given(st.dictionaries(FIELDS, JSON))
def test_whatever_somebody_writes_there_only_names_and_numbers_come_out(fields: dict[str, Any]) -> None:
    read = parse(json.dumps({"v": 1, **fields}))
    if read is None:
        return
    assert all(is_answer(each) for each in read.answers)
    assert all(is_target(each) for each in (*read.first, *read.steady, *read.wrong))
    assert all(is_call(each) for each in (*read.uncovered, *read.uncovered_before))
    assert all(0 <= value <= 1e6 for value in (*read.first.values(), *read.steady.values()))
    assert max(len(read.answers), len(read.first), len(read.wrong), len(read.uncovered)) <= 6
    again, _ = merge(read, Served(), hour=read.hour)
    assert len(again.render()) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    ("module", "shape", "call"),
    [
        ("main", "float32[2,64]", "main|float32[2,64]"), (None, "none", "|none"), ("A B", "none", "|none"),
        ("main", "free words", "main|other"), ("main", " ".join(["float32[1,2,3,4,5,6]"] * 8), "main|other"),
        ("x" * 64, "none", "|none"), ("main", "float32[2,64]\n", "main|other"),
    ],
)  # fmt: skip
def test_calls_are_named_by_module_and_shape(module: str | None, shape: str, call: str) -> None:
    assert call_of(module, shape) == call
    assert is_call(call)


def test_facts_are_plain_words() -> None:
    good = {"machine": "x86_64", "cpuIsa": "below X86_64_V3", "gpu": "NVIDIA A100-SXM4-80GB"}
    assert facts(good | {"more": "x"}) == good
    for odd in ("", "a\nb", "<b>", "x" * 65, 7, None, ["x"]):
        assert facts({"gpu": odd}) == {}
    assert facts("x") == facts(None) == {}
