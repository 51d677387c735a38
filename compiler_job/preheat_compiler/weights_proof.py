"""Proves that no weight is baked into a package: with other weights it must still equal eager.

Why it exists: a weight that became part of the code answers right until the first pod whose checkpoint is another one, and
a single small bias hides in the rounding of a half type. So what is allowed here is not what a user tolerates, but what
this module's own rounding makes of it, held against how far the other weights moved the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preheat_compiler.accuracy import own_error
from preheat_compiler.faults import common_reason, describe
from preheat_compiler.inputs import build_call
from preheat_compiler.prove import SEEDS
from preheat_compiler.report import decimal
from preheat_compiler.verdict import TargetError
from preheat_compiler.weights_spared import Exchanged
from preheat_runtime.compare import difference
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.inputs import Call, Sizes
    from preheat_compiler.report import Report
    from preheat_compiler.weights_spared import Weights
    from preheat_runtime.compare import Difference

#: What may be apart whatever the rounding, and of how far the answer moved at most: a weight that was baked in is wrong by more.
_FLOOR, _SHARE = 1e-2, 0.25
#: Random weights make numbers that training never would: so many times the rounding that was seen is still rounding.
_TIMES = 3.0
#: Of what is allowed with the model's own weights, this much is not even looked into.
_ROUNDING = 0.1
#: Beyond this nothing is put down to rounding.
_MOST = 0.5
_TRIES = 5
#: So many tensors are named in the report.
_SHOWN = 20


def no_weight_is_baked_in(
    load: Callable[[torch.nn.Module], Callable[..., Any]], bound: torch.nn.Module, module: torch.nn.Module, bucket: Bucket, sizes: Sizes, *,
    weights: Weights, device: str, allowed: float, report: Report,
) -> None:  # fmt: skip
    """Give the modules other weights, bind the package to `bound` anew, and compare with `module`, which may be the same.

    Destroys their weights. Integers and booleans change places last, and only where eager can still answer then: an
    order may be part of what they mean.

    Raises TargetError(ProofFailed) when the answers differ, or when random weights only ever make NaN or infinity.
    """
    call = build_call(bucket, sizes, seed=SEEDS[0], device=device)
    trained = call.of(module)()
    # A package that is wrong already must not widen what it is judged by.
    noise = min(difference(call.of(load(bound))(), trained).maximum, allowed)
    proof = _Proof(load=load, bound=bound, module=module, call=call, noise=noise, allowed=allowed, report=report,
                   inputs=f"{sizes.name}, seed {SEEDS[0]}")  # fmt: skip
    exchanged = Exchanged({bound, module}, weights, call.of(module))
    spared: list[str] = []
    eager = _with_random_weights(exchanged, trained)
    if eager is None and exchanged.refusal is not None:
        why = type(exchanged.refusal).__name__
        needed = exchanged.needed(1)
        spared = exchanged.names if needed is None else needed
        if len(spared) < len(exchanged.names):
            eager = _with_random_weights(exchanged, trained, without=spared)
        if eager is None:
            raise TargetError(
                "ProofFailed",
                f"with random weights the model raises {why}, so it cannot be proved that no weight is baked in. "
                "Pods run without it.",
            )
        shown = ", ".join(spared[:_SHOWN]) + (f" and {len(spared) - _SHOWN} others" if len(spared) > _SHOWN else "")
        report.note("proofs", name="random weights", why=f"of {shown} eager refuses others than its own: {why}")
    if eager is None:
        raise TargetError(
            "ProofFailed",
            "with random weights the model only gives NaN or infinity, so it cannot be proved that no weight is baked in. "
            "Pods run without it.",
        )
    proof.compare("random weights", eager, trained)
    others: list[tuple[str, dict[str, Any]]] = [
        *([("shuffled places", {"names": spared})] if spared else []),
        ("shuffled integers", {"booleans": False}),
        ("shuffled booleans", {"booleans": True}),
    ]
    for name, options in others:
        changed = [weights.shuffle_(each, 1, **options) for each in exchanged.modules]
        if not any(changed):
            continue
        answer = exchanged.run()
        if answer is None:
            report.note("proofs", name=name, why=f"eager refuses them: {type(exchanged.refusal).__name__}")
        elif not _tells(answer[0], eager):
            report.note("proofs", name=name, why="with them eager gives NaN or infinity")
        else:
            proof.compare(name, answer[0], eager)
            (eager,) = answer
            continue
        if "booleans" in options:
            return
        exchanged.put_back(spared)


def _with_random_weights(exchanged: Exchanged, trained: Any, *, without: Sequence[str] = ()) -> Any:
    """Eager's answer with the first random weights that tell something; None where none do."""
    for seed in range(1, _TRIES + 1):
        answer = exchanged.answer(seed, without=without)
        if answer is not None and _tells(answer[0], trained):
            return answer[0]
    return None


@dataclass(frozen=True, kw_only=True)
class _Proof:
    load: Callable[[torch.nn.Module], Callable[..., Any]]
    bound: torch.nn.Module
    module: torch.nn.Module
    call: Call
    inputs: str
    noise: float
    allowed: float
    report: Report

    def compare(self, name: str, eager: Any, before: Any) -> None:
        """Hold the package's answer against `eager`, which was `before` until the weights became other ones."""
        moved = difference(eager, before).maximum
        try:
            answer = self.call.of(self.load(self.bound))()
        except Exception as error:  # a check that was compiled in, of a value that was another one then
            if common_reason(error):
                raise
            raise TargetError(
                "ProofFailed",
                f"with other weights the package fails where eager answers: {redact(describe(error))}. "
                "Pods run without it; please report this model.",
            ) from error
        seen = difference(answer, eager)
        self.report.difference(f"{self.inputs}, {name}", seen)
        limit = self._limit(seen, eager, moved)
        if not seen.maximum <= limit:
            raise TargetError(
                "ProofFailed",
                f"with other weights the package's answer differs from eager's by {seen.words(limit)}: "
                "something of the weights is baked into the code. Pods run without it; please report this model.",
            )
        # How much the answer moved, and what would have passed, say how much this proof can see.
        self.report.note("proofs", name=name, answerMoved=str(moved), limit=decimal(limit))

    def _limit(self, seen: Difference, eager: Any, moved: float) -> float:
        limit = max(min(_FLOOR, moved * _SHARE), self.noise * _TIMES, self.allowed * _ROUNDING)
        if seen.maximum <= limit:
            return limit
        own = own_error(self.module, self.call, eager)
        return max(limit, min(_TIMES * (self.allowed if own is None else own), _MOST))


def _tells(eager: Any, before: Any) -> bool:
    """Whether an answer is finite where it was, and not nowhere: of NaN nothing can be told."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = [leaf for leaf in pytree.tree_leaves(eager) if isinstance(leaf, torch.Tensor) and leaf.numel()]
    somewhere = not leaves or any(bool(torch.isfinite(leaf).any()) for leaf in leaves)
    return somewhere and not difference(eager, before).odd_apart
