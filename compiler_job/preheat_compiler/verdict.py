"""What a target ends with: one record per target, of the closed list of verdicts and reasons.

Why it exists: the controller, the store and the pods all act on these words, so a target of the compile driver cannot
end in any other way: a word that is not in the list fails here and not in a pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from preheat_runtime.manifest import MAX_MESSAGE_CHARACTERS, REASONS
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping


class TargetError(Exception):
    """A target ends as Failed; `reason` is one of the closed list, the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        if reason not in REASONS["Failed"]:
            raise ValueError(f"{reason!r} is no reason of a Failed target")
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """One line of `result.json`: see docs/contracts.md, 4.

    `figures` are decimal strings by name; `files` are relative to `directory`, which is relative to the out folder.
    """

    module: str
    bucket: str
    verdict: str
    reason: str
    message: str
    tier: str | None = None
    request_key: str | None = None
    fingerprint: Mapping[str, Any] | None = None
    figures: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.reason not in REASONS.get(self.verdict, frozenset()):
            raise ValueError(f"{self.verdict}/{self.reason} is not in the closed list of verdicts and reasons")

    @property
    def name(self) -> str:
        """`<module>/<bucket>`, which is also the folder of its files below the out folder."""
        return f"{self.module}/{self.bucket}"

    def to_json(self) -> dict[str, Any]:
        """The record as `result.json` holds it."""
        return {
            "module": self.module,
            "bucket": self.bucket,
            "verdict": self.verdict,
            "reason": self.reason,
            "message": shorten(redact(self.message)),
            "tier": self.tier,
            "requestKey": self.request_key,
            "fingerprint": dict(self.fingerprint) if self.fingerprint is not None else None,
            "figures": dict(self.figures),
            "directory": self.name,
            "files": list(self.files),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> TargetResult:
        """The record read back; raises KeyError, TypeError or ValueError when it is not one of ours."""
        return cls(
            module=record["module"],
            bucket=record["bucket"],
            verdict=record["verdict"],
            reason=record["reason"],
            message=record["message"],
            tier=record["tier"],
            request_key=record["requestKey"],
            fingerprint=record["fingerprint"],
            figures=dict(record["figures"]),
            files=tuple(record["files"]),
        )


def shorten(message: str, limit: int = MAX_MESSAGE_CHARACTERS) -> str:
    """`message` in at most `limit` characters, cut in the middle: the beginning names the fault, the end the remedy."""
    message = message.strip()
    if len(message) <= limit:
        return message
    tail = min(limit // 3, 300)
    return f"{message[: limit - tail - 5].rstrip()} ... {message[-tail:].lstrip()}"
