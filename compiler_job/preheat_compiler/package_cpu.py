"""Keeps Inductor's code inside one CPU class.

Why it exists: by default it uses everything the building CPU has, and a pod on another node dies of SIGILL. The
compiler's `-march` and Inductor's own choice of vector code are separate; both must be held. Nothing here needs
environment variables, so the eager baseline in the same process keeps torch's fastest kernels.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from preheat_runtime import vector
from preheat_runtime.fingerprint import CPU_CLASSES, NATIVE, missing_flags, usable_flags

from .package_errors import CompilerMissing, InputsRefused, IsaUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_MARCH = {"X86_64_V3": "x86-64-v3", "X86_64_V4": "x86-64-v4"}

GET_A_COMPILER = (
    "Install g++ in the image (Debian: apt-get install g++), or let CXX name another C++ compiler; pods do not need it."
)


def require_compiler() -> None:
    """Raise CompilerMissing when Inductor will find no C++ compiler."""
    wanted = os.environ.get("CXX", "g++")
    if shutil.which(wanted) is None:
        raise CompilerMissing(f"there is no {wanted} in the image. {GET_A_COMPILER}")


def require_cpu(cpu_isa: str) -> None:
    """Raise IsaUnavailable when this CPU cannot run code of the class, so that nothing could be proved here."""
    if cpu_isa == NATIVE:
        return
    if cpu_isa not in CPU_CLASSES:
        raise InputsRefused(f"cpuIsa is {cpu_isa!r}; give X86_64_V3, X86_64_V4 or Native", name="cpuIsa")
    missing = missing_flags(cpu_isa, usable_flags())
    if missing:
        raise IsaUnavailable(
            f"this node's CPU lacks {', '.join(sorted(missing))}, so code for {cpu_isa} cannot be proved here; "
            "choose another cpuIsa, or a nodeSelector for nodes that have it"
        )


def inductor_settings(cpu_isa: str) -> dict[str, Any]:
    """Inductor's options for the class. The number of threads is left to the pod."""
    settings: dict[str, Any] = {"cpp.dynamic_threads": True}
    if cpu_isa in _MARCH:
        settings["cpp.march"] = _MARCH[cpu_isa]
    return settings


@contextmanager
def vector_code(cpu_isa: str) -> Iterator[None]:
    """Inside, Inductor writes vector code for the class at most.

    The environment variable for it would choose AMX for AVX-512, so the list it chooses from is another instead; see
    `preheat_runtime.vector`. That this CPU has the class was seen in its flags already.
    """
    from torch._inductor import config, cpu_vec_isa

    if cpu_isa == NATIVE:
        yield
        return
    former = cpu_vec_isa.supported_vec_isa_list
    capability = os.environ.pop("ATEN_CPU_CAPABILITY", None)
    vector.hold(cpu_isa)
    try:
        with config.patch({"cpp.vec_isa_ok": True}):
            chosen = cpu_vec_isa.pick_vec_isa()
            if chosen not in (*cpu_vec_isa.supported_vec_isa_list, cpu_vec_isa.invalid_vec_isa):
                raise IsaUnavailable(f"Inductor would write {type(chosen).__name__} code for {cpu_isa}")
            yield
    finally:
        cpu_vec_isa.supported_vec_isa_list = former
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
        if capability is not None:
            os.environ["ATEN_CPU_CAPABILITY"] = capability
