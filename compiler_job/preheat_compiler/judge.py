"""Judges an artifact: compares it with eager, measures, decides, proves.

Why it exists: the same must be shown of one that was just built and of one that an earlier revision had, and in what
order it is shown is part of the promise.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from preheat_compiler import package
from preheat_compiler.accuracy import against_reference
from preheat_compiler.caches import CachesError, compile_caches
from preheat_compiler.decide import Decision, decide, nothing_compiled
from preheat_compiler.devices import give_back
from preheat_compiler.fresh_proof import FreshProof
from preheat_compiler.graphs import ONE_GRAPH
from preheat_compiler.loaded import Loaded
from preheat_compiler.model import find_module, load_factory
from preheat_compiler.prove import SEEDS, against_eager
from preheat_compiler.speed import speed_of
from preheat_compiler.submodules import where_time_goes
from preheat_compiler.verdict import TargetError
from preheat_compiler.weights_proof import no_weight_is_baked_in
from preheat_runtime.environment import CACHE_DIRECTORY
from preheat_runtime.package import TARGET_FILE
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from preheat_compiler.fresh_proof import FirstAnswers
    from preheat_compiler.graphs import Graphs
    from preheat_compiler.inputs import Sizes
    from preheat_compiler.measure import Speed
    from preheat_compiler.memory import MemoryGrowth
    from preheat_compiler.work import Work
    from preheat_runtime.compare import Difference

_NOTHING_LEFT = (
    "torch.compile compiled it, but left nothing in its caches that a pod could start from. Pods compile it themselves."
)


def load(work: Work, stage: str) -> Loaded:
    """The target's module, from the factory anew; `stage` names that part of the work."""
    give_back()
    with work.report.stage(stage):
        factory, arguments = work.request.factory, work.request.settings.arguments
        return Loaded(find_module(load_factory(factory, arguments), work.module.path))


def as_package(
    work: Work, bound: Loaded, loaded: Loaded, sizes: tuple[Sizes, ...], *, proved: bool = False
) -> Decision:
    """Judge the package bound to `bound` by what `loaded` answers; they are the same one unless running changes it.

    `proved`: of this very package it was shown before that no weight is in it. Lets go of both before fresh processes start.
    """
    work.tier = "package"
    seen, speed = _compared(work, bound.module, loaded.module, sizes)
    work.report.note("graphs", **ONE_GRAPH.to_json())
    decision = _verdict(work, seen, speed)
    if decision.verdict != "Kept":
        return _as_described(work, decision)
    if not proved:
        with work.report.stage("proving with random weights"):
            no_weight_is_baked_in(
                partial(package.load_package, work.artifact), bound.module, loaded.module, work.bucket, sizes[0],
                weights=package, device=work.device, allowed=work.allowed, report=work.report,
            )  # fmt: skip
    bound.let_go()
    loaded.let_go()
    decision = _verdict(work, seen, speed, memory=_first_answers(work, sizes).memory)
    if decision.verdict != "Kept":
        return _as_described(work, decision)
    return replace(decision, message="; ".join(filter(None, [decision.message, work.narrowing])))


def _compared(
    work: Work, bound: torch.nn.Module, module: torch.nn.Module, sizes: tuple[Sizes, ...]
) -> tuple[Difference, Speed | None]:
    """How far the package's answers are from eager's, and how fast they are (None if too far)."""
    report = work.report
    compiled = package.load_package(work.artifact, bound)
    with report.stage("comparing with eager"):
        seen = against_eager(compiled, module, work.bucket, sizes, device=work.device, report=report)
        work.error_figures(seen)
    with report.stage("comparing with a more precise run"):
        against_reference(compiled, module, work.bucket, sizes, seeds=SEEDS, device=work.device, report=report)
    # Copying a model can change what its code looks at (transformers' does); a pod would look again and bind again.
    compiled = package.load_package(work.artifact, bound)
    speed = None
    if seen.maximum <= work.allowed:
        with report.stage("measuring"):
            speed = speed_of(
                compiled, module, work.bucket, sizes, keep_if=work.request.keep_if, seed=SEEDS[0], device=work.device,
                seconds=work.left(), report=report,
            )  # fmt: skip
            work.speed_figures(speed)
        with report.stage("looking where time goes"):
            where_time_goes(
                compiled, module, work.bucket, sizes[-1], seed=SEEDS[0], device=work.device, report=report,
                seconds=work.left() * 0.05,
            )  # fmt: skip
    return seen, speed


