"""Peaks of memory are those of the calls, and say so where they cannot be."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import torch

from preheat_compiler.devices import Gpus
from preheat_compiler.memory import Peak, PeakMeter, growth, reset_peak, status_bytes
from preheat_runtime.memory import memory_available
from unit.compiler import gpus

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MIB = 2**20


def test_a_peak_is_that_of_the_calls_and_not_of_what_was_before() -> None:
    script = (
        "from preheat_compiler.memory import PeakMeter\n"
        "loading = bytearray(300 << 20); loading = None\n"
        "meter = PeakMeter()\n"
        "print(meter.of(lambda: bytearray(100 << 20)).to_json())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    peak = Peak.from_json(eval(done.stdout))
    assert peak.reset, "this kernel does not let a process set its peak back"
    assert peak.before is not None
    assert 95 * MIB < peak.peak - peak.before < 150 * MIB
    assert peak.device is None


def process(folder: Path, *, resident: int, peak: int) -> Path:
    """A /proc folder whose peak cannot be set back: a plain file takes the word and does nothing."""
    (folder / "status").write_text(f"Name:\tx\nVmHWM:\t{peak // 1024} kB\nVmRSS:\t{resident // 1024} kB\n")
    return folder


def test_where_the_peak_cannot_be_set_back_it_is_the_whole_process_and_says_so(tmp_path: Path) -> None:
    here = process(tmp_path, resident=100 * MIB, peak=400 * MIB)
    assert not reset_peak(here)
    peak = PeakMeter(process=here).of(lambda: None)
    assert (peak.before, peak.peak, peak.reset) == (100 * MIB, 400 * MIB, False)
    assert reset_peak(process(tmp_path, resident=100 * MIB, peak=100 * MIB))


def test_without_proc_the_peak_is_the_systems_own_and_says_so(tmp_path: Path) -> None:
    peak = PeakMeter(process=tmp_path / "none").of(lambda: None)
    assert peak.before is None
    assert not peak.reset
    assert peak.peak > MIB
    assert status_bytes(tmp_path / "none", "VmRSS") is None


def test_on_gpus_the_peaks_of_all_are_set_back_too_and_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    both = Gpus((torch.device("cuda:1"), torch.device("cuda:3")))
    cuda = gpus.use(monkeypatch, peaks={"cuda:1": 200 * MIB, "cuda:3": 50 * MIB})
    assert PeakMeter(both).of(lambda: cuda.asked.append(("call", None))).device == 250 * MIB
    assert [(name, where) for name, where in cuda.asked if name != "synchronize"] == [
        ("reset_peak_memory_stats", "cuda:1"), ("reset_peak_memory_stats", "cuda:3"), ("call", None),
        ("max_memory_allocated", "cuda:1"), ("max_memory_allocated", "cuda:3"),
    ]  # fmt: skip
    assert cuda.asked[:2] == [("synchronize", "cuda:1"), ("synchronize", "cuda:3")]


def peaks(*sizes: int, reset: bool = True, device: int | None = None) -> list[Peak]:
    return [Peak(before=MIB, peak=size * MIB, reset=reset, device=device) for size in sizes]


def test_growth_is_of_the_medians_of_peaks() -> None:
    seen = growth(peaks(100, 900, 110), peaks(121, 120, 500))
    assert seen is not None
    assert (seen.eager, seen.compiled, seen.of) == (110 * MIB, 121 * MIB, "resident during calls")
    assert round(seen.ratio, 2) == 1.1
    assert growth([], peaks(1)) is None
    assert growth(peaks(0), peaks(1)) is None


def test_growth_says_what_it_compares() -> None:
    whole = growth(peaks(100), peaks(100, reset=False))
    assert whole is not None
    assert whole.of == "resident since the process began"
    device = growth(peaks(100, device=10 * MIB), peaks(100, device=15 * MIB))
    assert device is not None
    assert (device.ratio, device.of) == (1.5, "allocated on the device during calls")
    assert growth(peaks(100, device=0), peaks(100, device=15 * MIB)) is None, "it is not the host's memory instead"


def test_what_may_still_be_taken_is_bounded_by_limit_and_node(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    assert memory_available(tmp_path, info) is None
    info.write_text("MemTotal: 9000 kB\nMemAvailable: 2048 kB\n")
    assert memory_available(tmp_path, info) == 2 * MIB
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text(f"{MIB}\n")
    assert memory_available(tmp_path, info) == 2 * MIB
    (tmp_path / "memory.max").write_text(f"{MIB + 1000}\n")
    assert memory_available(tmp_path, info) == 1000
    (tmp_path / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    assert memory_available(tmp_path, info) == 1500, "what was read from disk is given back"
    (tmp_path / "memory.stat").unlink()
    (tmp_path / "memory.max").write_text("5\n")
    assert memory_available(tmp_path, info) == 0
