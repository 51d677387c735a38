"""What an artifact was built on and for, as observed in the process, and whether a pod has it.

Why it exists: labels of nodes say what somebody expected; only the process that will run the code can see which torch
it imported and which instructions its CPU has. The compile Job observes the same facts with the same functions, so the
comparison cannot drift. Nothing here imports torch before it is asked to.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outside import let_through
from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

# Names as /proc/cpuinfo spells them; lzcnt is called abm there. SSE levels are implied by avx2.
_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
CPU_CLASSES = {"X86_64_V3": _V3, "X86_64_V4": _V4}

# What a compiler told to use "this CPU" may emit; other flags (virtualisation, mitigations) differ between nodes
# without meaning anything for code.
_CODE_FLAG_PREFIXES = (
    "adx", "aes", "amx", "avx", "bmi", "cl", "f16c", "fma", "fsgsbase", "gfni", "lzcnt", "abm", "movbe", "movdir",
    "pclmul", "popcnt", "prefetchw", "ptwrite", "rdpid", "rdrand", "rdseed", "serialize", "sha", "sse", "ssse",
    "tbm", "vaes", "vpclmul", "waitpkg", "xop", "xsave",
    # aarch64
    "asimd", "atomics", "bf16", "crc32", "dotprod", "fp", "fcma", "i8mm", "jscvt", "lrcpc", "sb", "sm", "sve", "pmull",
)  # fmt: skip
NATIVE = "Native"

#: How names begin that drivers put there: NVIDIA's, also on Jetson; AMD's; Windows' under WSL.
_DEVICES, _GPU_FILES = Path("/dev"), ("nvidia", "nvhost", "nvgpu", "nvmap", "kfd", "dxg")

# The same instructions as torch names them when it asks the CPU itself.
_ASKED = {
    "abm": "lzcnt", "aes": "aes", "avx": "avx", "avx2": "avx2", "bmi1": "bmi", "bmi2": "bmi2", "f16c": "f16c",
    "fma": "fma3", "fma4": "fma4", "popcnt": "popcnt", "sha_ni": "sha",
    "avx512f": "avx512_f", "avx512bw": "avx512_bw", "avx512cd": "avx512_cd", "avx512dq": "avx512_dq",
    "avx512vl": "avx512_vl", "avx512ifma": "avx512_ifma", "avx512vbmi": "avx512_vbmi",
    "avx512_vbmi2": "avx512_vbmi2", "avx512_bitalg": "avx512_bitalg", "avx512_vpopcntdq": "avx512_vpopcntdq",
    "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16", "avx512_fp16": "avx512_fp16",
    "avx_vnni": "avx_vnni", "amx_tile": "amx_tile", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16",
}  # fmt: skip


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Instruction set flags of this machine's first CPU; empty when the system does not tell."""
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("flags", "Features")):
                    return frozenset(line.partition(":")[2].split())
    except OSError as error:
        let_through(error)
    return frozenset()


def usable_flags() -> frozenset[str]:
    """`cpu_flags` without those that the CPU, asked itself, has not; imports torch.

    Both are asked: /proc/cpuinfo may be another machine's (emulators pass the host's on, and it can be mounted over),
    and a kernel may switch off what the CPU has. A torch that cannot ask leaves it at what the kernel says.
    """
    import torch

    ask = getattr(torch.cpu, "get_capabilities", None)
    said: Mapping[str, Any] = ask() if ask is not None else {}
    return frozenset(flag for flag in cpu_flags() if said.get(_ASKED.get(flag, ""), True))


def needed_isa(cpu_isa: str, flags: frozenset[str] | None = None) -> str:
    """What code built for `cpu_isa` on this machine needs: a class, or `Native:` with the flags it may use."""
    if cpu_isa != NATIVE:
        return cpu_isa
    have = cpu_flags() if flags is None else flags
    return f"{NATIVE}:" + ",".join(sorted(flag for flag in have if flag.startswith(_CODE_FLAG_PREFIXES)))


