"""All CUDA devices of a model are looked at, and no other: the current one may have nothing to do with it."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from torch import nn

from preheat_compiler import speed, submodules, target
from preheat_compiler.accuracy import against_reference
from preheat_compiler.bucket import Bucket, TensorSpec
from preheat_compiler.devices import Gpus, kind_of, tensors_of
from preheat_compiler.inputs import build_call, pick_sizes
from preheat_compiler.model import device_of
from preheat_compiler.report import Report
from preheat_compiler.request import parse_request
from preheat_compiler.verdict import TargetError
from preheat_compiler.work import Work
from unit.compiler import gpus, requests
from unit.compiler.jobs import bucket, tensor

if TYPE_CHECKING:
    from collections.abc import Callable
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
        target._run_eager(work, two_layers("cuda:0", "cuda:0"), (pick_sizes(work.bucket)[0],))
    assert refused.value.reason == "InputsRefused"


def one_layer() -> tuple[Bucket, nn.Module]:
    spec = TensorSpec(shape=(2, 4), dtype="float32", low=None, high=None)
    return Bucket(name="b", dims=(), args=(spec,), kwargs=()), two_layers("cuda:1", "cuda:2")


def test_calls_are_timed_until_all_devices_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    where, module = one_layer()
    cuda = gpus.use(monkeypatch)
    calls: list[list[str | None]] = []

    def once(eager: Callable[[], object], compiled: Callable[[], object], **_: object) -> object:
        for side in (eager, compiled):
            cuda.asked.clear()
            side()
            calls.append(cuda.waited)
        return SimpleNamespace(speedup=SimpleNamespace(estimate=1.0))

    monkeypatch.setattr(speed, "measure", once)
    monkeypatch.setattr(Report, "speed", lambda *_: None)
    speed.speed_of(
        module, module, where, pick_sizes(where), keep_if=parse_request(requests.make()).keep_if, seed=1, device="cpu",
        seconds=1.0, report=Report(target="a/b"),
    )  # fmt: skip
    assert calls == [["cuda:1", "cuda:2"]] * 2


def test_every_submodule_is_timed_until_all_devices_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    where, module = one_layer()
    cuda = gpus.use(monkeypatch)
    submodules._by_submodule(
        module, build_call(where, pick_sizes(where)[0], seed=1), Gpus.of(module), 0.0, "", Report(target="a/b")
    )
    assert cuda.waited == ["cuda:1", "cuda:2"] * 3 * 2, "around the whole and each of its two layers"


def test_a_reference_needs_room_on_each_device_that_the_model_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    where, module = one_layer()
    gpus.use(monkeypatch, peaks={"cuda:1": gpus.MIB, "cuda:2": 100})
    report = Report(target="a/b")
    against_reference(module, module, where, pick_sizes(where), seeds=(1,), device="cpu", report=report)
    (record,) = report.sections["reference"]
    assert "on cuda:2 it needs" in record["why"]


def test_what_computes_on_a_gpu_is_of_that_kind_though_its_inputs_go_to_the_cpu() -> None:
    module = two_layers("cpu", "cuda:0")
    assert (kind_of(tensors_of(module)), device_of(module)) == ("cuda", "cpu")
    assert (kind_of(tensors_of(two_layers("cpu", "cpu"))), kind_of([])) == ("cpu", "cpu")
