"""Builds the package of the target that is being compiled, and tells its module.

Why it exists: `package` knows torch and raises what torch is about; here its errors become verdicts with a remedy, and
its results become figures.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preheat_compiler import package
from preheat_compiler.faults import common_reason, failed
from preheat_compiler.inputs import build_call, dynamic_shapes, narrowed, pick_sizes, traceable
from preheat_compiler.prove import SEEDS
from preheat_compiler.stages import compile_stages
from preheat_compiler.tuning import tuned_within
from preheat_compiler.verdict import TargetError
from preheat_runtime.package import TARGET_FILE, Target
from preheat_runtime.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.work import Work


def describe_module(work: Work, module: torch.nn.Module) -> Target:
    """What a pod knows the module by; also written, for the case that there will be no package."""
    try:
        return package.describe_target(
            module,
            example_call(work, work.bucket),
            dynamic_shapes=dynamic_shapes(work.bucket),
            out=work.described,
            cpu_isa=work.request.cpu_isa,
            levers=work.levers,
        )
    except package.PackageError as error:
        raise _package_failed(error) from error


def build(work: Work, module: torch.nn.Module) -> None:
    """Build the package and keep to the sizes it really serves; raises TargetError, and NotPackageable."""
    bucket = traceable(work.bucket)
    example = example_call(work, bucket)
    begin = time.monotonic()
    with building(work):
        info = package.build_package(
            module, example,
            dynamic_shapes=dynamic_shapes(bucket), out=work.artifact, cpu_isa=work.request.cpu_isa,
            levers=work.levers,
        )  # fmt: skip
    work.figure(compileSeconds=time.monotonic() - begin, sizeBytes=info.size_bytes)
    names = {
        name
        for tensors in (module.named_parameters, module.named_buffers)
        for name, _ in tensors(remove_duplicate=False)
    }
    if unknown := set(info.constants) - names:
        raise TargetError(
            "ProofFailed", f"the package uses {', '.join(sorted(unknown)[:5])}, which the module does not have"
        )
    work.report.note("package", constants=len(info.constants), files=list(info.files), draws=list(info.draws))
    work.serve_only(narrowed(bucket, Target.read(work.artifact / TARGET_FILE).call.dim))


def example_call(work: Work, bucket: Bucket) -> package.ExampleCall:
    """The call that a bucket is traced with. Raises TargetError(InputsRefused)."""
    call = build_call(bucket, pick_sizes(bucket)[0], seed=SEEDS[0], device=work.device)
    return package.ExampleCall(args=call.args, kwargs=call.kwargs)


@contextmanager
def building(work: Work) -> Iterator[None]:
    """Around the building of a package: it is timed by stages, tuning ends in time, errors become TargetErrors.

    Only NotPackageable stays what it is.
    """
    try:
        with compile_stages(work.report, "package"), tuned_within(work.request.settings.autotune_seconds, work.report):
            yield
    except package.NotPackageable as error:
        if reason := common_reason(error):
            raise failed(reason, "building the package", error, remedy="") from error
        raise
    except package.PackageError as error:
        raise _package_failed(error) from error


def _package_failed(error: package.PackageError) -> TargetError:
    reason = common_reason(error)
    if reason is not None:
        return failed(reason, "building the package", error, remedy="")
    text = words(error)
    if isinstance(error, package.InputsRefused):
        return TargetError("InputsRefused", f"{text}. Check args and kwargs of the bucket.")
    if isinstance(error, package.CompilerMissing):
        return TargetError("CompilerMissing", text)
    if isinstance(error, package.IsaUnavailable):
        return TargetError(
            "DeviceMissing", f"{text}. Choose other nodes (hardware[].nodeSelector) or another hardware[].cpuIsa."
        )
    return TargetError("CompileFailed", f"{text}. See report.json and the log of container compile.")


def words(error: package.PackageError) -> str:
    """The error in a line, with the user's file and line, without secrets."""
    text = " ".join(redact(str(error)).split())
    text = f"{text[:500]} ..." if len(text) > 500 else text
    return redact(f"{type(error).__name__}: {text}{f' ({error.where})' if error.where else ''}")
