"""Remembers, on disk, how far each target is.

Why it exists: a compile container may be restarted in its pod, and hours of compiling must not be lost, nor a target
that brings the whole container down be tried for ever. Folders below the out folder:

    .work/<module>/<bucket>/       what is being compiled; gone when there is a verdict
    .results/<module>/<bucket>.json    the verdict, written after the files are in place
    .results/<module>/<bucket>.started how often it was begun without one
    <module>/<bucket>/             the files of the verdict, moved here in one rename
"""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING

from preheat_compiler import ingredients
from preheat_compiler.report import write_atomically
from preheat_compiler.verdict import TargetResult
from preheat_runtime.manifest import canonical_json

if TYPE_CHECKING:
    from pathlib import Path

    from preheat_compiler.request import Request

#: A target that was running twice when the container went down is not begun again.
_MOST_STARTS = 2


class Ledger:
    """The state of every target of one request in one out folder; other requests' leftovers are not looked at.

    Nor is what was found with another Python, other packages or another Preheat (`around`, see `ingredients`).
    `attended`: a person has asked for this very run, perhaps because something was mended, so what is Failed is tried
    again, and starts that came to nothing are not held against a target.
    """

    def __init__(self, out: Path, request: Request, *, around: str = "", attended: bool = False) -> None:
        self._out = out
        what = {key: value for key, value in request.raw.items() if key not in {"targets", "timeoutSeconds"}}
        self._request = hashlib.sha256(canonical_json(what) + around.encode()).hexdigest()
        self._attended = attended

    def result(self, module: str, bucket: str) -> TargetResult | None:
        """The verdict reached before, if all its files are still there, and the code it is on is the same."""
        try:
            record = json.loads(self._record(module, bucket).read_text(encoding="utf-8"))
            if record["request"] != self._request:
                return None
            result = TargetResult.from_json(record["result"])
            if (self._attended and result.verdict == "Failed") or not ingredients.unchanged(record["sources"]):
                return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return result if all((self._out / result.name / file).is_file() for file in result.files) else None

    def killed_before(self, module: str, bucket: str) -> TargetResult | None:
        """Failed (Killed), written down, for a target that was running each time the container went down; else None."""
        if self._attended or self._starts(module, bucket) < _MOST_STARTS:
            return None
        return self.finish(
            TargetResult(
                module=module,
                bucket=bucket,
                verdict="Failed",
                reason="Killed",
                message=f"the container went down {_MOST_STARTS} times while this target was compiled, most often for "
                "memory. Raise the memory limit in hardware[].resources.",
            )
        )

    def begin(self, module: str, bucket: str) -> Path:
        """An empty work folder for the target; counts the start."""
        work = self._work(module, bucket)
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(self._out / module / bucket, ignore_errors=True)
        (work / "artifact").mkdir(parents=True)
        write_atomically(self._started(module, bucket), f"{self._request} {self._starts(module, bucket) + 1}\n")
        return work

    def stopped(self, module: str, bucket: str) -> None:
        """The start counts as none: we were told to stop, which says nothing of the target.

        Also in a pod. Who needs too much memory is killed without being told first; and where a whole pod is told to
        make room (eviction), its folder goes with it, so that no count can keep its successor from trying for ever:
        that is the Job's deadline to do.
        """
        count = self._starts(module, bucket) - 1
        if count > 0:
            write_atomically(self._started(module, bucket), f"{self._request} {count}\n")
        else:
            self._started(module, bucket).unlink(missing_ok=True)

    def stage(self, module: str, bucket: str) -> str:
        """What the target's process was doing last; empty when it did not say."""
        try:
            return (self._work(module, bucket) / "stage").read_text(encoding="utf-8")
        except OSError:
            return ""

    def verdict(self, module: str, bucket: str) -> TargetResult | None:
        """What the target's process wrote as its verdict, if it came that far and its files are there."""
        work = self._work(module, bucket)
        try:
            result = TargetResult.from_json(json.loads((work / "verdict.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return result if all((work / "artifact" / file).is_file() for file in result.files) else None

    def finish(self, result: TargetResult) -> TargetResult:
        """Move the target's files in place and write its verdict down; frees what the compile left behind."""
        work, final = self._work(result.module, result.bucket), self._out / result.name
        shutil.rmtree(final, ignore_errors=True)
        if result.files:
            final.parent.mkdir(parents=True, exist_ok=True)
            (work / "artifact").replace(final)
            _make_readable(final)
        record = {"request": self._request, "result": result.to_json(), "sources": _sources(work)}
        shutil.rmtree(work, ignore_errors=True)
        write_atomically(self._record(result.module, result.bucket), json.dumps(record))
        self._started(result.module, result.bucket).unlink(missing_ok=True)
        return result

    def clean(self) -> None:
        """Remove the work folders."""
        shutil.rmtree(self._out / ".work", ignore_errors=True)

    def _starts(self, module: str, bucket: str) -> int:
        try:
            request, _, count = self._started(module, bucket).read_text(encoding="utf-8").strip().partition(" ")
        except OSError:
            return 0
        return int(count) if request == self._request and count.isdecimal() else 0

    def _work(self, module: str, bucket: str) -> Path:
        return self._out / ".work" / module / bucket

    def _record(self, module: str, bucket: str) -> Path:
        return self._out / ".results" / module / f"{bucket}.json"

    def _started(self, module: str, bucket: str) -> Path:
        return self._out / ".results" / module / f"{bucket}.started"


def _sources(work: Path) -> dict[str, str]:
    """What the target's process said it had imported; nothing where it did not come that far, or its folder is gone."""
    try:
        found = json.loads((work / ingredients.FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _make_readable(folder: Path) -> None:
    # `publish` runs as another user, and the user's code may have set any umask.
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