def needed_flags(needed: str) -> frozenset[str] | None:
    """The CPU flags that code needing `needed` uses; None when it is not a class this version knows."""
    if needed.startswith(f"{NATIVE}:"):
        listed = needed.partition(":")[2]
        return frozenset(listed.split(",")) if listed else None
    return CPU_CLASSES.get(needed)


def missing_flags(needed: str, flags: frozenset[str]) -> frozenset[str] | None:
    """Flags that code needing `needed` would miss here; None when `needed` is not a class this version knows."""
    uses = needed_flags(needed)
    return None if uses is None else uses - flags


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Docs: contracts.md, section 6. `cpu_isa` is what the code needs; `torch_build` tells builds of one version apart."""

    torch: str
    python: str
    machine: str
    device: str
    cpu_isa: str
    torch_build: str | None = None
    gpu_name: str | None = None
    gpu_capability: str | None = None
    cuda: str | None = None
    triton: str | None = None
    driver: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The object that stands in result.json and in the manifest."""
        return {
            "torch": self.torch,
            "torchBuild": self.torch_build,
            "python": self.python,
            "machine": self.machine,
            "device": self.device,
            "cpuIsa": self.cpu_isa,
            "gpuName": self.gpu_name,
            "gpuCapability": self.gpu_capability,
            "cuda": self.cuda,
            "triton": self.triton,
            "driver": self.driver,
            "settings": dict(self.settings),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Fingerprint:
        """Raises KeyError or TypeError naming what is missing."""
        return cls(
            torch=data["torch"],
            torch_build=data.get("torchBuild"),
            python=data["python"],
            machine=data["machine"],
            device=data["device"],
            cpu_isa=data["cpuIsa"],
            gpu_name=data.get("gpuName"),
            gpu_capability=data.get("gpuCapability"),
            cuda=data.get("cuda"),
            triton=data.get("triton"),
            driver=data.get("driver"),
            settings=dict(data.get("settings") or {}),
        )


def torch_build() -> str:
    """What this process's torch was built from: a distribution's own may have the same version as the official one.

    The first twelve digits of the commit, and whether it is a debug build; torch says Unknown where it was not built from a checkout.
    """
    import torch

    return f"{torch.version.git_version[:12]}{'-debug' if torch.version.debug else ''}"


def settings() -> dict[str, str]:
    """Numeric settings of this process that change what a model computes."""
    import torch

    return {
        "float32MatmulPrecision": torch.get_float32_matmul_precision(),
        "deterministic": str(torch.are_deterministic_algorithms_enabled()).lower(),
        "defaultDtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }


def observe(*, cpu_isa: str, device: str = "cpu") -> Fingerprint:
    """The fingerprint of an artifact built here for `cpu_isa` (X86_64_V3, X86_64_V4, Native) and `device` (cpu, cuda:0)."""
    import torch

    kind = device.partition(":")[0]
    found = Fingerprint(
        torch=torch.__version__,
        torch_build=torch_build(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        machine=platform.machine(),
        device=kind,
        cpu_isa=needed_isa(cpu_isa),
        settings=settings(),
    )
    if kind != "cuda":
        return found
    return replace(found, **_gpu(None if device == kind else device), driver=_driver_version())


def _gpu(device: str | int | None) -> dict[str, Any]:
    """One GPU and what torch drives it with; None is the current one. Begins with CUDA in this process."""
    import torch

    try:
        import triton

        triton_version: str | None = triton.__version__
    except ImportError:
        triton_version = None
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "gpu_name": torch.cuda.get_device_name(device),
        "gpu_capability": f"{major}.{minor}",
        "cuda": torch.version.cuda,
        "triton": triton_version,
    }


def may_have_gpu() -> bool:
    """Whether there may be a GPU for this process, as far as that can be told without CUDA.

    In a process that asks CUDA anything, as `torch.cuda.is_available` does, no forked child can use it any more.
    """
    import torch

    if torch.cuda.is_initialized():
        return True
    if torch.version.cuda is None and torch.version.hip is None:
        return False
    try:
        return any(each.name.startswith(_GPU_FILES) for each in _DEVICES.iterdir())
    except OSError as error:  # nothing says that there is none
        let_through(error)
        return True


def here(*, gpu: bool) -> dict[str, str]:
    """What this process runs with and on, in words that are counted and compared; `gpu`: its GPU as well. Imports torch.

    CUDA is asked only where somebody has begun with it; else it is not known which GPU there is.
    """
    import torch

    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = {"torch": torch.__version__, "python": python, "machine": platform.machine()}
    flags = usable_flags()
    fitting = [name for name, needed in CPU_CLASSES.items() if needed <= flags]
    if found["machine"] == "x86_64":
        found["cpuIsa"] = fitting[-1] if fitting else "below X86_64_V3"
    if gpu and torch.cuda.is_initialized():
        found["gpu"] = torch.cuda.get_device_name()
    elif gpu and not may_have_gpu():
        found["gpu"] = "none"
    return found


def _driver_version() -> str | None:
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and "." in word), None)