def _as_described(work: Work, decision: Decision) -> Decision:
    # A pod has to know the module that it runs eager, not the code it does without.
    shutil.copy(work.described / TARGET_FILE, work.artifact / TARGET_FILE)
    return decision


def through_caches(work: Work, sizes: tuple[Sizes, ...], why: str, *, former: Path | None = None) -> Decision:
    """The next tier: what torch.compile itself leaves in its cache directory; `former` is an artifact to begin with.

    The module was let go of: other processes load it.
    """
    work.tier = "caches"
    if former is None:
        shutil.copy(work.described / TARGET_FILE, work.artifact / TARGET_FILE)
    begin = time.monotonic()
    try:
        with work.report.stage("filling the caches"):
            seen, speed, graphs = compile_caches(
                launcher=work.launcher, request_file=work.request_file, module=work.module.name,
                bucket=work.bucket.name, work=work.folder, artifact=work.artifact, report=work.report,
                seconds=work.left(), former=former,
            )  # fmt: skip
    except CachesError as error:
        raise TargetError(error.reason, redact(f"not as a package ({why}), and torch.compile: {error}")) from error
    work.figure(compileSeconds=time.monotonic() - begin)
    work.figure(sizeBytes=sum(path.stat().st_size for path in work.artifact.rglob("*") if path.is_file()))
    work.error_figures(seen)
    if speed is not None:
        work.speed_figures(speed)
    decision = _verdict(work, seen, speed, graphs)
    if decision.verdict == "Kept" and not (work.artifact / CACHE_DIRECTORY).exists():
        if graphs.graphs:
            raise TargetError("CompileFailed", redact(f"not as a package ({why}); {_NOTHING_LEFT}"))
        decision = nothing_compiled(decision)
    if decision.verdict == "Kept":
        first = _first_answers(work, sizes)
        decision = _verdict(work, seen, speed, graphs, first.memory)
        if decision.verdict == "Kept" and first.only_first:
            of = ", ".join(f"{dim} {size}" for dim, size in sizes[0].by_dim.items())
            begun = f"Pods are warm where their first call has the sizes {of}; otherwise {first.only_first}."
            decision = replace(decision, message=" ".join(filter(None, [decision.message, begun])))
    served = "served from compiler caches, " if decision.verdict == "Kept" else ""
    return Decision(
        verdict=decision.verdict,
        reason=decision.reason,
        message=" ".join(filter(None, [f"{served}not as a package: {why}.", graphs.cut(), decision.message])),
    )


def _first_answers(work: Work, sizes: tuple[Sizes, ...]) -> FirstAnswers:
    """Prove the artifact in fresh processes."""
    proof = FreshProof(
        launcher=work.launcher, request_file=work.request_file, request=work.request, module=work.module.name,
        bucket=work.bucket.name, sizes=sizes, work=work.folder / "fresh", report=work.report, left=work.left,
        kind=work.kind,
    )  # fmt: skip
    with work.report.stage("proving in fresh processes"):
        seen = proof.first_answers(
            work.artifact,
            tier=work.tier or "",
            request_key=work.request_key or "",
            fingerprint=work.fingerprint,
            allowed=work.allowed,
        )
    work.figure(firstAnswerSeconds=seen.served, eagerFirstAnswerSeconds=seen.eager)
    if seen.memory is not None:
        work.figure(eagerPeakBytes=round(seen.memory.eager), compiledPeakBytes=round(seen.memory.compiled))
        work.figure(memoryGrowth=seen.memory.ratio)
    return seen


def _verdict(
    work: Work, error: Difference, speed: Speed | None, graphs: Graphs = ONE_GRAPH, memory: MemoryGrowth | None = None
) -> Decision:
    interval = speed.speedup if speed is not None else None
    return decide(
        work.request.keep_if, error=error.maximum, allowed=work.allowed, speedup=interval, memory=memory, graphs=graphs
    )
