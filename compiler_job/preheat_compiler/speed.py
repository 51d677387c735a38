"""Times a compiled module against the eager one, at the sizes that matter.

Why it exists: packages are timed in the target's own process and caches in another, and both must mean the same by
"speedup": of a range of sizes, the lower of the two measured at its ends, because a pod may see either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_compiler.decide import undecided
from preheat_compiler.devices import Gpus
from preheat_compiler.inputs import Sizes, build_call, ranged_dims
from preheat_compiler.measure import Budget, Speed, measure

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.inputs import Call
    from preheat_compiler.report import Report
    from preheat_compiler.request import KeepIf

#: Share of the target's remaining time that measuring may take.
_SHARE = 0.3


def timed_sizes(bucket: Bucket, sizes: tuple[Sizes, ...]) -> tuple[Sizes, ...]:
    """The sizes to time: both ends where sizes vary, else the only ones there are."""
    return sizes[1:] if ranged_dims(bucket) and len(sizes) > 1 else sizes[:1]


def speed_of(
    compiled: Callable[..., Any], module: torch.nn.Module, bucket: Bucket, sizes: tuple[Sizes, ...], *,
    keep_if: KeepIf, seed: int, device: str, seconds: float, report: Report,
) -> Speed:  # fmt: skip
    """The speed at the size where compiled gains least; every size's is noted in the report."""
    timed, gpus = timed_sizes(bucket, sizes), Gpus.of(module)
    share = max(seconds, 0.0) * _SHARE / len(timed)
    seen = []
    for each in timed:
        call = build_call(bucket, each, seed=seed, device=device)
        speed = measure(
            _answer(module, call, gpus),
            _answer(compiled, call, gpus),
            open_verdict=lambda interval: undecided(keep_if, interval),
            budget=Budget(usual=min(20.0, share), longest=min(120.0, share)),
        )
        report.speed(each.name, speed)
        seen.append(speed)
    return min(seen, key=lambda speed: speed.speedup.estimate)


def _answer(function: Callable[..., Any], call: Call, gpus: Gpus) -> Callable[[], object]:
    ask = call.of(function)
    if not gpus.used:
        return ask

    def wait_for_it() -> object:
        answer = ask()
        gpus.wait()
        return answer

    return wait_for_it
