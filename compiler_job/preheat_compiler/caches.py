"""The second tier: lets torch.compile fill a cache directory that pods start from.

Why it exists: what cannot be exported as a package still compiles in pieces, and Inductor's cache spares pods most of
that. The filling runs in a process of its own, in the very environment that pods will have, because Inductor's keys
contain settings that are read when it is imported, and because a failed export leaves torch in a state no pod has.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler import processes
from preheat_compiler.faults import OUT_OF_MEMORY, common_fault, describe, print_traceback
from preheat_compiler.graphs import Graphs
from preheat_compiler.measure import Speed
from preheat_runtime.compare import Difference
from preheat_runtime.environment import CACHE_DIRECTORY, cache_environment
from preheat_runtime.fingerprint import needed_isa
from preheat_runtime.hook import in_words
from preheat_runtime.redaction import redact
from preheat_runtime.relocated import copy_caches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_compiler.report import Report

#: Below a target's work folder, and gone when the caches are kept: where they are filled.
FILLED = "inductor-for-pods"
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,255}")
#: What lies in a cache directory without being of use to a pod. Triton, and what bundles its kernels for Inductor, write to
#: `tmp.…` first; kernels of the user's own have any name.
_NOT_KEPT = re.compile(r"\.lock$|\.tmp$|(?:^|\.)tmp\.(?:pid_\d+_)?[0-9a-f-]{36}$|^locks$|^precompiled_headers$")


class CachesError(Exception):
    """torch.compile itself failed; `reason` is of the closed list."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def compile_caches(
    *,
    launcher: Path,
    request_file: Path,
    module: str,
    bucket: str,
    work: Path,
    artifact: Path,
    report: Report,
    seconds: float,
    former: Path | None = None,
) -> tuple[Difference, Speed | None, Graphs]:
    """Fill `artifact/caches`; returns how far its answers are from eager's, how fast they are (None if too far), and
    how it was cut. `former` are caches to begin with, which are then the artifact's as they are.

    Raises CachesError.
    """
    folder, answer = work / FILLED, work / "caches.json"
    shutil.rmtree(folder, ignore_errors=True)
    answer.unlink(missing_ok=True)
    if former is None:
        folder.mkdir()
    else:
        copy_caches(former, folder, final=folder)
    environment = {
        **os.environ,
        **cache_environment(),
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    arguments = ["--request", str(request_file), "--module", module, "--bucket", bucket]
    arguments += ["--answer", str(answer), "--seconds", f"{seconds:.1f}"]
    ended = processes.run(launcher, "caches", arguments, seconds=seconds, environment=environment, own_group=False)
    try:
        seen = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        if ended.timed_out:
            raise CachesError(
                "Timeout", f"took longer than {ended.seconds:.0f} s. Raise spec.compile.timeoutSeconds."
            ) from None
        if ended.out_of_memory:
            raise CachesError("OutOfMemory", f"the process was killed for memory. {OUT_OF_MEMORY.remedy}") from None
        raise CachesError("CompileFailed", f"the process {ended.how}. See the log of container compile.") from None
    if seen["reason"] is not None:
        raise CachesError(seen["reason"], seen["message"])
    if former is None:
        _keep(folder, artifact / CACHE_DIRECTORY, report)
    shutil.rmtree(folder, ignore_errors=True)
    report.merge(seen["sections"])
    speed = None
    if seen["speed"] is not None:
        speed = Speed.from_json(seen["speed"])
    error = seen["error"]
    seen_error = Difference(maximum=float(error["maximum"]), mean=float(error["mean"]), why=error["why"])
    return seen_error, speed, Graphs.from_json(seen["graphs"])


def main(argv: Sequence[str], *, launcher: str) -> int:
    """Compile as a pod would, and write what was seen as JSON to `--answer`."""
    del launcher
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--module", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--answer", type=Path, required=True)
    options = parser.parse_args(argv)
    try:
        seen = _fill(options)
    except BaseException as error:  # also what the model's code raises to end the process
        print_traceback()
        seen = _refusal(error)
    options.answer.write_text(json.dumps(seen), encoding="utf-8")
    return 0


