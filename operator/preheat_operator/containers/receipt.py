"""What `fetch` says it did: one file for the runtime, one line for people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FETCHED: Final = "Fetched"
NO_REVISION: Final = "NoRevision"
FAILED: Final = "Failed"
NAME: Final = "fetch.json"
_MAX_MESSAGE = 1024


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The outcome of a fetch; `reason` is one of docs/contracts.md, 3, and empty unless it failed."""

    outcome: str
    reason: str
    message: str
    manifest: str | None
    bytes: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the contents of fetch.json."""
        return {
            "formatVersion": 1,
            "outcome": self.outcome,
            "reason": self.reason,
            "message": self.message[:_MAX_MESSAGE],
            "manifest": self.manifest,
            "bytes": self.bytes,
            "seconds": f"{self.seconds:.3f}",
        }

    def write(self, directory: Path) -> None:
        """Put fetch.json into the folder, whole or not at all."""
        unfinished = directory / f".{NAME}"
        unfinished.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        unfinished.chmod(0o644)
        unfinished.replace(directory / NAME)

    def termination_message(self) -> str:
        """Return what the pod's status shall say: whether the revision came, in the same words as fetch.json."""
        return json.dumps({"v": 1, "outcome": self.outcome, "reason": self.reason})

    def log_line(self, env: Mapping[str, str]) -> str:
        """Return the line for people and log collectors."""
        fields = self.to_json()
        del fields["formatVersion"]
        where = {"namespace": env.get(names.ENV_NAMESPACE, ""), "model": env.get(names.ENV_MODEL, "")}
        return json.dumps({"component": "preheat-fetch", **fields, **where})
