"""Compiles one target, in a process of its own: load, run eager, build, measure, prove, decide.

Why it exists: this is the whole story of a target, told once, top to bottom. Everything below it is a part with a name;
everything that can go wrong leaves here as a verdict.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler import carry, ingredients, package
from preheat_compiler.build import build, building, describe_module, example_call, words
from preheat_compiler.decide import Decision, allowed_error
from preheat_compiler.devices import Gpus, kind_of, tensors_of
from preheat_compiler.faults import common_fault, common_reason, describe, failed, print_traceback
from preheat_compiler.inputs import Sizes, build_call, dtypes_of, narrowed, pick_sizes, traceable
from preheat_compiler.judge import as_package, load, through_caches
from preheat_compiler.levers import as_served, levers_of
from preheat_compiler.model import device_of
from preheat_compiler.processes import EXIT_DISK_FULL, SCRATCH
from preheat_compiler.progress import say
from preheat_compiler.prove import SEEDS
from preheat_compiler.regions import Seen, build_regions, watch
from preheat_compiler.report import FILE as REPORT_FILE
from preheat_compiler.report import LOADING, LOADING_AGAIN, LOADING_TO_BIND, RUNNING, Report, write_atomically
from preheat_compiler.request import asked_for, read_request, request_key
from preheat_compiler.verdict import TargetError, TargetResult
from preheat_compiler.work import Work
from preheat_runtime import bytecode
from preheat_runtime import identity as identities
from preheat_runtime.bind import Mismatch
from preheat_runtime.compare import difference
from preheat_runtime.environment import CACHE_DIRECTORY
from preheat_runtime.package import TARGET_FILE, Target
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.loaded import Loaded


def main(argv: Sequence[str], *, launcher: str) -> int:
    """Compile the target and write `verdict.json` to the work folder."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--module", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args(argv)
    request = read_request(options.request)
    module, bucket = request.target(options.module, options.bucket)
    work = Work(
        launcher=Path(launcher),
        request_file=options.request,
        request=request,
        module=module,
        bucket=bucket,
        folder=options.work,
        deadline=time.monotonic() + options.seconds,
        report=Report(target=f"{options.module}/{options.bucket}", stage_file=options.work / "stage"),
    )
    result = compile_target(work)
    with suppress(OSError):
        # What goes wrong from here on is not put down to the stage before.
        (work.folder / "stage").write_text("writing the verdict", encoding="utf-8")
    if result.reason == "DiskFull":
        _make_room(work.folder)
    try:
        if (work.artifact / TARGET_FILE).exists():
            (work.artifact / bytecode.FILE).write_bytes(bytecode.pack())
        work.report.write(work.artifact, result, hardware=request.hardware)
    except OSError as error:
        # On a full disk the verdict matters more than its explanation.
        work.report.note("faults", error=describe(error))
    files = [path.relative_to(work.artifact).as_posix() for path in work.artifact.rglob("*") if path.is_file()]
    record = {**result.to_json(), "files": sorted(files)}
    try:
        # What was imported later, too; as it was first, where it was changed meanwhile.
        write_atomically(work.folder / ingredients.FILE, json.dumps({**ingredients.imported(), **work.sources}))
        write_atomically(work.folder / "verdict.json", json.dumps(record))
    except OSError as error:
        print_traceback()
        return EXIT_DISK_FULL if common_reason(error) == "DiskFull" else 1
    return 0


def compile_target(work: Work) -> TargetResult:
    """The verdict on the target; its artifact's files lie in `work.artifact`."""
    try:
        work.levers = levers_of(work.request.settings)
        decision = _decide(work)
    except TargetError as error:
        return _failed(work, error.reason, str(error))
    except (
        BaseException
    ) as error:  # only code of the model's raises what is no Exception: nobody interrupts this process
        print_traceback()
        fault, words = common_fault(error), describe(error)
        if fault is None:
            return _failed(work, "Internal", f"the compile driver failed: {words}")
        return _failed(work, fault.reason, f"{words}. {fault.remedy}")
    if decision.verdict == "Rejected":
        _remove_all_but(work.artifact, TARGET_FILE)
    return _result(work, verdict=decision.verdict, reason=decision.reason, message=redact(decision.message))


