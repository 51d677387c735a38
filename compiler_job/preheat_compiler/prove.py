"""Proves that an artifact answers right where it will be used.

Why it exists: a wrong answer is worse than a slow start, and every way in which a package was seen to be silently wrong
(weights baked in, sizes at the ends of a range, code that only works where it was built) has a proof here, which every
artifact passes before it is Kept.
"""

from __future__ import annotations

import json
import re
import site
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler.inputs import Sizes, build_call
from preheat_runtime.compare import Difference, difference
from preheat_runtime.variables import ENV_DISABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.report import Report

#: Seeds of the inputs that answers are compared on; the first is also what fresh processes use.
SEEDS = (1, 2)


def against_eager(
    compiled: Callable[..., Any],
    module: torch.nn.Module,
    bucket: Bucket,
    sizes: tuple[Sizes, ...],
    *,
    device: str,
    report: Report,
) -> Difference:
    """The worst difference from eager over all sizes and seeds; each is noted in the report."""
    worst = Difference()
    for each in sizes:
        for seed in SEEDS:
            # Built twice: a module that writes to its inputs must not feed one call's leftovers to the other.
            first, second = (build_call(bucket, each, seed=seed, device=device) for _ in range(2))
            seen = difference(compiled(*first.args, **first.kwargs), module(*second.args, **second.kwargs))
            report.difference(f"{each.name}, seed {seed}", seen)
            worst = worst.worst(seen)
    return worst


def pod_environment(place: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` without what the compile left in it: an empty HOME and TMPDIR below `place`, no compiler caches.

    Weights that the model reads from its real home stay reachable through the variables that name such places.
    """
    home = Path(environment.get("HOME") or Path.home())
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    result = {
        "XDG_CACHE_HOME": str(cache),
        "HF_HOME": str(cache / "huggingface"),
        "TORCH_HOME": str(cache / "torch"),
        "PYTHONUSERBASE": site.getuserbase(),
        **environment,
    }
    for name in (
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_CACHE_DIR",
        "TORCHINDUCTOR_COMPILE_THREADS",
        ENV_DISABLE,
        "CC",
        "CXX",
    ):
        result.pop(name, None)
    for name, folder in (("HOME", "home"), ("TMPDIR", "tmp")):
        (place / folder).mkdir(parents=True, exist_ok=True)
        result[name] = str(place / folder)
    return result


def last_words(said: str) -> str:
    """Of all that a failed process said: what the runtime complained of, and the exception it ended with."""
    lines = [line.strip() for line in said.splitlines()]
    complaints = [found for found in map(_complaint, lines) if found][-1:]
    errors = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Missing\w*)\b", line)][-1:]
    return " | ".join(complaints + errors) or " | ".join(lines[-3:])


def _complaint(line: str) -> str | None:
    """What a line of a log says of a fault of the runtime's own: as it reports all, or plainly where it cannot."""
    if line.startswith("preheat: "):
        return line
    if '"preheat-error"' not in line:
        return None
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return f"preheat: {said.get('reason')}" if isinstance(said, dict) else None


def said_by_runtime(work: Path) -> list[dict[str, Any]]:
    """What the runtime reported of one process, in order: see `preheat_runtime.report`."""
    try:
        lines = (work / "reports.jsonl").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines]