def _fill(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from preheat_compiler.accuracy import against_reference
    from preheat_compiler.decide import allowed_error
    from preheat_compiler.devices import kind_of, tensors_of
    from preheat_compiler.graphs import compiled_frames, explain
    from preheat_compiler.inputs import build_call, dtypes_of, pick_sizes
    from preheat_compiler.levers import as_served, levers_of
    from preheat_compiler.model import device_of, find_module, load_factory
    from preheat_compiler.prove import SEEDS, against_eager
    from preheat_compiler.report import Report
    from preheat_compiler.request import read_request
    from preheat_compiler.speed import speed_of
    from preheat_compiler.stages import compile_stages
    from preheat_compiler.submodules import where_time_goes
    from preheat_compiler.tuning import tuned_within
    from preheat_runtime import varying
    from preheat_runtime.warm import settle

    request = read_request(options.request)
    spec, bucket = request.target(options.module, options.bucket)
    settle(needed_isa(request.cpu_isa))
    levers = levers_of(request.settings)
    module = find_module(load_factory(request.factory, request.settings.arguments), spec.path)
    device = device_of(module)
    report = Report(target=f"{options.module}/{options.bucket}")
    sizes = pick_sizes(bucket)
    with as_served(levers, kind_of(tensors_of(module))):
        compiled = torch.compile(module, fullgraph=request.settings.fullgraph == "Required", **levers.arguments({}))
        caches = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
        with compile_stages(report, "caches"), tuned_within(request.settings.autotune_seconds, report):
            varying.bring(caches)
            if len(sizes) > 1:
                # From here on as in a pod, which knows from its first call on which sizes vary.
                for each in sizes:
                    call = build_call(bucket, each, seed=SEEDS[0], device=device)
                    compiled(*call.args, **call.kwargs)
                varying.save(caches)
                torch._dynamo.reset()
                varying.bring(caches)
            first = build_call(bucket, sizes[0], seed=SEEDS[0], device=device)
            compiled(*first.args, **first.kwargs)
            after_first = compiled_frames()
            error = against_eager(compiled, module, bucket, sizes, device=device, report=report)
        recompiles = compiled_frames() - after_first
        against_reference(compiled, module, bucket, sizes, seeds=SEEDS, device=device, report=report)
        dtypes = dtypes_of(module, first, levers)
        speed = None
        if error.maximum <= float(allowed_error(request.keep_if, dtypes | error.dtypes)):
            speed = speed_of(
                compiled, module, bucket, sizes, keep_if=request.keep_if, seed=SEEDS[0], device=device,
                seconds=options.seconds, report=report,
            )  # fmt: skip
            where_time_goes(
                compiled, module, bucket, sizes[-1], seed=SEEDS[0], device=device, report=report,
                seconds=options.seconds * 0.05,
            )  # fmt: skip
        # Last, since it forgets what was compiled.
        count, breaks = explain(module, build_call(bucket, sizes[0], seed=SEEDS[0], device=device))
    graphs = Graphs(graphs=count, breaks=breaks, recompiles=recompiles)
    report.note("graphs", **graphs.to_json())
    return {
        "reason": None,
        "graphs": graphs.to_json(),
        "error": {"maximum": str(error.maximum), "mean": str(error.mean), "why": error.why},
        "speed": None if speed is None else speed.to_json(),
        "sections": report.sections,
    }


def _refusal(error: BaseException) -> dict[str, Any]:
    words = redact(describe(error))
    if (fault := common_fault(error)) is not None:
        return {"reason": fault.reason, "message": f"{words}. {fault.remedy}"}
    missing = "InvalidCxxCompiler" in in_words(error)
    return {"reason": "CompilerMissing" if missing else "CompileFailed", "message": words}


def _keep(folder: Path, target: Path, report: Report) -> None:
    """Move what a pod can use from `folder` to `target`; names that a manifest cannot hold are left out and noted."""
    left_out = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        relative = path.relative_to(folder)
        if any(_NOT_KEPT.search(part) for part in relative.parts):
            continue
        if not all(_SEGMENT.fullmatch(part) for part in relative.parts):
            left_out.append(relative.as_posix())
            continue
        (target / relative).parent.mkdir(parents=True, exist_ok=True)
        path.replace(target / relative)
    if left_out:
        report.note("caches", leftOut=left_out)
