"""What a pod must have for an artifact's code to run in it."""

import sys
from dataclasses import replace

import pytest

from preheat_runtime import fingerprint
from preheat_runtime.fingerprint import Fingerprint, cpu_flags, missing_flags, needed_isa

V3 = fingerprint.CPU_CLASSES["X86_64_V3"]
V4 = fingerprint.CPU_CLASSES["X86_64_V4"]


def test_flags_are_read_from_cpuinfo(tmp_path):
    intel, arm = tmp_path / "intel", tmp_path / "arm"
    intel.write_text("processor\t: 0\nflags\t\t: fpu avx2 fma\nflags\t\t: other\n")
    arm.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert cpu_flags(intel) == {"fpu", "avx2", "fma"}
    assert cpu_flags(arm) == {"fp", "asimd", "sve"}
    assert cpu_flags(tmp_path / "none") == frozenset()


def test_what_the_kernel_lists_counts_only_as_far_as_the_cpu_agrees(monkeypatch):
    """An emulator passes the host's /proc/cpuinfo on; code for it would die of SIGILL."""
    import torch

    def asked(**said):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: said)
        return fingerprint.usable_flags()

    monkeypatch.setattr(fingerprint, "cpu_flags", lambda: V4 | {"hypervisor"})
    assert asked(avx512_f=False, lzcnt=False, bmi=True) == (V4 | {"hypervisor"}) - {"avx512f", "abm"}
    assert asked(avx512_vnni=True) == V4 | {"hypervisor"}  # the kernel may have switched it off
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert fingerprint.usable_flags() == V4 | {"hypervisor"}


def test_torch_knows_every_flag_of_a_class_that_it_is_asked_for():
    import torch

    known = torch.cpu.get_capabilities()
    if known["architecture"] == "x86_64":
        assert set(fingerprint._ASKED.values()) <= set(known)
        # No flag of these would be noticed if it were missing; every CPU with the others has them.
        assert V4 - set(fingerprint._ASKED) == {"movbe", "xsave"}


def test_a_class_needs_its_flags_and_a_better_cpu_has_them():
    assert missing_flags("X86_64_V3", V4) == frozenset()
    assert missing_flags("X86_64_V4", V3) == V4 - V3
    assert missing_flags("X86_64_V3", frozenset()) == V3
    assert missing_flags("X86_64_V9", V4) is None


def test_native_needs_exactly_what_the_compiler_may_have_used():
    here = frozenset({"avx2", "fma", "amx_tile", "hypervisor", "svm"})
    needed = needed_isa("Native", here)
    assert needed == "Native:amx_tile,avx2,fma"
    assert missing_flags(needed, here | {"more"}) == frozenset()
    assert missing_flags(needed, here - {"amx_tile"}) == {"amx_tile"}
    assert needed_isa("X86_64_V3", here) == "X86_64_V3"


def test_native_on_a_machine_that_does_not_tell_its_flags_fits_nowhere():
    assert missing_flags(needed_isa("Native", frozenset()), V4) is None


def test_json_keeps_everything():
    seen = Fingerprint(
        torch="2.15.0", python="3.11", machine="x86_64", device="cpu", cpu_isa="X86_64_V3",
        settings={"deterministic": "false"},
    )  # fmt: skip
    assert Fingerprint.from_json(seen.to_json()) == seen
    assert set(seen.to_json()) == {
        "torch", "torchBuild", "python", "machine", "device", "cpuIsa", "gpuName", "gpuCapability", "cuda", "triton", "driver",
        "settings",
    }  # fmt: skip


@pytest.mark.parametrize("missing", ["torch", "python", "machine", "device", "cpuIsa"])
def test_a_fingerprint_without_a_field_is_refused(missing):
    seen = Fingerprint(torch="2", python="3.11", machine="m", device="cpu", cpu_isa="X86_64_V3").to_json()
    del seen[missing]
    with pytest.raises(KeyError, match=missing):
        Fingerprint.from_json(seen)


def test_what_is_observed_here_fits_here():
    seen = fingerprint.observe(cpu_isa="X86_64_V3")
    assert fingerprint.reasons_against(seen, flags=V3) == []
    assert fingerprint.changed_settings(seen) is None
    assert seen.settings == {"float32MatmulPrecision": "highest", "deterministic": "false", "defaultDtype": "float32"}


def test_reasons_name_both_sides():
    seen = replace(fingerprint.observe(cpu_isa="X86_64_V4"), torch="2.14.1")
    first, second = fingerprint.reasons_against(seen, flags=V3)
    assert first.startswith("torch ")
    assert first.endswith(" in the pod, artifact has 2.14.1")
    assert second == ("CPU lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl, which code for X86_64_V4 needs")


