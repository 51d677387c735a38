"""What `fetch` brought into this pod: the targets of its revision, and which of them this process can use.

Why it exists: files in PREHEAT_DIR were verified before they became visible and are mounted read-only, so they are
taken at their word here; but whether they fit is known only in the process that will run them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .fingerprint import Fingerprint, reasons_against
from .locks import once_property
from .manifest import Manifest, ManifestError, digest_of
from .outside import let_through
from .package import TARGET_FILE, Target
from .records import dataclass
from .variables import ENV_DIR

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .manifest import Target as ManifestTarget


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One Kept or Rejected target of the revision whose fingerprint fits this process. Equal only to itself.

    Whether the GPU fits as well, only a module on one shows: see `Chooser`.
    """

    entry: ManifestTarget
    directory: Path
    fingerprint: Fingerprint

    @once_property
    def target(self) -> Target:
        """The contract. Raises TargetUnreadable."""
        return Target.read(self.directory / TARGET_FILE)

    @property
    def size(self) -> int:
        """Bytes of its files, as the manifest lists them."""
        return sum(file.size for file in self.entry.files)

    @property
    def kind(self) -> str:
        """package, caches or rejected."""
        return "rejected" if self.entry.verdict == "Rejected" else str(self.entry.tier)


@dataclass(frozen=True, kw_only=True)
class Revision:
    """The candidates of this pod; of targets that are none, `reason` says why in words."""

    manifest: str | None
    candidates: tuple[Candidate, ...]
    reason: str


def load(environ: Mapping[str, str]) -> Revision:
    """Read the revision in PREHEAT_DIR. Never raises for what is or is not there; costs a few milliseconds."""
    root = Path(environ[ENV_DIR])
    try:
        data = (root / "revision" / "manifest.json").read_bytes()
    except OSError as error:
        let_through(error)
        return Revision(manifest=None, candidates=(), reason=_why_nothing(root))
    try:
        manifest = Manifest.parse(data)
    except ManifestError as error:
        let_through(error)
        return Revision(manifest=None, candidates=(), reason=f"the manifest cannot be read: {error}")
    candidates, reasons = [], []
    for entry in manifest.targets:
        name = f"{entry.module}/{entry.bucket}/{entry.hardware}"
        if entry.verdict not in ("Kept", "Rejected"):
            reasons.append(f"{name}: {entry.verdict}, {entry.reason}: {entry.message}")
            continue
        try:
            fingerprint = Fingerprint.from_json(entry.fingerprint or {})
        except (KeyError, TypeError) as error:
            let_through(error)
            reasons.append(f"{name}: its fingerprint cannot be read: {error!r}")
            continue
        against = reasons_against(fingerprint)
        directory = root / "revision" / entry.folder
        if against := against or _unusable(directory, code=entry.tier == "package"):
            reasons.append(f"{name}: {'; '.join(against)}")
        else:
            candidates.append(Candidate(entry=entry, directory=directory, fingerprint=fingerprint))
    reason = " | ".join(reasons)[:1000] or ("" if candidates else "the revision has no targets")
    return Revision(manifest=digest_of(data), candidates=tuple(candidates), reason=reason)


def _unusable(directory: Path, *, code: bool) -> list[str]:
    """What keeps this process from the files of a target, in words."""
    try:
        (directory / TARGET_FILE).stat()
        flags = os.statvfs(directory).f_flag
    except FileNotFoundError:
        return ["its files were not brought into this pod"]
    except OSError as error:
        let_through(error)
        return [f"its files cannot be read by user {os.getuid()}: {error.strerror}"]
    return [f"{directory} is mounted noexec, so no code in it can run"] if code and flags & os.ST_NOEXEC else []


def _why_nothing(root: Path) -> str:
    try:
        fetch = json.loads((root / "fetch.json").read_bytes())
        outcome, reason, message = fetch["outcome"], fetch.get("reason"), fetch.get("message")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        let_through(error)
        return f"there is no revision in {root}, and fetch left no word"
    if outcome == "NoRevision":
        return "no revision was ready for this pod's image when it started"
    return f"fetch: {outcome}{', ' + str(reason) if reason else ''}: {message}"[:1000]
