"""That what pods run on has changed under a revision, from what they report: another torch, another CPU or GPU.

Why it exists: torch may come from a volume, and nodes are replaced; then nothing that the controller may read has changed, and
every pod starts cold. The pods see it, and say so. No right to read nodes could tell as much: labels say what somebody
expected, and none says which torch a volume holds.

What one pod says decides nothing, and neither do pods that disagree: then there are several kinds of nodes, which no new
compile can be for at once, and which conditions tell of. So at least two pods, and a fifth, say the same, and none of the
revision's pods is served as intended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from preheat_operator.plan.notices import AS_INTENDED, HARDWARE
from preheat_operator.plan.watched import is_enough

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from preheat_operator.plan.watched import Witness

_SOFTWARE: Final = frozenset({"TorchDiffers", "PythonDiffers"})
_TORCH: Final = "torch"
_TOLD: Final = {
    "torch": "torch {}",
    "python": "Python {}",
    "machine": "{}",
    "cpuIsa": "CPU class {}",
    "gpu": "GPU {}",
}


def environments(seen: Iterable[Witness]) -> dict[str, str]:
    """Manifest to what its pods run on now, in words; only of manifests for which that is another than they were made for."""
    groups: dict[str, list[Witness]] = {}
    for witness in seen:
        groups.setdefault(witness.manifest, []).append(witness)
    found = {manifest: _of(pods) for manifest, pods in groups.items()}
    return {manifest: said for manifest, said in found.items() if said}


def is_software(environment: str) -> bool:
    """Whether it tells of torch and Python, and not of a machine."""
    return environment.startswith(f"{_TORCH} ")


def _of(pods: list[Witness]) -> str:
    if any(_reasons(witness) & AS_INTENDED for witness in pods):
        return ""
    said = [_environment(witness) for witness in pods]
    words = {each for each in said if each}
    count = sum(bool(each) for each in said)
    return words.pop() if len(words) == 1 and is_enough(blamed=count, pods=len(pods)) else ""


def _environment(witness: Witness) -> str:
    """What a pod that found another environment found; empty where it did not, or does not say."""
    reasons = _reasons(witness)
    if reasons & _SOFTWARE:
        return _words(witness.served.node, ("torch", "python"))
    return _words(witness.served.node, ("machine", "cpuIsa", "gpu")) if reasons & HARDWARE else ""


def _words(facts: Mapping[str, str], of: tuple[str, ...]) -> str:
    # The first of them is always told by a pod that tells any.
    return ", ".join(_TOLD[name].format(facts[name]) for name in of if name in facts) if of[0] in facts else ""


def _reasons(witness: Witness) -> set[str]:
    return {answer.partition("/")[2] for answer in witness.served.answers}
