"""Brings an earlier revision's artifacts beside the request, and counts what of them is in the new one.

Code does not depend on weights. So when only they changed, the compile step first tries what the revision before had;
and what it left is told from something new by its bytes here, not by what it says of itself.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from preheat_operator.containers.files import remove
from preheat_operator.containers.fit import FOR_PEOPLE, SERVED
from preheat_operator.store import fetching
from preheat_operator.store.manifests import read_manifest
from preheat_runtime import bytecode

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_operator.containers.request import JobRequest
    from preheat_operator.store.interface import Objects
    from preheat_operator.store.keys import Keys
    from preheat_runtime.manifest import Manifest, Target

FOLDER: Final = "base"
"""Beside request.json; the compile driver looks there."""
_DEADLINE_SECONDS: Final = 600
_REPORT: Final = "report.json"
# Made anew by every Job: reports, and byte code that follows the release of Preheat.
_NOT_THE_ARTIFACT = FOR_PEOPLE | {bytecode.FILE}


def bring(store: Objects, keys: Keys, *, request: JobRequest, directory: Path) -> int:
    """Lay what the request's base has for its targets below `directory`; how many targets that were.

    Raises StoreError; then there is no folder, and everything is compiled.
    """
    into = directory / FOLDER
    remove(into)
    if request.base is None:
        return 0
    data, manifest = read_manifest(store, keys, request.base)
    targets = [
        replace(target, files=tuple(file for file in target.files if _is_of_use(target, file.path)))
        for target in manifest.targets
        if target.hardware == request.hardware
        and (target.module, target.bucket) in request.targets
        and target.verdict in SERVED
    ]
    into.mkdir(mode=0o755)
    into.chmod(0o755)
    try:
        fetching.fetch_targets(
            store, keys, targets, into, deadline=fetching.Deadline(time.monotonic() + _DEADLINE_SECONDS)
        )
        path = into / "manifest.json"
        path.write_bytes(data)
        path.chmod(0o644)
    except BaseException:
        remove(into)
        raise
    return len(targets)


def _is_of_use(target: Target, path: str) -> bool:
    """Whether the compile step looks at a file: of a target that stays Rejected, the report is all that tells why."""
    return path not in FOR_PEOPLE or (target.verdict == "Rejected" and path == _REPORT)


def carried(manifest: Manifest, base: Manifest, request: JobRequest) -> int:
    """How many kept targets of this Job have the base's artifact, to the byte."""
    former = {target.key: _bytes(target) for target in base.targets if target.verdict == "Kept"}
    wanted = {(*pair, request.hardware) for pair in request.targets}
    return sum(
        1
        for target in manifest.targets
        if target.key in wanted and target.verdict == "Kept" and former.get(target.key) == _bytes(target)
    )


def _bytes(target: Target) -> dict[str, str]:
    return {file.path: file.sha256 for file in target.files if file.path not in _NOT_THE_ARTIFACT}
