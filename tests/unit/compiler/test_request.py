from __future__ import annotations

import copy
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from preheat_compiler.bucket import ConstSpec, TensorSpec
from preheat_compiler.fields import RequestError
from preheat_compiler.request import asked_for, parse_request, read_request, request_key
from unit.compiler import requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_whole_request_is_read() -> None:
    request = parse_request(requests.make())
    module, bucket = request.target("main", "batch")
    assert (request.factory, request.cpu_isa, module.path) == ("model:load", "X86_64_V3", "")
    assert request.keep_if.min_speedup == Decimal("1.05")
    assert request.keep_if.max_error is None
    assert request.keep_if.max_memory_growth is None
    assert bucket.args == (TensorSpec(shape=("n", 64), dtype="float32", low=None, high=None),)
    assert bucket.kwargs == (("flag", ConstSpec(value=True)),)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [("Int", "-3", -3), ("Float", "1e-6", 1e-6), ("String", "", ""), ("Bool", "false", False), ("None", None, None)],
)
def test_constants_have_their_python_type(kind: str, text: str | None, value: object) -> None:
    raw = requests.make()
    raw["torch"]["modules"][0]["buckets"][0]["kwargs"][0]["const"] = {"type": kind, "value": text}
    spec = parse_request(raw).target("main", "batch")[1].kwargs[0][1]
    assert isinstance(spec, ConstSpec)
    assert spec.value == value
    assert type(spec.value) is type(value)


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        *steps, last = path.split(".")
        at: Any = raw
        for step in steps:
            at = at[int(step)] if step.isdecimal() else at[step]
        if value is _GONE:
            del at[last]
        else:
            at[int(last) if last.isdecimal() else last] = value

    return change


_GONE = object()
_BUCKET = "torch.modules.0.buckets.0"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (_set("formatVersion", 2), "formatVersion: 2"),
        (_set("surprise", 1), "request.surprise"),
        (_set("torch.surprise", "Default"), "request.torch.surprise"),
        (_set("torch.mode", "Fast"), "request.torch.mode"),
        (_set("torch.options", [{"name": "x"}]), "request.torch.options[0].value"),
        (_set("keepIf.maxGraphBreaks", -1), "request.keepIf.maxGraphBreaks"),
        (_set(f"{_BUCKET}.exampleInputs", "model"), "exampleInputs"),
        (_set(f"{_BUCKET}.exampleInputs", "model:inputs"), "args, kwargs and dims must be absent"),
        (_set("uid", _GONE), "request.uid"),
        (_set("timeoutSeconds", "60"), "request.timeoutSeconds"),
        (_set("cpuIsa", "ARM"), "request.cpuIsa"),
        (_set("hardware", "../up"), "request.hardware"),
        (_set("torch.factory", "model"), "request.torch.factory"),
        (_set("keepIf.minSpeedup", "fast"), "request.keepIf.minSpeedup"),
        (_set("keepIf.minSpeedup", "NaN"), "request.keepIf.minSpeedup"),
        (_set("keepIf.maxError", 0.1), "request.keepIf.maxError"),
        (_set("keepIf.maxMemoryGrowth", "much"), "request.keepIf.maxMemoryGrowth"),
        (_set("keepIf.maxMemoryGrowth", "0"), "request.keepIf.maxMemoryGrowth: must be greater than 0"),
        (_set("targets.0.bucket", "other"), "main/other"),
        (_set(f"{_BUCKET}.dims.0.multipleOf", 40), f"{_BUCKET}.dims[0]".replace(".0", "[0]", 1)[:20]),
        (_set(f"{_BUCKET}.dims", []), "uses dim 'n'"),
        (_set(f"{_BUCKET}.args.0", {}), "exactly one of tensor, const, list and dict"),
        (_set(f"{_BUCKET}.args.0.tensor.shape.0", -1), "cannot be negative"),
        (_set(f"{_BUCKET}.args.0.tensor.shape.0", True), "neither a size nor the name"),
        (_set(f"{_BUCKET}.args.0.tensor.stride", [1]), "args[0].tensor.stride"),
        (_set(f"{_BUCKET}.kwargs.0.const.value", "maybe"), "kwargs[0].const.value"),
        (_set(f"{_BUCKET}.kwargs.0.const.type", "List"), "kwargs[0].const.type"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(change: Callable[[dict[str, Any]], None], names: str) -> None:
    raw = copy.deepcopy(requests.make())
    change(raw)
    with pytest.raises(RequestError) as refused:
        parse_request(raw)
    assert names in str(refused.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text("{")
    with pytest.raises(RequestError, match="not JSON"):
        read_request(tmp_path / "request.json")
    with pytest.raises(RequestError, match="No such file"):
        read_request(tmp_path / "none.json")


def test_the_request_key_depends_on_what_the_answer_depends_on() -> None:
    def key(change: Callable[[dict[str, Any]], None] = lambda raw: None, **fingerprint: str) -> str:
        raw = requests.make()
        change(raw)
        return request_key(asked_for(parse_request(raw), "main", "batch", {"torch": "2.15.0", **fingerprint}))

    same = key()
    assert len(same) == 64
    assert key(_set("timeoutSeconds", 60)) == same
    assert key(_set("revision", "vision-other")) == same
    changed = [
        key(_set("image", "registry/vision:1.5")),
        key(_set("keepIf.minSpeedup", "1.1")),
        key(_set("torch.factory", "model:other")),
        key(_set(f"{_BUCKET}.dims.0.max", 64)),
        key(torch="2.16.0"),
    ]
    assert len({same, *changed}) == 6


def test_the_request_survives_the_trip_through_json(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(json.dumps(requests.make()))
    assert read_request(tmp_path / "request.json") == parse_request(requests.make())