def _decide(work: Work) -> Decision:
    import torch

    with torch.no_grad():
        loaded = load(work, LOADING)
    work.sources = ingredients.imported()
    work.device, work.kind = device_of(loaded.module), kind_of(tensors_of(loaded.module))
    with as_served(work.levers, work.kind):
        return _decide_on(work, loaded)


def _decide_on(work: Work, loaded: Loaded) -> Decision:
    report = work.report
    _observe(work, Gpus.of(loaded.module))
    # Before the first forward: a pod compares a module that has not run yet.
    before = describe_module(work, loaded.module)
    held = identities.describe(loaded.module).watch
    bucket, sizes = work.bucket, pick_sizes(work.bucket)
    why = ""
    seen: tuple[Seen, ...] = ()
    with report.stage(RUNNING):
        _run_eager(work, loaded.module, sizes)
        if work.module.regions:
            try:
                seen = watch(work, loaded.module)
            except package.NotPackageable as error:
                why = words(error)
    # Also where something is only replaced by its equal: who was bound before would have to look again after each run.
    changes = not held.unchanged() or describe_module(work, loaded.module) != before
    # What watches the module holds it.
    del held
    if changes:
        # It remembers having run. One that has not is built from, or no pod would know it again.
        loaded.let_go()
        loaded = load(work, LOADING_AGAIN)
        if describe_module(work, loaded.module) != before:
            why = "the module changes when it runs, and torch.factory returns the same one again"
            before.write(work.described / TARGET_FILE)
    if work.request.base is not None:
        carried = _carried_over(work, loaded, before, seen, changes=changes)
        if carried is not None:
            return carried
        loaded.let_go()
        loaded = load(work, LOADING_AGAIN)
    if not why:
        try:
            with report.stage("building the package"):
                if seen:
                    with building(work):
                        build_regions(work, loaded.module, seen)
                else:
                    build(work, loaded.module)
        except package.NotPackageable as error:
            why = words(error)
    del seen
    if not why:
        _note_allowed(work)
        bound = load(work, LOADING_TO_BIND) if changes else loaded
        try:
            return as_package(work, bound, loaded, pick_sizes(work.bucket))
        except Mismatch as error:
            why = f"the package does not go on answering: {error}"
        bound.let_go()
        _forget(work, bucket)
    report.note("fallbacks", tier="package", why=why)
    loaded.let_go()
    return through_caches(work, sizes, why)


def _carried_over(
    work: Work, loaded: Loaded, described: Target, seen: tuple[Seen, ...], *, changes: bool
) -> Decision | None:
    """The verdict on what an earlier revision has for the same graph, with these weights; None: build it.

    The module may have been let go of then, or have other weights.
    """
    bucket = work.bucket
    try:
        former = carry.find(work, described)
        words = "carried over from the revision before, not compiled again"
        if former.entry.verdict == "Rejected":
            shutil.copy(work.described / TARGET_FILE, work.artifact / TARGET_FILE)
            work.report.carry(former.report(), base=work.request.base)
            work.figures.update(former.entry.figures)
            work.figures.pop("compileSeconds", None)
            message = former.entry.message.removeprefix(f"{words}: ")
            return Decision(verdict="Rejected", reason=former.entry.reason, message=f"{words}: {message}")
        former.copy_to(work.artifact)
        if former.entry.tier == "caches":
            loaded.let_go()
            decision = through_caches(work, pick_sizes(bucket), "as before", former=former.folder / CACHE_DIRECTORY)
        else:
            work.serve_only(narrowed(traceable(bucket), former.contract.call.dim))
            # It may have been built by a Preheat that did not look at all that this one does.
            if former.contract.regions:
                for each in seen:
                    package.check_region(loaded.module.get_submodule(each.path), each.calls[0], levers=work.levers)
            else:
                package.check_package(
                    work.artifact, loaded.module, example_call(work, work.bucket), levers=work.levers
                )  # fmt: skip
            bound = load(work, LOADING_TO_BIND) if changes else loaded
            decision = as_package(work, bound, loaded, pick_sizes(work.bucket), proved=True)
        work.figures["sizeBytes"] = former.entry.figures.get("sizeBytes", "0")
        work.figures.pop("compileSeconds", None)
        return replace(decision, message=f"{words}: {decision.message}")
    except carry.AnotherGraphError as error:
        why = str(error)
    except Exception as error:
        if common_reason(error):
            raise
        why = f"it did not stand the check: {describe(error)}"
    say(f"{work.module.name}/{work.bucket.name}: nothing is carried over: {why}")
    work.report.note("fallbacks", tier="carried over", why=redact(why))
    _forget(work, bucket)
    return None