def test_another_build_of_the_same_version_is_another_torch(monkeypatch):
    import torch

    seen = fingerprint.observe(cpu_isa="X86_64_V3")
    assert seen.torch_build == torch.version.git_version[:12]
    assert fingerprint.reasons_against(replace(seen, torch_build=None), flags=V3) == [], "made before it was kept"
    theirs = f"torch {torch.__version__}@{'{}'} in the pod, artifact has {torch.__version__}@{seen.torch_build}"
    monkeypatch.setattr(torch.version, "debug", True)
    assert fingerprint.reasons_against(seen, flags=V3) == [theirs.format(f"{seen.torch_build}-debug")]
    monkeypatch.setattr(torch.version, "debug", False)
    monkeypatch.setattr(torch.version, "git_version", "Unknown")
    assert fingerprint.reasons_against(seen, flags=V3) == [theirs.format("Unknown")]


def test_a_machine_is_told_in_the_words_of_a_profile(monkeypatch):
    import torch

    software = {"torch": torch.__version__, "python": ".".join(map(str, sys.version_info[:2]))}
    monkeypatch.setattr(fingerprint.platform, "machine", lambda: "x86_64")
    for flags, told in ((V4, "X86_64_V4"), (V3 | {"more"}, "X86_64_V3"), (V3 - {"fma"}, "below X86_64_V3")):
        monkeypatch.setattr(fingerprint, "usable_flags", lambda flags=flags: frozenset(flags))
        assert fingerprint.here(gpu=False) == {**software, "machine": "x86_64", "cpuIsa": told}
    monkeypatch.setattr(fingerprint, "may_have_gpu", lambda: False)
    assert fingerprint.here(gpu=True)["gpu"] == "none"
    monkeypatch.setattr(fingerprint, "may_have_gpu", lambda: True)
    assert "gpu" not in fingerprint.here(gpu=True), "CUDA is not begun with for it"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A10G")
    assert fingerprint.here(gpu=True)["gpu"] == "NVIDIA A10G"
    monkeypatch.setattr(fingerprint.platform, "machine", lambda: "aarch64")
    assert fingerprint.here(gpu=False) == {**software, "machine": "aarch64"}


def test_what_uses_more_of_a_cpu():
    assert fingerprint.needed_flags("X86_64_V3") == V3
    assert fingerprint.needed_flags("X86_64_V4") == V4 > V3
    assert fingerprint.needed_flags("Native:avx2,fma") == {"avx2", "fma"}
    assert fingerprint.needed_flags("X86_64_V9") is None
    assert fingerprint.needed_flags("Native:") is None


GPU = {"gpu_name": "NVIDIA A10G", "gpu_capability": "8.6", "cuda": "13.2", "triton": "3.6.0", "driver": "580.65"}


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A process with that GPU; gives the fingerprint of what was built there."""
    import torch

    monkeypatch.setattr(fingerprint, "may_have_gpu", lambda: True)
    facts = {name: value for name, value in GPU.items() if name != "driver"}
    monkeypatch.setattr(fingerprint, "_gpu", lambda device: facts if device in ("cuda:0", 0, None) else {})
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(fingerprint, "_driver_version", lambda: GPU["driver"])
    return fingerprint.observe(cpu_isa="X86_64_V3", device="cuda:0")


def test_a_gpu_is_observed_with_what_torch_drives_it_with(on_a_gpu):
    assert on_a_gpu == replace(fingerprint.observe(cpu_isa="X86_64_V3"), device="cuda", **GPU)
    assert fingerprint.observe(cpu_isa="X86_64_V3", device="cuda") == on_a_gpu, "the current one"


@pytest.mark.parametrize(
    ("field", "name"),
    [("gpu_name", "GPU"), ("gpu_capability", "GPU capability"), ("cuda", "CUDA"), ("triton", "triton")],
)
def test_another_gpu_or_what_torch_drives_it_with_is_named(on_a_gpu, field, name):
    assert fingerprint.gpu_reasons(on_a_gpu, "cuda:0") == []
    assert fingerprint.fits_a_gpu(on_a_gpu)
    other = replace(on_a_gpu, **{field: "other"})
    assert fingerprint.gpu_reasons(other, "cuda:0") == [f"{name} {GPU[field]} in the pod, artifact has other"]
    assert not fingerprint.fits_a_gpu(other)
    assert fingerprint.reasons_against(other, flags=V3) == [], "asked only for a module that is on one"


def test_a_driver_counts_only_where_it_is_too_old_for_torch(on_a_gpu):
    """Of such a one torch says that there is no GPU, so no module is on one."""
    assert fingerprint.gpu_reasons(replace(on_a_gpu, driver="595.10"), "cuda:0") == []
    assert fingerprint.gpu_reasons(on_a_gpu, None) == ["the module is not on a GPU, artifact is for NVIDIA A10G"]


def test_what_was_made_for_a_cpu_asks_for_no_gpu(on_a_gpu):
    seen = fingerprint.observe(cpu_isa="X86_64_V3")
    assert fingerprint.gpu_reasons(seen, None) == fingerprint.gpu_reasons(seen, "cuda:0") == []
    assert fingerprint.fits_a_gpu(seen)


def test_without_a_gpu_what_was_made_for_one_is_refused_at_once(on_a_gpu, monkeypatch):
    monkeypatch.setattr(fingerprint, "may_have_gpu", lambda: False)
    assert fingerprint.reasons_against(on_a_gpu, flags=V3) == ["no GPU in the pod, artifact is for NVIDIA A10G"]
