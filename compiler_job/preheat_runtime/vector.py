"""What vector code Inductor may write for a CPU class: the class's own, whatever more the CPU at hand has.

Why it exists: `-march` holds the C++ compiler alone. Inductor picks its vector types by the CPU it runs on, AMX or VNNI for
AVX-512 and bfloat16 instructions with them, and hands the compiler the flags: code for the class that dies of SIGILL on another
CPU of it, and caches that only pods on the same CPU find. To know what it may pick it also compiles and loads two or three
probes, seconds of a pod's first answer. The compile Job and the pod must say the same here, or nothing is found.
"""

from __future__ import annotations

import functools
from typing import Any

#: torch's names for what a class has, the widest first.
_VECTORS = {"X86_64_V3": ("VecAVX2",), "X86_64_V4": ("VecAVX512", "VecAVX2")}


def vectors(cpu_isa: str) -> list[Any] | None:
    """torch's descriptions of the class's vector code; None where nothing is held (Native). Imports a part of Inductor."""
    if cpu_isa not in _VECTORS:
        return None
    return [_as_the_class_has_it(name) for name in _VECTORS[cpu_isa]]


@functools.lru_cache
def _as_the_class_has_it(name: str) -> Any:
    from torch._inductor import cpu_vec_isa

    described = getattr(cpu_vec_isa, name)

    def is_there(_self: Any) -> bool:
        return True  # the CPU's flags said so; torch's own answer compiles probes, and adds the flags of what they find

    return type(name, (described,), {"__bool__": is_there, "__hash__": described.__hash__})()


def hold(cpu_isa: str) -> None:
    """From now on this process's Inductor writes vector code for the class at most."""
    found = vectors(cpu_isa)
    if found is not None:
        from torch._inductor import cpu_vec_isa

        cpu_vec_isa.supported_vec_isa_list = found
        cpu_vec_isa.valid_vec_isa_list.cache_clear()