def _forget(work: Work, bucket: Bucket) -> None:
    """Begin anew with the artifact of `bucket`, as it was asked for."""
    work.bucket, work.narrowing, work.tier = bucket, "", None
    work.figures.clear()
    _remove_all_but(work.artifact, "")


def _note_allowed(work: Work) -> None:
    """Write into the contract how exact the package must be: pods hold its first answers against eager's."""
    path = work.artifact / TARGET_FILE
    replace(Target.read(path), max_error=f"{work.allowed:g}").write(path)


def _observe(work: Work, gpus: Gpus) -> None:
    from preheat_runtime import fingerprint

    seen = fingerprint.observe(cpu_isa=work.request.cpu_isa, device=next(map(str, gpus.devices), work.kind))
    work.fingerprint = seen.to_json()
    asked = asked_for(work.request, work.module.name, work.bucket.name, work.fingerprint)
    work.request_key = request_key(asked)
    # A key is a hash: why two of them differ can only be told from what they were made of.
    work.report.asked = asked


def _run_eager(work: Work, module: torch.nn.Module, sizes: tuple[Sizes, ...]) -> None:
    """Run the module at every size, twice at the first; raises TargetError (InputsRefused, Nondeterministic)."""
    answer = _eager(work, module, sizes[0])
    seen = difference(_eager(work, module, sizes[0]), answer)
    for each in sizes[1:]:
        _eager(work, module, each)
    call = build_call(work.bucket, sizes[0], seed=SEEDS[0], device=work.device)
    dtypes = dtypes_of(module, call, work.levers)
    work.allowed = float(allowed_error(work.request.keep_if, dtypes | seen.dtypes))
    if not seen.maximum <= work.allowed:
        again = build_call(work.bucket, sizes[0], seed=SEEDS[0], device=work.device)
        if difference((again.args, dict(again.kwargs)), (call.args, dict(call.kwargs))).maximum:
            raise TargetError(
                "Nondeterministic",
                f"{work.bucket.example_inputs}() gives other inputs at each call, so no compiled answer can be checked. "
                "Draw them from torch's, Python's or numpy's own random numbers, which are seeded before each call.",
            )
        raise TargetError(
            "Nondeterministic",
            f"two eager runs on equal inputs differ by {seen.words(work.allowed)}, so no compiled answer can be "
            "checked. Turn off dropout that eval() does not reach (F.dropout(..., training=True)), random sampling, "
            "and state that grows from call to call.",
        )


def _eager(work: Work, module: torch.nn.Module, sizes: Sizes) -> Any:
    call = build_call(work.bucket, sizes, seed=SEEDS[0], device=work.device)
    try:
        answer = module(*call.args, **call.kwargs)
        # An index that is out of range is told only then by a GPU.
        Gpus.of(module).wait()
    except BaseException as error:
        at = f" at the {sizes.name} sizes {dict(sizes.by_dim)}" if sizes.by_dim else ""
        raise failed(
            "InputsRefused", f"the model refused the inputs of bucket {work.bucket.name!r}{at}", error,
            remedy="Check shapes, dtypes, low and high of args and kwargs in torch.modules[].buckets[].",
        ) from error  # fmt: skip
    return answer


def _failed(work: Work, reason: str, message: str) -> TargetResult:
    _remove_all_but(work.artifact, REPORT_FILE)
    work.tier = None
    return _result(work, verdict="Failed", reason=reason, message=redact(message))


def _result(work: Work, *, verdict: str, reason: str, message: str) -> TargetResult:
    return TargetResult(
        module=work.module.name,
        bucket=work.bucket.name,
        verdict=verdict,
        reason=reason,
        message=message,
        tier=work.tier if verdict == "Kept" else None,
        request_key=work.request_key,
        fingerprint=work.fingerprint or None,
        figures=work.figures,
    )


def _make_room(folder: Path) -> None:
    """Take away what only compiling needed: whoever filled the disk has left no room for the verdict."""
    for name in SCRATCH.values():
        shutil.rmtree(folder / name, ignore_errors=True)


def _remove_all_but(folder: Path, name: str) -> None:
    for path in folder.iterdir():
        if path.name == name:
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
