"""Constants of a library: each must be one that the module can bind, and each that the graph uses must be among them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from preheat_compiler import build, package
from preheat_compiler.package_errors import UnbindableConstant
from preheat_compiler.package_graph import check_bindable
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError
from preheat_compiler.work import Work
from unit.compiler import requests

if TYPE_CHECKING:
    from pathlib import Path


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(64, 4)
        self.tied = self.inner.bias
        self.unused = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x) + self.tied
        return y


@pytest.fixture(scope="module")
def program() -> Any:
    with torch.no_grad():
        return torch.export.export(Net().eval(), (torch.randn(2, 64),)).run_decompositions({})


def tensors() -> dict[str, torch.Tensor]:
    return dict(Net().named_parameters(remove_duplicate=False))


@pytest.mark.parametrize(
    "constants",
    [
        {"a": "inner.weight", "b": "inner.bias"},
        {"a": "inner.weight", "b": "tied"},
        {"a": "inner.weight", "b": "inner.bias", "c": "unused"},
    ],
)
def test_a_library_that_names_all_that_its_graph_uses_can_be_bound(program: Any, constants: dict[str, str]) -> None:
    check_bindable(program, constants, tensors())


@pytest.mark.parametrize(
    ("constants", "path", "words"),
    [
        ({"a": "inner.weight"}, "inner.bias", "inner.bias is used by the code, but was baked into it"),
        ({"b": "tied"}, "inner.weight", "inner.weight is used by the code, but was baked into it"),
        ({}, "inner.bias", "was baked into it"),
        (
            {"a": "inner.weight", "b": "inner.bias", "c": "folded_0"},
            "folded_0",
            "the library wants folded_0, which is no parameter or buffer",
        ),
    ],
)
def test_one_that_is_missing_or_foreign_is_refused_by_name(
    program: Any, constants: dict[str, str], path: str, words: str
) -> None:
    with pytest.raises(UnbindableConstant, match=words) as raised:
        check_bindable(program, constants, tensors())
    assert raised.value.name == path


def test_an_empty_tensor_holds_nothing_that_could_be_baked_in(program: Any) -> None:
    empty = {**tensors(), "tied": nn.Parameter(torch.empty(0)), "inner.bias": nn.Parameter(torch.empty(0))}
    check_bindable(program, {"a": "inner.weight"}, empty)


def test_a_package_that_says_it_binds_what_the_module_does_not_have_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = parse_request(requests.make())
    module, bucket = request.target("main", "batch")
    work = Work(
        launcher=tmp_path, request_file=tmp_path / "request.json", request=request, module=module, bucket=bucket,
        folder=tmp_path, deadline=time.monotonic() + 60, report=Report(target="main/batch"),
    )  # fmt: skip
    info = package.PackageInfo(files=(), size_bytes=1, constants=("inner.weight", "tied", "elsewhere"))
    monkeypatch.setattr(package, "build_package", lambda *_, **__: info)
    with pytest.raises(TargetError, match="the package uses elsewhere, which the module does not have") as raised:
        build.build(work, Net())
    assert raised.value.reason == "ProofFailed"
