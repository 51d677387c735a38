"""Which targets can be of use on this machine, so that a pod does not download code its CPU cannot run.

A coarse sieve before the download: when in doubt a target is brought, because the runtime checks everything again where
the pod really runs. GPU targets always pass: `fetch` has no device to ask.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_runtime.manifest import Target

SERVED: Final = frozenset({"Kept", "Rejected"})
"""Verdicts with something to bring: a package or caches, or the word that this call stays eager."""
_V3: Final = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
REQUIRED_FLAGS: Final = {
    "X86_64_V3": _V3,
    "X86_64_V4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
"""Flags of /proc/cpuinfo for each class of the x86-64 psABI."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What `fetch` can see of where it runs; `cpu_flags` is empty when the kernel does not say."""

    architecture: str
    cpu_flags: frozenset[str]

    @classmethod
    def here(cls, cpuinfo: Path = Path("/proc/cpuinfo")) -> Machine:
        """Return this machine."""
        try:
            lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
        return cls(architecture=platform.machine(), cpu_flags=frozenset(flags.split()))


def fits(target: Target, machine: Machine) -> bool:
    """Whether the target's files may be of use here."""
    if target.verdict not in SERVED or target.fingerprint is None:
        return False
    fingerprint = target.fingerprint
    architecture = fingerprint.get("machine")
    if architecture and architecture != machine.architecture:
        return False
    if fingerprint.get("device") != "cpu" or not machine.cpu_flags:
        return True
    return REQUIRED_FLAGS.get(str(fingerprint.get("cpuIsa")), frozenset()) <= machine.cpu_flags


def select(targets: Iterable[Target], machine: Machine) -> list[Target]:
    """Return the targets worth bringing."""
    return [target for target in targets if fits(target, machine)]
