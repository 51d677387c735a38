"""Stages of a compile and times of submodules, from what was counted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import DeviceType

from preheat_compiler import submodules
from preheat_compiler.stages import EXPORT, split
from preheat_compiler.submodules import SelfTimes, ranked

#: As torch 2.15 counts them: for a package, and for torch.compile.
PACKAGE = {
    EXPORT: 3.0,
    "compile_fx.<locals>.fw_compiler_base": 9.8,
    "compile_fx_inner": 9.1,
    "AotCodeCompiler.compile": 8.3,
}
COMPILE = {
    "_compile.compile_inner": 2.5, "compile_fx.<locals>.fw_compiler_base": 1.9, "PyCodeCache.load_by_key_path": 1.7,
}  # fmt: skip


def test_a_packages_time_is_split_by_what_torch_counts() -> None:
    assert split(PACKAGE, 17.0) == pytest.approx({"trace": 3.0, "lowering": 1.5, "compiler": 8.3, "other": 4.2})


def test_torch_compiles_time_is_split_by_what_torch_counts() -> None:
    assert split(COMPILE, 3.0) == pytest.approx({"trace": 0.6, "lowering": 0.2, "compiler": 1.7, "other": 0.5})


def test_a_torch_that_counts_nothing_leaves_all_in_other() -> None:
    assert split({}, 5.0) == {"other": 5.0}
    assert split({"a.name.of.tomorrow": 3.0}, 5.0) == {"other": 5.0}
    assert split({"compile_fx_inner": 2.0}, 5.0) == {"lowering": 2.0, "other": 3.0}


@given(
    spent=st.dictionaries(st.sampled_from([*PACKAGE, *COMPILE]), st.floats(min_value=0, max_value=100)),
    total=st.floats(min_value=0, max_value=1000),
)
def test_no_stage_is_negative_and_none_is_counted_twice(spent: dict[str, float], total: float) -> None:
    parts = split(spent, total)
    assert all(seconds >= 0 for seconds in parts.values())
    assert sum(parts.values()) >= total - 1e-6


class Tree:
    """Modules that take known times, on a clock that passes only while they work."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits = 0

    def run(self, times: SelfTimes, module: str, own: float, *inside: tuple[str, float]) -> None:
        times.enter(module)
        self.now += own / 2
        for name, seconds in inside:
            self.run(times, name, seconds)
        self.now += own / 2
        times.leave(module)

    def wait(self) -> None:
        self.waits += 1


def test_a_modules_time_is_its_own_and_not_its_parts() -> None:
    tree = Tree()
    names = {id("root"): "(the module itself)", id("a"): "a", id("b"): "b"}
    times = SelfTimes(names, tree.wait, lambda: tree.now)
    for _ in range(2):
        tree.run(times, "root", 1.0, ("a", 3.0), ("b", 2.0), ("a", 1.0))
    assert times.seconds == pytest.approx({"(the module itself)": 2.0, "a": 8.0, "b": 4.0})
    assert times.total == pytest.approx(14.0)
    assert tree.waits == 2 * 4 * 2
    rows = ranked(times.seconds, times.total, calls=2)
    assert [row["name"] for row in rows] == ["a", "b", "(the module itself)"]
    assert [float(row["selfMs"]) for row in rows] == pytest.approx([4000, 2000, 1000])
    assert [float(row["cumulative"]) for row in rows] == pytest.approx([8 / 14, 12 / 14, 1.0], abs=1e-4)


def event(key: str, kind: str, *, cpu: float = 0, device: float = 0, annotation: bool = False) -> SimpleNamespace:
    """As torch's profiler tells it, in microseconds."""
    return SimpleNamespace(
        key=key, device_type=getattr(DeviceType, kind), is_user_annotation=annotation, self_cpu_time_total=cpu,
        self_device_time_total=device,
    )  # fmt: skip


#: A matrix product and a generated kernel on a GPU, with all that torch tells of them.
ON_A_GPU = [
    event("aten::mm", "CPU", cpu=20, device=300),
    event("cudaLaunchKernel", "CPU", cpu=5, device=100),
    event("triton_poi_fused_relu_0", "CPU", cpu=7, device=100),
    event("## Call CompiledFxGraph f7 ##", "CPU", cpu=1),
    event("## Call CompiledFxGraph f7 ##", "CUDA", device=420, annotation=True),
    event("ampere_sgemm_128x64_tn", "CUDA", device=300),
    event("triton_poi_fused_relu_0", "CUDA", device=100),
    event("Memcpy DtoD (Device -> Device)", "CUDA", device=10),
]


def test_a_kernels_time_is_told_once_and_not_at_what_started_it_too() -> None:
    spent = submodules._by_kernel(ON_A_GPU)
    assert spent == pytest.approx(
        {"ampere_sgemm_128x64_tn": 3e-4, "triton_poi_fused_relu_0": 1e-4, "Memcpy DtoD (Device -> Device)": 1e-5}
    )


def test_on_a_cpu_operators_are_told_without_what_torch_draws_around_them() -> None:
    events = [
        event("aten::mm", "CPU", cpu=20),
        event("aten::relu", "CPU"),
        event("## Call CompiledFxGraph f7 ##", "CPU", cpu=9),
    ]
    assert submodules._on_the_cpu(events) == pytest.approx({"aten::mm": 2e-5})


def test_the_twenty_most_expensive_are_told() -> None:
    rows = ranked({f"m{i:02}": 1.0 / (i + 1) for i in range(50)}, 10.0, calls=1)
    assert [row["name"] for row in rows] == [f"m{i:02}" for i in range(20)]
    assert ranked({}, 0.0, calls=0) == []
