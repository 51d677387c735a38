"""All CUDA devices of a model are looked at, and no other: the current one may have nothing to do with it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from torch import nn

from preheat_compiler import target
from preheat_compiler.devices import Gpus
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError
from preheat_compiler.work import Work
from unit.compiler import gpus, requests
from unit.compiler.jobs import bucket, tensor

if TYPE_CHECKING:
    from pathlib import Path


def two_layers(*where: str) -> nn.Module:
    return gpus.put(nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)), *where)


@pytest.mark.parametrize(
    ("where", "waited"),
    [
        (("cuda:1", "cuda:1"), ["cuda:1"]),
        (("cuda:1", "cuda:0"), ["cuda:1", "cuda:0"]),
        (("cpu", "cuda:0"), ["cuda:0"]),
    ],
)
def test_whoever_waits_waits_for_all_devices_of_the_model(
    where: tuple[str, str], waited: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda = gpus.use(monkeypatch)
    Gpus.of(two_layers(*where)).wait()
    assert cuda.waited == waited


def test_code_that_uses_a_gpu_without_a_tensor_there_is_waited_for_and_else_no_gpu_is_begun_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = gpus.use(monkeypatch)
    Gpus.of(two_layers("cpu", "cpu")).wait()
    assert cuda.waited == [None]
    cuda = gpus.use(monkeypatch, initialised=False)
    Gpus.of(two_layers("cpu", "cpu")).wait()
    assert cuda.asked == []


def make(folder: Path) -> Work:
    modules = [{"name": "main", "path": "", "buckets": [bucket("one", tensor(2, 4))]}]
    request = parse_request(
        requests.make(
            torch={"factory": "model:load", "modules": modules}, targets=[{"module": "main", "bucket": "one"}]
        )
    )
    module, one = request.target("main", "one")
    return Work(
        launcher=folder, request_file=folder / "request.json", request=request, module=module, bucket=one,
        folder=folder / "work", deadline=time.monotonic() + 60, report=Report(target="main/one"),
    )  # fmt: skip


def test_what_a_gpu_refuses_later_is_refused_by_the_model_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = make(tmp_path)
    cuda = gpus.use(monkeypatch)
    cuda.fault = RuntimeError("CUDA error: device-side assert triggered")
    with pytest.raises(TargetError, match=r"refused the inputs of bucket 'one'.*device-side assert") as refused:
        target._run_eager(work, two_layers("cuda:0", "cuda:0"), (target.pick_sizes(work.bucket)[0],))
    assert refused.value.reason == "InputsRefused"
