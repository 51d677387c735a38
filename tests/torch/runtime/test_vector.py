"""On a CPU that has everything, Inductor writes vector code for the class and no more, and compiles nothing to know it."""

import pytest
import torch
from torch._inductor import config, cpu_vec_isa

from preheat_runtime import vector
from preheat_runtime.environment import isa_environment

pytestmark = pytest.mark.torch

AVX512 = {"-mavx512f", "-mavx512dq", "-mavx512vl", "-mavx512bw", "-mfma"}
FLAGS = {"X86_64_V3": {"-mavx2", "-mfma", "-mf16c"}, "X86_64_V4": AVX512}


@pytest.fixture
def probes(monkeypatch):
    """A CPU with AMX, VNNI and bfloat16, and a torch that has not looked yet; what it compiles to look."""
    for name in ("avx2", "avx512", "avx512_bf16", "vnni", "amx_tile", "amx_fp16"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_init_amx", lambda: True)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    compiled = []
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda isa, code: compiled.append(code) or True)
    fresh = [type(each)() for each in cpu_vec_isa.supported_vec_isa_list]
    monkeypatch.setattr(cpu_vec_isa, "supported_vec_isa_list", fresh)
    forget()
    with config.patch({"cpp.vec_isa_ok": True}):
        yield compiled
    forget()


def forget():
    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    for kind in (cpu_vec_isa.VecAMX, cpu_vec_isa.VecAVX512VNNI, cpu_vec_isa.VecAVX512):
        kind.__bool__.cache_clear()


def picked():
    return set(cpu_vec_isa.pick_vec_isa().build_arch_flags().split())


@pytest.mark.parametrize("said", [True, False], ids=["as a pod says", "nothing said"])
@pytest.mark.parametrize("cpu_isa", FLAGS)
def test_a_class_is_held(probes, monkeypatch, cpu_isa, said):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    if said:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", isa_environment(cpu_isa)["ATEN_CPU_CAPABILITY"])
    vector.hold(cpu_isa)
    assert picked() == FLAGS[cpu_isa]
    assert probes == []


def test_torch_alone_takes_what_the_cpu_has(probes, monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx512")
    assert picked() >= AVX512 | {"-mavx512vnni", "-mamx-tile"}
    assert len(probes) >= 3


def test_native_is_left_to_torch(probes):
    before = cpu_vec_isa.supported_vec_isa_list
    vector.hold("Native avx2")
    assert cpu_vec_isa.supported_vec_isa_list is before
    assert vector.vectors("Native") is None


def test_templates_that_ask_for_a_kind_of_code_find_it(probes):
    vector.hold("X86_64_V4")
    wide = cpu_vec_isa.pick_vec_isa()
    assert isinstance(wide, cpu_vec_isa.VecAVX512)
    assert not isinstance(wide, cpu_vec_isa.VecAVX512VNNI)
    assert not wide.is_avx512_bf16_supported()
    assert wide in cpu_vec_isa.supported_vec_isa_list
    assert str(wide) == "avx512"
