"""The program of a fresh process, run in this one with a torch.compile of our own."""

from __future__ import annotations

import json
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from preheat_compiler import fresh
from unit.compiler import gpus, requests
from unit.compiler.jobs import bucket, tensor

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"out": self.inner(x), "rows": len(x)}


def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: Callable[[nn.Module], Callable[..., Any]]
) -> dict[str, Any]:
    """What the process saw of what `compiled` makes of the module, at three sizes."""
    theirs = ModuleType("their_model")
    theirs.load = Net  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_model", theirs)
    monkeypatch.setattr(torch, "compile", compiled)
    dims = [{"name": "n", "min": 2, "max": 8, "multipleOf": 1}]
    modules = [{"name": "main", "path": "", "buckets": [bucket("batch", tensor("n", 4), dims=dims)]}]
    request = requests.make(torch={"factory": "their_model:load", "modules": modules})
    (folder / "request.json").write_text(json.dumps(request))
    options = {
        "request": str(folder / "request.json"), "module": "main", "bucket": "batch",
        "sizes": json.dumps([{"n": 5}, {"n": 2}, {"n": 8}]), "compile": "yes", "compare": "yes",
        "started": repr(time.monotonic()), "answer": str(folder / "answer.json"), "seal": "no", "writable": str(folder),
    }  # fmt: skip
    arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
    assert fresh.main(arguments, launcher="") == 0
    seen: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    return seen


def overwriting(module: nn.Module) -> Callable[..., Any]:
    """As CUDA graphs answer: each time in the same memory."""
    memory = torch.empty(8, 4)

    def answer(x: torch.Tensor) -> dict[str, Any]:
        found = module(x)
        return {**found, "out": memory[: len(x)].copy_(found["out"])}

    return answer


def test_an_answer_that_the_next_call_overwrites_is_compared_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = run(tmp_path, monkeypatch, overwriting)
    assert (float(seen["maximum"]), seen["why"]) == (0.0, "")


def test_cuda_is_not_begun_with_to_find_out_whether_there_is_something_to_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = gpus.use(monkeypatch, initialised=False)  # and asking for anything else, `is_available` say, fails
    assert run(tmp_path, monkeypatch, lambda module: module)["memory"]["device"] is None
    assert cuda.asked == []


def test_a_first_answer_that_is_wrong_is_seen_though_later_ones_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong_at_first(module: nn.Module) -> Callable[..., Any]:
        calls: list[int] = []

        def answer(x: torch.Tensor) -> dict[str, Any]:
            calls.append(len(x))
            found = module(x)
            return {**found, "out": found["out"] + (len(calls) == 1)}

        return answer

    assert float(run(tmp_path, monkeypatch, wrong_at_first)["maximum"]) > 0.1
