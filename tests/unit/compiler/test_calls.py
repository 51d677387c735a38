"""The calls that are made of a bucket: every kind of argument, every dtype, values where they were asked for."""

from __future__ import annotations

import sys
from decimal import Decimal
from types import ModuleType
from typing import Any

import pytest
import torch

from preheat_compiler.bucket import Bucket, Dim, TensorSpec, read_bucket
from preheat_compiler.inputs import DTYPES, Call, build_call, pick_sizes
from preheat_compiler.verdict import TargetError

RAW: dict[str, Any] = {
    "name": "all",
    "dims": [{"name": "n", "min": 4, "max": 32, "multipleOf": 4}],
    "args": [
        {"tensor": {"shape": ["n", 3], "dtype": "float32"}},
        {"list": [{"dict": [{"key": "k", "tensor": {"shape": ["n"], "dtype": "int64", "low": "5", "high": "9"}}]}]},
        {"const": {"type": "None"}},
    ],
    "kwargs": [
        {"name": "count", "const": {"type": "Int", "value": "3"}},
        {"name": "on", "const": {"type": "Bool", "value": "true"}},
        {"name": "how", "const": {"type": "String", "value": "fast"}},
        {"name": "scale", "const": {"type": "Float", "value": "0.5"}},
    ],
}


def call(*, size: int = 0, seed: int = 1) -> Call:
    bucket = read_bucket(RAW, "bucket")
    return build_call(bucket, pick_sizes(bucket)[size], seed=seed)


def test_every_kind_of_argument_is_what_was_written() -> None:
    made = call()
    x, (layer,), nothing = made.args
    assert nothing is None
    assert layer["k"].dtype == torch.int64
    assert dict(made.kwargs) == {"count": 3, "on": True, "how": "fast", "scale": 0.5}
    assert (type(made.kwargs["count"]), type(made.kwargs["on"])) == (int, bool)
    assert x.shape[1:] == (3,)


@pytest.mark.parametrize("size", range(3))
def test_a_shared_dim_is_one_size_and_a_legal_one(size: int) -> None:
    x, (layer,), _ = call(size=size).args
    assert x.shape[0] == layer["k"].shape[0]
    assert x.shape[0] % 4 == 0
    assert 4 <= x.shape[0] <= 32


def test_a_seed_is_the_same_values_and_another_is_others() -> None:
    assert torch.equal(call().args[0], call().args[0])
    assert not torch.equal(call().args[0], call(seed=2).args[0])


def of(dtype: str, low: str | None = None, high: str | None = None) -> torch.Tensor:
    bounds = [None if each is None else Decimal(each) for each in (low, high)]
    spec = TensorSpec(shape=(500,), dtype=dtype, low=bounds[0], high=bounds[1])
    made = build_call(Bucket(name="b", dims=(), args=(spec,), kwargs=()), pick_sizes(_EMPTY)[0], seed=1).args[0]
    assert isinstance(made, torch.Tensor)
    return made


_EMPTY = Bucket(name="b", dims=(Dim(name="n", minimum=2, maximum=2, multiple_of=1),), args=(), kwargs=())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_made_and_varies(dtype: str) -> None:
    made = of(dtype)
    assert str(made.dtype) == f"torch.{dtype}"
    values = set(made.tolist())
    assert len(values) > 1
    if not (made.is_floating_point() or made.is_complex()):
        assert values == {0, 1}


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each.startswith(("int", "uint"))])
def test_ranges_of_whole_numbers_are_filled_and_kept_to(dtype: str) -> None:
    assert set(of(dtype, "3", "7").tolist()) == {3, 4, 5, 6}
    assert set(of(dtype, "9").tolist()) == {9, 10}


@pytest.mark.parametrize("dtype", [each for each in DTYPES if each.startswith(("float", "bfloat"))])
def test_ranges_of_floats_are_filled_and_kept_to(dtype: str) -> None:
    made = of(dtype, "-0.5", "0.25").double()
    assert made.min() >= -0.5
    assert made.max() <= 0.25
    assert made.max() - made.min() > 0.7


def test_a_dtype_that_is_none_says_which_there_are() -> None:
    with pytest.raises(TargetError, match="dtype 'float31' is not one of float64, float32") as refused:
        of("float31")
    assert refused.value.reason == "InputsRefused"


#: Stands for a GPU: tensors there have a device and no numbers.
ELSEWHERE = "meta"


@pytest.mark.parametrize(
    ("given", "where"),
    [
        (("cpu", "cpu"), [ELSEWHERE, ELSEWHERE]),
        ((ELSEWHERE, "cpu"), [ELSEWHERE, "cpu"]),  # lengths for pack_padded_sequence
        ((ELSEWHERE, ELSEWHERE), [ELSEWHERE, ELSEWHERE]),
    ],
)
def test_inputs_that_the_user_has_placed_stay_where_they_are_and_others_go_to_the_module(
    given: tuple[str, str], where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = ModuleType("their_inputs")
    theirs.make = lambda: (  # type: ignore[attr-defined]
        (torch.ones(2, device=given[0]),), {"lengths": [torch.ones(2, device=given[1])]},
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "their_inputs", theirs)
    bucket = Bucket(name="b", dims=(), args=(), kwargs=(), example_inputs="their_inputs:make")
    made = build_call(bucket, pick_sizes(bucket)[0], seed=1, device=ELSEWHERE)
    assert [str(each.device) for each in (made.args[0], made.kwargs["lengths"][0])] == where
