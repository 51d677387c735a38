"""Brings what torch has learned of which sizes vary from the compile Job to pods.

Why it exists: torch compiles a process's first call for its exact sizes, and only the second, of another size, for all of them. The
caches of a range held the first for one size alone: a pod whose first call had another compiled for itself. torch calls what it learns
its profile, and with that of the Job it takes the first call for one of many (as with `torch.compiler.config.job_id`, which is the
whole process's and a person's to set, so the profile is given to torch in memory).
"""

from __future__ import annotations

import hashlib
import pickle
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "dynamo"
PATTERN: Final = "sizes-*.pickle"


def save(caches: Path) -> None:
    """Write what torch has learned in this process into the folder of caches. A torch that has no such thing leaves none."""
    profile = _profile()
    if not profile:
        return
    content = pickle.dumps(dict(profile))
    place = caches / FOLDER
    place.mkdir(parents=True, exist_ok=True)
    # Of several artifacts in one folder none replaces another's.
    (place / PATTERN.replace("*", hashlib.sha256(content).hexdigest()[:16])).write_bytes(content)


def bring(caches: Path) -> None:
    """Tell torch, which has not compiled what is in these caches yet, which of its sizes vary.

    Where two artifacts say different things of the same code, neither is told: torch learns it as it does without.
    """
    found: dict[Any, Any] = {}
    differ = set()
    for path in sorted((caches / FOLDER).glob(PATTERN)):
        # As trusted as the caches themselves, which are code.
        for code, learned in pickle.loads(path.read_bytes()).items():  # noqa: S301
            if found.setdefault(code, learned) != learned:
                differ.add(code)
    if not found:
        return
    profile = _profile()
    if profile is None:
        return
    for code, learned in found.items():
        if code not in differ:
            profile.setdefault(code, learned)


def _profile() -> Any:
    """torch's own, by code object; None where this torch has none."""
    from torch._dynamo import pgo

    get = getattr(pgo, "get_code_state", None)
    return None if get is None else get()
