"""The variables that compilers read, said once for the compile Job and for the pod.

Why it exists: Inductor's cache keys contain settings that come from the environment, and leave out one thing that
decides whether the code may run at all, the CPU's instruction set. A cache is only found, and only safe, when both
sides set exactly the same.
"""

from __future__ import annotations

#: Folder inside a caches artifact that becomes TORCHINDUCTOR_CACHE_DIR.
CACHE_DIRECTORY = "caches"

#: Read once by the code of a package, at its first run: check sizes, strides, dtypes and devices of the inputs.
CHECK_INPUTS = ("AOTI_RUNTIME_CHECK_INPUTS", "1")


def cache_environment() -> dict[str, str]:
    """Variables that must be equal where a cache is written and where it is read.

    Precompiled headers live outside the cache directory and would be rebuilt in every pod; the probe of the vector
    instruction set starts a compiler; the number of threads would otherwise be part of the key.
    """
    return {
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
        "TORCHINDUCTOR_CPP_DYNAMIC_THREADS": "1",
    }


def isa_environment(cpu_isa: str) -> dict[str, str]:
    """Variables that keep Inductor's CPU code inside a class; to be set before torch is imported.

    They also slow torch's own kernels down to that class, so a baseline must be measured without them.
    """
    if cpu_isa == "X86_64_V3":
        return {"TORCHINDUCTOR_CPP_MARCH": "x86-64-v3", "ATEN_CPU_CAPABILITY": "avx2"}
    if cpu_isa == "X86_64_V4":
        return {"TORCHINDUCTOR_CPP_MARCH": "x86-64-v4", "ATEN_CPU_CAPABILITY": "avx512"}
    return {}


def cache_key_tag(cpu_isa: str) -> str:
    """Value of `torch.compiler.config.cache_key_tag`: torch's own key does not contain the instruction set.

    `cpu_isa` is what the code needs, as in a fingerprint: for Native with all its flags, or two CPUs would share a key.

    Set it as an attribute. As a variable it is read when torch is imported, before any hook runs.
    """
    return f"preheat-isa={cpu_isa}"
