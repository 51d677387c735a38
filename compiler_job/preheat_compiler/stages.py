"""Says which part of a compile took how long, as far as torch itself counts it.

Why it exists: "compiling takes 40 s" helps nobody; that 35 of them are the C++ compiler's does. torch adds up its own
work under names (`torch._dynamo.utils.compilation_time_metrics`), which change from version to version, so names are
looked for, and what is not found is not said. What no counter covers is told as `other`, so the parts add up.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from preheat_compiler.report import Report

#: Ours: torch does not count what an export takes.
EXPORT = "preheat.export"
#: torch's names, outermost first; of each line the first that is there counts.
_FRAME = ("_compile.compile_inner", "entire_frame_compile")
_INDUCTOR = ("compile_fx.<locals>.fw_compiler_base", "compile_fx_inner")
_COMPILER = ("AotCodeCompiler.compile", "PyCodeCache.load_by_key_path")


def counted(name: str) -> AbstractContextManager[Any]:
    """A part of a compile, added to torch's own counters; nothing where torch has none."""
    try:
        from torch._dynamo.utils import dynamo_timed
    except ImportError:
        return nullcontext()
    timed: AbstractContextManager[Any] = dynamo_timed(name)
    return timed


@contextmanager
def compile_stages(report: Report, tier: str) -> Iterator[None]:
    """Note in the report what of the time inside was which stage, also when it ends early."""
    begin = time.monotonic()
    before = counters()  # the first look imports torch's compiler, which is part of what a compile takes
    try:
        yield
    finally:
        spent = {name: seconds - before.get(name, 0.0) for name, seconds in counters().items()}
        for name, seconds in split(spent, time.monotonic() - begin).items():
            report.note("compile", tier=tier, stage=name, seconds=f"{seconds:.3f}")


def split(spent: Mapping[str, float], total: float) -> dict[str, float]:
    """`total` seconds divided into `trace`, `lowering`, `compiler` and `other`, from torch's counters.

    A stage whose counter is not there is left out; its time is then in the one around it.
    """
    frame, inductor, compiler = (_first(spent, names) for names in (_FRAME, _INDUCTOR, _COMPILER))
    export = spent.get(EXPORT)
    parts: dict[str, float] = {}
    if export is not None:
        parts["trace"] = export
    elif frame is not None and inductor is not None:
        parts["trace"] = max(frame - inductor, 0.0)
    if inductor is not None:
        parts["lowering"] = max(inductor - (compiler or 0.0), 0.0)
    if compiler is not None:
        parts["compiler"] = compiler
    parts["other"] = max(total - sum(parts.values()), 0.0)
    return parts


def counters() -> dict[str, float]:
    """torch's seconds by name so far; empty where it does not count."""
    try:
        from torch._dynamo.utils import compilation_time_metrics
    except ImportError:
        return {}
    return {name: float(sum(values)) for name, values in dict(compilation_time_metrics).items() if values}


def _first(spent: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    return next((spent[name] for name in names if spent.get(name)), None)
