"""Inputs in lists and dicts: what an API server cannot check is refused when a CompiledModel is read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from apiserver.fixtures import example
from mistakes import changed
from preheat_operator.api.inputs import Bucket
from preheat_operator.cli.document import read_document

TENSOR = {"tensor": {"shape": ["n", 4], "dtype": "float32"}}
DIMS = [{"name": "n", "min": 2, "max": 8}]


def bucket(*args: dict[str, Any], **more: Any) -> Bucket:
    return Bucket.model_validate({"name": "b", "args": args, **more})


def test_two_levels_of_lists_and_dicts_are_read_and_written_as_they_are() -> None:
    argument = {"list": [{"dict": [{"key": "k", **TENSOR}, {"key": "v", "const": {"type": "None"}}]}]}
    read = bucket(argument, dims=DIMS)
    written = read.to_api()["args"][0]
    assert [entry["key"] for entry in written["list"][0]["dict"]] == ["k", "v"]
    assert written["list"][0]["dict"][0]["tensor"]["shape"] == ["n", 4]
    assert Bucket.model_validate(read.to_api()) == read


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ({}, "[0]: set exactly one of"),
        ({**TENSOR, "const": {"type": "None"}}, "[0]: set exactly one of"),
        ({"list": [{"dict": [{"key": "k", "list": [TENSOR]}]}]}, "[0][0]: set exactly one of"),
        ({"dict": [{"key": "k", "tensor": {"shape": [0], "dtype": "int64"}}]}, "[0]['k'].tensor: a size must be"),
        ({"tensor": {"shape": ["-3"], "dtype": "int64"}}, "[0].tensor: a size must be"),
        ({"tensor": {"shape": [1], "dtype": "int64", "low": 3}}, "[0].tensor: low and high: set both"),
        ({"tensor": {"shape": [1], "dtype": "int64", "low": 3, "high": 3}}, "[0].tensor: low must be below high"),
        ({"tensor": {"shape": [1], "dtype": "bool", "low": 0, "high": 1}}, "[0].tensor: low and high mean nothing"),
        (
            {"tensor": {"shape": [1], "dtype": "uint8", "low": -5, "high": 300}},
            "[0].tensor: low and high must be within",
        ),
        ({"tensor": {"shape": [1], "dtype": "int8", "low": -128, "high": 129}}, "int8 -128 to 128"),
        ({"const": {"type": "Int", "value": "many"}}, "[0].const: value: for type Int a whole number"),
        ({"const": {"type": "Float", "value": "x"}}, "[0].const: value: for type Float"),
        ({"const": {"type": "Bool", "value": "yes"}}, "[0].const: value: for type Bool"),
        ({"const": {"type": "None", "value": "x"}}, "[0].const: value: required, except for type None"),
        ({"const": {"type": "String"}}, "[0].const: value: required"),
        ({"tensor": {"shape": ["m"], "dtype": "int64"}}, "names the dim m, which is not declared"),
    ],
)
def test_a_mistake_in_a_list_is_named_with_its_place(item: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as error:
        bucket({"list": [item]}, TENSOR, dims=DIMS)
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("uint8", 0, 256), ("int8", -128, 128), ("int16", -32768, 32768), ("float16", -65504, 65504),
     ("int32", -(2**31), 2**31 - 1), ("float32", -5, 70000)],
)  # fmt: skip
def test_all_that_a_dtype_can_hold_may_be_drawn(dtype: str, low: int, high: int) -> None:
    tensor = {"tensor": {"shape": [1], "dtype": dtype, "low": low, "high": high}}
    assert bucket({"list": [tensor]}).args[0].list_items
    model = changed(example(), {"spec.torch.modules.0.buckets.0.args": [tensor], "spec.torch.modules.0.buckets.0.dims": [],
                                "spec.torch.modules.0.buckets.0.kwargs": []})  # fmt: skip
    assert read_document(yaml.safe_dump(model), namespace=None)


def test_a_dim_that_only_a_dict_names_counts_as_used() -> None:
    entry = {"dict": [{"key": "k", **TENSOR}]}
    assert bucket(entry, dims=DIMS).dims
    with pytest.raises(ValidationError, match="the dim m is in no shape"):
        bucket(entry, dims=[*DIMS, {"name": "m", "min": 1, "max": 2}])
