"""Applies `keepIf` to what was measured. Pure.

Why it exists: whether a pod runs compiled or eager is the one decision a user sees, so it is made in one place, from
figures alone, and every verdict says the figures it rests on. The rule of speed is told in docs/compile-job.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from preheat_compiler.graphs import ONE_GRAPH
from preheat_runtime.compare import default_max_error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from decimal import Decimal

    from preheat_compiler.graphs import Graphs
    from preheat_compiler.intervals import Interval
    from preheat_compiler.memory import MemoryGrowth
    from preheat_compiler.request import KeepIf


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Kept or Rejected, with the closed reason and a message that holds the figures."""

    verdict: str
    reason: str
    message: str


def allowed_error(keep_if: KeepIf, dtypes: Iterable[str]) -> Decimal:
    """The error that is allowed: the user's, else the default of the least precise of `dtypes` (torch's names)."""
    if keep_if.max_error is not None:
        return keep_if.max_error
    return default_max_error(dtypes)


def undecided(keep_if: KeepIf, speedup: Interval) -> bool:
    """True when the minimum lies inside the interval: noise would decide, so measure longer."""
    return keep_if.min_speedup > 0 and speedup.low < keep_if.min_speedup <= speedup.high


def decide(
    keep_if: KeepIf,
    *,
    error: float,
    allowed: float,
    speedup: Interval | None,
    memory: MemoryGrowth | None = None,
    graphs: Graphs = ONE_GRAPH,
) -> Decision:
    """The verdict on a target that runs and was proved.

    `error` is the largest relative error seen (`inf`: NaN, or other shapes). `speedup` may be None only where a wrong
    answer makes it meaningless; ValueError otherwise. `memory` None: not measured yet, so that gate is not looked at.
    """
    if not error <= allowed:
        return Decision(
            verdict="Rejected",
            reason="ErrorAboveMaximum",
            message=f"its answers differ from eager's by {_error(error)}, more than the allowed {allowed:g}: "
            "pods run eager. To keep it, raise keepIf.maxError to what the model tolerates.",
        )
    if cut := _cut(keep_if, graphs):
        return cut
    if speedup is None:
        raise ValueError("a right answer is judged by its speed, which was not measured")
    decision = _by_speed(keep_if, speedup, f"answers equal eager's within {_error(error)} (allowed: {allowed:g})")
    return _by_memory(keep_if, memory, decision)


def nothing_compiled(decision: Decision) -> Decision:
    """What `decision` comes to where torch compiles nothing of the module: what runs is eager, and there is nothing to keep.

    That two runs of the same differ in time is noise; a pod that does not even try starts sooner.
    """
    message = f"Pods run eager, which is the same: {decision.message}"
    return Decision(verdict="Rejected", reason="NoDifference", message=message)


def _by_speed(keep_if: KeepIf, speedup: Interval, accuracy: str) -> Decision:
    """Only a speed that is shown to be below the minimum is Rejected for it: noise never rejects.

    Where the minimum still lies inside the interval after the longer measuring, the promise decides that no pod is
    slower than eager: what is not slower by the best estimate is Kept, what seems slower runs eager. So a target that
    reaches the minimum is Rejected only if noise moves its estimate by more than the minimum asks for.
    """
    minimum = float(keep_if.min_speedup)
    interval = f"95 % interval {speedup.low:.2f} to {speedup.high:.2f}, {speedup.samples} pairs"
    figures = f"it runs at {speedup.estimate:.2f} times eager's speed ({interval}), keepIf.minSpeedup is {keep_if.min_speedup:f}"
    keep_anyway = 'To keep it all the same, lower keepIf.minSpeedup ("0": whatever the speed).'
    if minimum > 0 and speedup.high < minimum:
        return Decision(
            verdict="Rejected", reason="SpeedupBelowMinimum", message=f"{figures}: pods run eager. {keep_anyway}"
        )
    if undecided(keep_if, speedup):
        figures += "; the minimum lies inside the interval even after measuring longer"
        if speedup.low <= 1 <= speedup.high:
            figures += ", and no difference from eager was found"
            if speedup.estimate < 1 < minimum:
                message = f"{figures}: pods run eager, which cannot be slower. {keep_anyway}"
                return Decision(verdict="Rejected", reason="NoDifference", message=message)
            return Decision(verdict="Kept", reason="NoDifference", message=f"{figures}; {accuracy}")
    faster = minimum > 0 and speedup.low > 1
    return Decision(verdict="Kept", reason="Faster" if faster else "GatesMet", message=f"{figures}; {accuracy}")


def _by_memory(keep_if: KeepIf, memory: MemoryGrowth | None, decision: Decision) -> Decision:
    if decision.verdict != "Kept" or memory is None or keep_if.max_memory_growth is None:
        return decision
    figures = (
        f"a compiled process's peak memory is {memory.ratio:.2f} times an eager one's "
        f"({_mebibytes(memory.compiled)} against {_mebibytes(memory.eager)}, {memory.of}), "
        f"keepIf.maxMemoryGrowth is {keep_if.max_memory_growth:f}"
    )
    if memory.ratio <= float(keep_if.max_memory_growth):
        return replace(decision, message=f"{decision.message}; {figures}")
    return Decision(
        verdict="Rejected",
        reason="MemoryAboveMaximum",
        message=f"{figures}: pods run eager. To keep it, raise keepIf.maxMemoryGrowth or leave it out.",
    )


def _cut(keep_if: KeepIf, graphs: Graphs) -> Decision | None:
    """Rejected for graph breaks or recompiles, None when there are not too many."""
    if keep_if.max_graph_breaks is not None and len(graphs.breaks) > keep_if.max_graph_breaks:
        return Decision(
            verdict="Rejected",
            reason="GraphBreaksAboveMaximum",
            message=f"its graph breaks {len(graphs.breaks)} times, more than keepIf.maxGraphBreaks allows "
            f"({keep_if.max_graph_breaks}): {graphs.words()}. Pods run eager.",
        )
    if keep_if.max_recompiles is not None and graphs.recompiles > keep_if.max_recompiles:
        return Decision(
            verdict="Rejected",
            reason="RecompilesAboveMaximum",
            message=f"over the sizes of its bucket it is compiled {graphs.recompiles} times again, more than "
            f"keepIf.maxRecompiles allows ({keep_if.max_recompiles}): pods run eager. Give each size a bucket of its own.",
        )
    return None


def _mebibytes(size: float) -> str:
    return f"{size / 2**20:.0f} MiB"


def _error(error: float) -> str:
    return "more than any number (NaN, or another shape or dtype)" if math.isinf(error) else f"{error:.1e}"