def reasons_against(artifact: Fingerprint, *, flags: frozenset[str] | None = None) -> list[str]:
    """Why code with this fingerprint must not run in this process, in words; empty when it may.

    `settings` are left out: they can change during the life of the process, and are compared at each call. So is which GPU
    there is, which only a module on one brings up: see `gpu_reasons`.
    """
    import torch

    reasons = []
    if artifact.torch != torch.__version__:
        reasons.append(f"torch {torch.__version__} in the pod, artifact has {artifact.torch}")
    elif artifact.torch_build not in (None, build := torch_build()):  # artifacts of before it was kept have none
        reasons.append(
            f"torch {artifact.torch}@{build} in the pod, artifact has {artifact.torch}@{artifact.torch_build}"
        )
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if artifact.python != python:
        reasons.append(f"Python {python} in the pod, artifact has {artifact.python}")
    if artifact.machine != platform.machine():
        reasons.append(f"machine {platform.machine()} in the pod, artifact has {artifact.machine}")
    else:
        missing = missing_flags(artifact.cpu_isa, usable_flags() if flags is None else flags)
        if missing is None:
            reasons.append(f"artifact needs CPU class {artifact.cpu_isa[:40]}, which this version does not know")
        elif missing:
            reasons.append(f"CPU lacks {', '.join(sorted(missing)[:8])}, which code for {artifact.cpu_isa[:9]} needs")
    if artifact.device == "cuda" and not may_have_gpu():
        reasons.append(f"no GPU in the pod, artifact is for {artifact.gpu_name}")
    return reasons


def gpu_reasons(artifact: Fingerprint, device: str | int | None) -> list[str]:
    """Why code with this fingerprint must not run for a module on this GPU, in words; empty when it may.

    None is for a module on no GPU: CUDA is then not asked, since only who has put something there has surely begun with it.
    """
    if artifact.device != "cuda":
        return []
    if device is None:
        return [f"the module is not on a GPU, artifact is for {artifact.gpu_name}"]
    words = {"gpu_name": "GPU", "gpu_capability": "GPU capability", "cuda": "CUDA", "triton": "triton"}
    return [
        f"{words[name]} {pod} in the pod, artifact has {theirs}"
        for name, pod in _gpu(device).items()
        if pod != (theirs := getattr(artifact, name))
    ]


def fits_a_gpu(artifact: Fingerprint) -> bool:
    """Whether code with this fingerprint may run on a GPU of this process; where nobody has begun with CUDA, it may."""
    import torch

    if artifact.device != "cuda" or not torch.cuda.is_initialized():
        return True
    return not all(gpu_reasons(artifact, index) for index in range(torch.cuda.device_count()))


def changed_settings(artifact: Fingerprint) -> str | None:
    """The first numeric setting of this process that is not as it was in the compile Job, in words."""
    now = settings()
    if artifact.settings == now:  # at every call
        return None
    for name, value in artifact.settings.items():
        if now.get(name) != value:
            return f"{name} is {now.get(name)} in the pod, artifact has {value}"
    return None
