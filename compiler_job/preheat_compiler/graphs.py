"""Tells into how many graphs torch.compile cuts a module, where, and how often it compiles again over a range.

Why it exists: each cut costs time at every call, and each further compile costs seconds in the middle of serving; both
are silent in torch. A package is one graph for its whole range, so only the caches tier is looked at.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from preheat_compiler.faults import describe
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from preheat_compiler.inputs import Call

_MOST_BREAKS = 50
_BRANCH = (
    "the code branches on the content of a tensor: use torch.where or torch.cond, or move the branch out of the module"
)
#: What torch says of these is its own jargon; the usual remedy, by what its words begin with.
_REMEDIES = {
    "generic_jump": _BRANCH,
    "Data-dependent": _BRANCH,
    "Tensor.item": "do not take numbers out of tensors in forward; keep them as tensors",
}
_PLAIN = "move the call out of forward, or replace it by torch operations"


@dataclass(frozen=True, kw_only=True)
class Break:
    """A place where torch.compile ends a graph: torch's reason, the user's `file:line`, and what usually helps."""

    reason: str
    where: str
    remedy: str


@dataclass(frozen=True, kw_only=True)
class Graphs:
    """How a module is compiled. `recompiles`: how often again after its first call, over all sizes of its bucket."""

    graphs: int = 1
    breaks: tuple[Break, ...] = ()
    recompiles: int = 0

    def to_json(self) -> dict[str, Any]:
        """As report.json holds it."""
        return {**asdict(self), "breaks": [asdict(each) for each in self.breaks[:_MOST_BREAKS]]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Graphs:
        """What `to_json` gave."""
        return cls(**{**data, "breaks": tuple(Break(**each) for each in data["breaks"])})

    def words(self) -> str:
        """The first break in a line; empty when there is none."""
        if not self.breaks:
            return ""
        first = self.breaks[0]
        where = f"{first.where}: " if first.where else ""
        more = f" and {len(self.breaks) - 1} more" if len(self.breaks) > 1 else ""
        return f"{where}{first.reason}{more} ({first.remedy})"

    def cut(self) -> str:
        """A sentence on how it is cut; empty when it is one graph."""
        words = f": {self.words()}" if self.breaks else ""
        if self.graphs == 0:
            return f"torch.compile compiles nothing of it{words}."
        return f"It is compiled in {self.graphs} graphs{words}." if self.breaks else ""


#: What a package is: one graph for its whole range.
ONE_GRAPH = Graphs()


def compiled_frames() -> int:
    """How many pieces of Python torch has compiled in this process so far."""
    from torch._dynamo.utils import counters

    return int(counters["frames"]["ok"])


def explain(module: torch.nn.Module, call: Call) -> tuple[int, tuple[Break, ...]]:
    """The number of graphs of one call and its breaks. Traces only; forgets all that was compiled in this process."""
    import torch
    from torch._dynamo.utils import counters

    counters["graph_break"].clear()
    try:
        seen = torch._dynamo.explain(module)(*call.args, **call.kwargs)
    except Exception as error:  # a module that torch cannot trace at all runs eagerly, as in a pod
        return 0, (Break(reason=redact(describe(error, limit=300)), where="", remedy=_PLAIN),)
    breaks = tuple(_break(each) for each in seen.break_reasons if each.graph_break)
    if not breaks and not seen.graph_count:
        # Of frames that it gave up altogether torch only counts why.
        breaks = tuple(Break(reason=_reason(str(why)), where="", remedy=_PLAIN) for why in counters["graph_break"])
    return int(seen.graph_count), breaks


def _reason(text: str) -> str:
    line = next((line.strip() for line in redact(text).splitlines() if line.strip()), "unknown")
    return re.sub(r"\s+", " ", line)[:300]


def _break(seen: Any) -> Break:
    lines = [line.strip() for line in redact(str(seen.reason)).splitlines() if line.strip()]
    hints = [line.removeprefix("Hint:").strip() for line in lines if line.startswith("Hint:")]
    known = next((text for start, text in _REMEDIES.items() if lines and lines[0].startswith(start)), None)
    stack = list(seen.user_stack or ())
    return Break(
        reason=_reason(str(seen.reason)),
        where=f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "",
        remedy=known or (hints[0][:300] if hints else _PLAIN),
    )
