"""What pods say that is told to people, at which bounds it begins and ends, and that it never does anything."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.conditions import NOTICES
from preheat_operator.api.inputs import Bucket
from preheat_operator.api.served import Served
from preheat_operator.api.status import Notice, Target
from preheat_operator.plan.drift import fragment
from preheat_operator.plan.notices import notices
from preheat_operator.plan.watched import witnesses
from preheat_runtime.reasons import class_of
from unit.plan.pods import HOT, HOUR, pod
from unit.plan.simulation import START, UID, spec
from unit.plan.test_watched import revision

SHAPE = "main|float32[2,3]"
TARGET = Target.model_validate(
    {"module": "main", "bucket": "one", "hardware": "cpu", "verdict": "Kept", "reason": "Faster", "firstAnswer": "2.5"}
)


def parsed(body: dict[str, Any]) -> Any:
    metadata = {"name": "vision", "namespace": "prod", "uid": UID}
    return CompiledModel.model_validate({"metadata": metadata, "spec": body}).spec


def said(*groups: tuple[int, Served], previous: tuple[Notice, ...] = (), later: float = 0) -> dict[str, Notice]:
    now = START + timedelta(seconds=later)
    pods = [pod(f"g{g}p{n}", served=served) for g, (count, served) in enumerate(groups) for n in range(count)]
    found = notices(
        spec=parsed(spec()),
        revision=revision(),
        targets=[TARGET],
        seen=witnesses(pods, now=now),
        previous=previous,
        now=now,
    )
    return {notice.reason: notice for notice in found}


def miss(reason: str = "TorchDiffers", outcome: str = "cold") -> Served:
    return Served(answers={f"{outcome}/{reason}": 1})


def drift(count: int, answered: int = 0, *, before: int = 0, hour: int = HOUR) -> Served:
    calls = {SHAPE: count} if count else {}
    return replace(
        HOT, hour=hour, answered=answered, uncovered=calls, uncovered_before={SHAPE: before} if before else {}
    )


FIRST_SLOW = replace(HOT, first={"main/one/cpu": 2.6})
FIRST_WELL = replace(HOT, first={"main/one/cpu": 2.4})


def steady(times: float) -> Served:
    return replace(HOT, steady={"main/one/cpu": times})


@pytest.mark.parametrize(
    ("reason", "groups", "begins", "stays"),
    [
        ("PodsMiss", [(1, miss())], False, True),
        ("PodsMiss", [(2, miss())], True, True),
        ("PodsMiss", [(2, miss()), (8, HOT)], True, True),
        ("PodsMiss", [(2, miss()), (9, HOT)], False, True),
        ("PodsMiss", [(1, miss()), (9, HOT)], False, True),
        ("PodsMiss", [(1, miss()), (10, HOT)], False, False),
        ("PodsMiss", [(9, HOT), (9, miss("Rejected", "eager")), (9, miss("Caches", "warm"))], False, False),
        ("PodsMiss", [(9, miss("CallNotCovered")), (9, miss("PackageWrong", "eager")), (9, miss("CpuDiffers"))], False, False),
        ("FirstAnswersSlow", [(2, FIRST_SLOW), (2, FIRST_WELL)], True, True),
        ("FirstAnswersSlow", [(2, FIRST_SLOW), (3, FIRST_WELL)], False, True),
        ("FirstAnswersSlow", [(1, FIRST_SLOW), (3, FIRST_WELL)], False, True),
        ("FirstAnswersSlow", [(1, FIRST_SLOW), (4, FIRST_WELL)], False, False),
        ("FirstAnswersSlow", [(9, replace(HOT, first={"other/one/cpu": 99.0}))], False, False),
        ("AnswersSlow", [(2, steady(2.0)), (2, steady(1.0))], True, True),
        ("AnswersSlow", [(9, steady(1.9))], False, True),
        ("AnswersSlow", [(9, steady(1.4))], False, False),
        ("AnswersSlow", [(1, steady(2.0)), (3, steady(1.0))], False, True),
        ("ShapesNotCovered", [(1, drift(64))], True, True),
        ("ShapesNotCovered", [(1, drift(63))], False, True),
        ("ShapesNotCovered", [(2, drift(32))], True, True),
        ("ShapesNotCovered", [(1, drift(32, before=32))], True, True),
        ("ShapesNotCovered", [(1, drift(64, answered=6336))], True, True),
        ("ShapesNotCovered", [(1, drift(64, answered=6400))], False, True),
        ("ShapesNotCovered", [(1, drift(1))], False, True),
        ("ShapesNotCovered", [(1, drift(0))], False, False),
        ("ShapesNotCovered", [(1, drift(9999, hour=HOUR - 2))], False, False),
        ("HardwareNotCovered", [(1, miss("CpuDiffers")), (99, HOT)], True, True),
        ("HardwareNotCovered", [(1, miss("GpuDiffers", "eager"))], True, True),
        ("HardwareNotCovered", [(1, replace(HOT, answers={"hot/Package": 1, "cold/CpuDiffers": 1}))], True, True),
        ("HardwareNotCovered", [(9, HOT)], False, False),
    ],
)  # fmt: skip
def test_where_each_begins_and_ends(reason: str, groups: Any, begins: bool, stays: bool) -> None:
    assert (reason in said(*groups)) is begins
    before = Notice(reason=reason, since=START - timedelta(days=1), message="w")
    kept = said(*groups, previous=(before,))
    assert (reason in kept) is stays
    if stays:
        assert kept[reason].since == before.since, "since when does not move"


@pytest.mark.parametrize(
    "more",
    [
        "there is no C++ compiler in the image",
        "torch's compiler has no place to work in: /tmp is mounted noexec; no volume",
    ],
    ids=["no compiler", "no room"],
)
def test_what_a_slim_image_s_pods_miss_is_said_of_them_as_of_others(more: str) -> None:
    def of(words: str) -> Served:
        return miss(class_of("eager", f"{words}; {more}, so the model runs eagerly"), "eager")

    assert set(said((1, of("main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs")))) == {
        "HardwareNotCovered"
    }
    missing = said((2, of("main/one/cpu: torch 2.16.0 in the pod, artifact has 2.14.1")), (8, HOT))["PodsMiss"]
    assert "TorchDiffers (2)" in missing.message
    assert said((9, of("no bucket answers this call: one: argument x: has shape (2,), compiled for (1,)"))) == {}, (
        "it is told as a shape"
    )


REPORTS = st.sampled_from(
    [HOT, miss(), miss("CpuDiffers"), FIRST_SLOW, FIRST_WELL, steady(3.0), steady(1.7), steady(1.0), drift(64), drift(1),
     drift(64, answered=10**6)]
)  # fmt: skip


@given(st.lists(st.tuples(st.integers(1, 9), REPORTS), max_size=5))
def test_what_is_said_once_is_said_again_of_the_same(groups: list[tuple[int, Served]]) -> None:
    first = said(*groups)
    again = said(*groups, previous=tuple(first.values()), later=60)
    assert set(first) == set(again)
    assert [n.since for n in first.values()] == [n.since for n in again.values()]
    third = said(*groups, previous=tuple(again.values()), later=120)
    assert third == again, "it comes to rest"
    assert list(first) == [reason.value for reason in NOTICES if reason.value in first]
    assert said(previous=tuple(first.values())) == {}, "with the pods it ends"


def test_the_words() -> None:
    other = replace(miss("CpuDiffers"), node={"machine": "x86_64", "cpuIsa": "X86_64_V3", "gpu": "NVIDIA A10G"})
    words = {reason: notice.message for reason, notice in said(
        (2, miss()), (1, miss("ModelDiffers")), (3, other), (2, replace(drift(64), first={"main/one/cpu": 25.0})), (4, steady(3.14))
    ).items()}  # fmt: skip
    assert words == {
        "HardwareNotCovered": "pods are on nodes that no hardware profile was compiled for, and start without an artifact: 3 on "
        "n1 (x86_64, CPU class X86_64_V3, GPU NVIDIA A10G). Add a profile to spec.hardware that selects these nodes, or keep "
        "the pods off them",
        "PodsMiss": "3 of 12 pods do not use what was compiled for them: TorchDiffers (2), ModelDiffers (1); `preheat why POD` "
        "says more, docs/metrics.md what each word means",
        "ShapesNotCovered": "input shapes that no bucket covers, in 2 pods in the last two hours: float32[2,3] of module main (at "
        "least 128 calls); add to the buckets of module main: {name: added-1, args: [{tensor: {shape: [2, 3], dtype: float32}}]}",
        "FirstAnswersSlow": "2 of 2 pods took longer for their first answer than a whole fresh process did in the compile Job; "
        "main/one/cpu took up to 10.0 times as long. The nodes may be slower or busier than the one it was compiled on",
        "AnswersSlow": "4 of 4 pods answer at least 2 times slower than the compile Job measured; main/one/cpu up to 3.1 times. "
        "The nodes may be slower or busier, or the pods may have fewer CPUs",
    }  # fmt: skip


BUCKETS = [
    {"name": "added-1", "dims": [{"name": "b", "min": 2, "max": 8}],
     "args": [{"tensor": {"shape": ["b", 3], "dtype": "float32"}}, {"const": {"type": "String", "value": "0.5"}}],
     "kwargs": [{"name": "mask", "tensor": {"shape": ["b"], "dtype": "int64", "low": 0, "high": 2}}]},
    {"name": "lists", "args": [{"list": [{"tensor": {"shape": [1], "dtype": "int8"}}, {"tensor": {"shape": [], "dtype": "bool"}}]},
                               {"dict": [{"key": "on", "tensor": {"shape": [7, 7], "dtype": "float64"}}]}]},
    {"name": "example", "exampleInputs": "a:b"},
]  # fmt: skip


def model_with(*modules: str) -> Any:
    body = spec()
    body["torch"]["modules"] = [{"name": name, "path": name, "buckets": BUCKETS} for name in modules]
    return parsed(body)


def test_the_bucket_to_add_is_like_the_one_whose_tensors_are_of_the_same_kinds() -> None:
    found = fragment(model_with("main"), "|float32[16,3] int64[16]")
    assert found is not None
    assert found[0] == "main"
    assert yaml.safe_load(found[1]) == {
        "name": "added-2",
        "args": [{"tensor": {"shape": [16, 3], "dtype": "float32"}}, {"const": {"type": "String", "value": "0.5"}}],
        "kwargs": [{"name": "mask", "tensor": {"shape": [16], "dtype": "int64", "low": 0, "high": 2}}],
    }
    Bucket.model_validate(yaml.safe_load(found[1]))
    nested = fragment(model_with("main", "more"), "more|int8[9] bool[] float64[1,2]")
    assert nested is not None
    assert yaml.safe_load(nested[1])["args"] == [
        {"list": [{"tensor": {"shape": [9], "dtype": "int8"}}, {"tensor": {"shape": [], "dtype": "bool"}}]},
        {"dict": [{"key": "on", "tensor": {"shape": [1, 2], "dtype": "float64"}}]},
    ]


@pytest.mark.parametrize(
    "call",
    ["main|none", "main|other", "main|float32[16,3] more", "main|float32[16,3]", "main|int64[16] float32[16,3]",
     "main|float32[16,3,1] int64[16]", "gone|float32[16,3] int64[16]", "|"],
)  # fmt: skip
def test_where_the_shape_does_not_say_it_no_bucket_is_made_up(call: str) -> None:
    assert fragment(model_with("main"), call) is None
    assert fragment(model_with("main", "more"), "|float32[16,3] int64[16]") is None, "nor is the module guessed"
