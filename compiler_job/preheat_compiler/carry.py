"""Finds what an earlier revision has for this target, and says whether it is for the same graph.

Why it exists: new weights are the most frequent change of a model, and code does not depend on them. So where the
toolkit laid a former revision beside the request, its artifact is tried with the new weights, by the same comparisons
and measurements as one that was just built. Left out are the building, and the proof with other weights, which the very
same bytes have stood. Whatever is in doubt is built.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preheat_compiler.report import FILE as REPORT_FILE
from preheat_runtime import identity
from preheat_runtime.manifest import Manifest, ManifestError
from preheat_runtime.package import TARGET_FILE, Target, TargetUnreadable

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_compiler.work import Work
    from preheat_runtime.manifest import Target as Entry

#: Beside request.json: the revision named by its `base`, laid out as in a pod.
FOLDER = "base"
#: What Rejected a target whatever its weights: speed, memory and graphs are those of the same code.
_WHATEVER_THE_WEIGHTS = frozenset(
    {
        "SpeedupBelowMinimum",
        "NoDifference",
        "GraphBreaksAboveMaximum",
        "RecompilesAboveMaximum",
        "MemoryAboveMaximum",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Former:
    """A target of the earlier revision: its entry in the manifest, its files, its contract."""

    entry: Entry
    folder: Path
    contract: Target

    def copy_to(self, artifact: Path) -> None:
        """Make the empty folder `artifact` the former one, to the byte."""
        shutil.copytree(self.folder, artifact, dirs_exist_ok=True)

    def report(self) -> dict[str, Any] | None:
        """What was seen when it was compiled; None where the earlier revision has no report that can be read."""
        try:
            content = json.loads((self.folder / REPORT_FILE).read_bytes())
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) else None


class AnotherGraphError(Exception):
    """There is nothing to carry over; the message says why."""


def find(work: Work, described: Target) -> Former:
    """The former target, if it is of this very module, asked for in the same way and built on the same machine.

    Raises AnotherGraphError.
    """
    base = work.request.base
    root = work.request_file.parent / FOLDER
    try:
        manifest = Manifest.parse((root / "manifest.json").read_bytes(), digest=base)
    except FileNotFoundError:
        raise AnotherGraphError("the earlier revision could not be brought here") from None
    except (OSError, ManifestError) as error:
        raise AnotherGraphError(f"the earlier revision cannot be read: {error}") from None
    key = (work.module.name, work.bucket.name, work.request.hardware)
    entry = next((each for each in manifest.targets if each.key == key), None)
    if entry is None or entry.verdict not in ("Kept", "Rejected"):
        raise AnotherGraphError("the earlier revision has nothing for this target")
    if entry.verdict == "Rejected" and entry.reason not in _WHATEVER_THE_WEIGHTS:
        raise AnotherGraphError(f"the earlier revision was Rejected ({entry.reason}), which may be its weights' doing")
    if entry.request_key != work.request_key:
        raise AnotherGraphError("the earlier revision was asked for otherwise, or built on another machine or torch")
    folder = root / entry.folder
    try:
        contract = Target.read(folder / TARGET_FILE)
    except (OSError, TargetUnreadable) as error:
        raise AnotherGraphError(f"the earlier revision's contract cannot be read: {error}") from None
    difference = identity.difference(described.identity, contract.identity)
    if difference is not None:
        raise AnotherGraphError(f"the module is another one: {difference}")
    return Former(entry=entry, folder=folder, contract=contract)
