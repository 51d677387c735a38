"""Which targets can be of use on this machine, so that a pod does not download code its CPU cannot run.

A coarse sieve before the download: when in doubt a target is brought, because the runtime checks everything again where
the pod really runs. GPU targets always pass: `fetch` has no device to ask.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from preheat_runtime.fingerprint import cpu_flags, missing_flags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_runtime.manifest import Target

SERVED: Final = frozenset({"Kept", "Rejected"})
"""Verdicts with something to bring: a package or caches, or the word that this call stays eager."""


FOR_PEOPLE: Final = frozenset({"report.json", "report.csv", "report.html"})
"""What of an artifact is read by people, and would only keep a pod waiting."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What `fetch` can see of where it runs; `cpu_flags` is empty when the kernel does not say."""

    architecture: str
    cpu_flags: frozenset[str]

    @classmethod
    def here(cls) -> Machine:
        """Return this machine."""
        return cls(architecture=platform.machine(), cpu_flags=cpu_flags())


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
    # None: a class this version has no flags for, left to the runtime's judgement.
    return not missing_flags(str(fingerprint.get("cpuIsa")), machine.cpu_flags)


def select(targets: Iterable[Target], machine: Machine) -> list[Target]:
    """Return the targets worth bringing, with the files that a pod has a use for."""
    return [
        replace(target, files=tuple(file for file in target.files if file.path not in FOR_PEOPLE))
        for target in targets
        if fits(target, machine)
    ]
