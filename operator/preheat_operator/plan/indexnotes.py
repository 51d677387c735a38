"""What the controller notes on a namespace's index beside its text: that injection is paused, that it is full.

The notes are annotations of the CompiledModelIndex, because they are about the same namespace, must survive the
controller, and are protected by the same policy. Admission does not read them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.plan.objects import parse_time
from preheat_operator.plan.termination import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

# Long enough for a registry to be repaired; short enough that a repaired one needs no person to be noticed.
PAUSE_FOR: Final = timedelta(minutes=30)
_MAX_LEFT_OUT = 1000


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Injection is paused in a namespace, because pods got stuck with this product image."""

    image: str
    since: datetime
    why: str

    @property
    def until(self) -> datetime:
        """When injection is tried again in any case."""
        return self.since + PAUSE_FOR


@dataclass(frozen=True, kw_only=True)
class IndexNotes:
    """The notes on one index. `left_out` are models some of whose images did not fit."""

    pause: Pause | None = None
    left_out: tuple[str, ...] = ()

    def annotations(self) -> dict[str, str]:
        """The notes as annotations; empty when there is nothing to note."""
        result = {}
        if self.pause is not None:
            body = {"image": self.pause.image, "since": self.pause.since.isoformat(), "why": self.pause.why}
            result[names.ANNOTATION_PAUSED] = json.dumps(body, sort_keys=True)
        if self.left_out:
            result[names.ANNOTATION_LEFT_OUT] = ",".join(self.left_out[:_MAX_LEFT_OUT])
        return result


def read_notes(annotations: Mapping[str, str]) -> IndexNotes:
    """The notes on an index. One that cannot be read counts as absent: the next pass writes it anew."""
    left_out = annotations.get(names.ANNOTATION_LEFT_OUT, "")
    return IndexNotes(
        pause=_read_pause(annotations.get(names.ANNOTATION_PAUSED, "")),
        left_out=tuple(left_out.split(",")) if left_out else (),
    )


def _read_pause(text: str) -> Pause | None:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    since = parse_time(body.get("since")) if isinstance(body, dict) else None
    if since is None or not isinstance(body.get("image"), str):
        return None
    return Pause(image=body["image"], since=since, why=plain(body.get("why")))
