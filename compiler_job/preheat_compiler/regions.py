"""Builds the code of a module's regions: equal submodules once, each bound to its own weights in the pod.

Why it exists: what a region is called with is known only when its module runs. So the module runs eagerly at several
sizes, its submodules are watched, and from what they were given follow the inputs to trace with and the sizes that vary.
"""

from __future__ import annotations

import difflib
import shutil
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import torch

from preheat_compiler import package
from preheat_compiler.build import example_call
from preheat_compiler.inputs import build_call, dynamic_shapes, pick_sizes, traceable
from preheat_compiler.levers import as_served
from preheat_compiler.package_call import plan_call
from preheat_compiler.prove import SEEDS
from preheat_compiler.reads import Reads
from preheat_compiler.report import decimal
from preheat_compiler.verdict import TargetError
from preheat_runtime import identity as identities
from preheat_runtime.bind import Mismatch
from preheat_runtime.package import LIBRARY_FILE, TARGET_FILE, DimRange, RegionSpec, Target
from preheat_runtime.regions import CHANGED
from preheat_runtime.replaced import replaced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.package_call import Place
    from preheat_compiler.work import Work
    from preheat_runtime.package import CallSpec, Identity


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What one submodule was called with, at each of the sizes its module was run at; the first is traced with."""

    path: str
    calls: tuple[package.ExampleCall, ...]


def region_paths(module: torch.nn.Module, patterns: Sequence[str]) -> tuple[str, ...]:
    """The submodules that the patterns mean, in the module's order.

    Raises TargetError(ModuleNotFound) for a pattern that means none, or for a region inside another one.
    """
    names = [name for name, _ in module.named_modules() if name]
    found: list[str] = []
    for pattern in patterns:
        matched = [name for name in names if _matches(name, pattern)]
        if not matched:
            near = difflib.get_close_matches(pattern, names, n=3)
            hint = f"did you mean {' or '.join(near)}?" if near else f"it has: {', '.join(names[:20]) or 'none'}"
            raise TargetError("ModuleNotFound", f"torch.modules[].regions: no submodule is {pattern!r}; {hint}")
        found += [name for name in matched if name not in found]
    for name in found:
        outer = [other for other in found if name.startswith(f"{other}.")]
        if outer:
            raise TargetError(
                "ModuleNotFound",
                f"torch.modules[].regions: {name} lies in {outer[0]}, which is a region; name one of them",
            )
    return tuple(sorted(found, key=names.index))


def watch(work: Work, module: torch.nn.Module) -> tuple[Seen, ...]:
    """Run the module at the sizes of its bucket and note what its regions are called with.

    Raises TargetError(ModuleNotFound), and NotPackageable for a region that is not called, or not as its module is.
    """
    paths = region_paths(module, work.module.regions)
    bucket = traceable(work.bucket)
    calls: dict[str, list[package.ExampleCall]] = {path: [] for path in paths}
    for sizes in pick_sizes(bucket):
        call = build_call(bucket, sizes, seed=SEEDS[0], device=work.device)
        with _noting(work, module, paths) as noted:
            module(*call.args, **call.kwargs)
        for path in paths:
            if path not in noted:
                raise package.NotPackageable(f"the region {path} is not called", name=path)
            calls[path].append(noted[path])
    return tuple(Seen(path=path, calls=tuple(calls[path])) for path in paths)


def build_regions(work: Work, module: torch.nn.Module, seen: tuple[Seen, ...]) -> None:
    """Write one library for each group of equal regions, and `target.json`.

    Raises PackageErrors, NotPackageable among them; nothing of ours is left then.
    """
    try:
        _build(work, module, seen)
    except BaseException:
        for path in work.artifact.iterdir():
            path.unlink()
        raise


def _build(work: Work, module: torch.nn.Module, seen: tuple[Seen, ...]) -> None:
    bucket = traceable(work.bucket)
    begin = time.monotonic()
    named = _named_sizes(bucket)
    regions: list[RegionSpec] = []
    rest = list(seen)
    while rest:
        region = _build_kind(work, module, rest, len(regions), named)
        regions.append(region)
        rest = [each for each in rest if each.path not in region.paths]
    outer = plan_call(module, example_call(work, bucket), dynamic_shapes(bucket)).spec
    described = identities.describe(module)
    package.require_describable(described)
    target = Target(
        identity=described.identity, call=outer, regions=tuple(regions),
        levers=work.levers,
    )  # fmt: skip
    target.write(work.artifact / TARGET_FILE)
    size = sum(path.stat().st_size for path in work.artifact.rglob("*") if path.is_file())
    work.figure(compileSeconds=time.monotonic() - begin, sizeBytes=size)
    work.report.note("package", constants=_constants(regions), files=[region.package.library for region in regions])
    _require_served(work, module, bucket)
    work.serve_only(bucket)


def _build_kind(
    work: Work, module: torch.nn.Module, rest: Sequence[Seen], number: int, named: Mapping[tuple[int, ...], DimRange]
) -> RegionSpec:
    """Build the code of the first of `rest`; it is for all others that it answers, too."""
    first = rest[0]
    block = module.get_submodule(first.path)
    folder = work.folder / f"region-{number}"
    begin = time.monotonic()
    reads = Reads(block)
    with work.report.stage(f"building {first.path}"):
        info = package.build_package(
            block, first.calls[0], dynamic_shapes=varying(first.calls, named), out=folder,
            cpu_isa=work.request.cpu_isa, levers=work.levers, tracing=reads.noted,
        )  # fmt: skip
    built = Target.read(folder / TARGET_FILE)
    library = f"region-{number}.so"
    shutil.move(folder / LIBRARY_FILE, work.artifact / library)
    shutil.rmtree(folder)
    paths = (first.path, *(each.path for each in _of_its_kind(module, first, rest[1:], named, reads.unread())))
    seconds = decimal(time.monotonic() - begin, 3)
    work.report.note(
        "regions",
        paths=list(paths),
        library=library,
        seconds=seconds,
        sizeBytes=info.size_bytes,
        draws=list(info.draws),
    )
    if built.package is None:
        raise package.CompileFailed(f"the region {first.path} has no code")
    return RegionSpec(paths=paths, call=built.call, package=replace(built.package, library=library))


def _of_its_kind(
    module: torch.nn.Module, first: Seen, others: Sequence[Seen], named: Mapping[tuple[int, ...], DimRange],
    unread: Collection[tuple[str, str]],
) -> list[Seen]:  # fmt: skip
    """Those that are called as `first` is, and are equal to it in all that a pod compares and its tracing read."""

    def looks(each: Seen) -> tuple[Identity, CallSpec]:
        block = module.get_submodule(each.path)
        call = plan_call(block, each.calls[0], varying(each.calls, named)).spec
        return identities.describe(block, without=unread).identity, call

    wanted = looks(first)
    return [each for each in others if looks(each) == wanted]


def _named_sizes(bucket: Bucket) -> dict[tuple[int, ...], DimRange]:
    """The sizes that each dim of the bucket has in the calls of `watch`, and its range."""
    picked = pick_sizes(bucket)
    ranges = {entry.name: entry for shape in (dynamic_shapes(bucket) or {}).values() for entry in shape.values()}
    return {tuple(sizes.by_dim[name] for sizes in picked): entry for name, entry in ranges.items()}


def varying(
    calls: Sequence[package.ExampleCall], named: Mapping[tuple[int, ...], DimRange]
) -> dict[Place, dict[int, DimRange]] | None:
    """Which sizes of a region's inputs vary, from what it was called with at several sizes of its module.

    Sizes that were equal at each of them are taken for one size, and for a dim of the bucket where `named` has them.
    Raises NotPackageable when the calls differ otherwise.
    """
    flat = [_tensors(call) for call in calls]
    if any(each.keys() != flat[0].keys() for each in flat):
        raise package.NotPackageable("a region is called with other arguments at other sizes")
    known = dict(named)
    shapes: dict[Place, dict[int, DimRange]] = {}
    for place, first in flat[0].items():
        shapes_seen = [each[place].shape for each in flat]
        if any(len(shape) != len(first.shape) for shape in shapes_seen):
            raise package.NotPackageable(f"the input {place} of a region has another rank at other sizes")
        for index in range(len(first.shape)):
            sizes = tuple(shape[index] for shape in shapes_seen)
            if len(set(sizes)) > 1:
                other = DimRange(name=f"size{len(known)}", minimum=min(sizes), maximum=max(sizes))
                shapes.setdefault(place, {})[index] = known.setdefault(sizes, other)
    return shapes or None


def _tensors(call: package.ExampleCall) -> dict[Place, torch.Tensor]:
    found: dict[Place, torch.Tensor] = {}

    def walk(place: Place, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            found[place] = value
        elif type(value) in (list, tuple):
            for index, item in enumerate(value):
                walk((*place, index), item)
        elif type(value) is dict:
            for key, item in value.items():
                walk((*place, key), item)

    for position, value in enumerate(call.args):
        walk((position,), value)
    for name, value in call.kwargs.items():
        walk((name,), value)
    return found


@contextmanager
def _noting(work: Work, module: torch.nn.Module, paths: Sequence[str]) -> Iterator[dict[str, package.ExampleCall]]:
    """Inside, the first call of each region is noted, with copies of its tensors."""
    noted: dict[str, package.ExampleCall] = {}
    handles: list[Any] = []

    def hook_for(path: str) -> Any:
        def hook(_block: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
            if work.levers.autocast_reason(work.kind) is not None:
                raise package.NotPackageable(f"autocast is switched around the region {path}", name=path)
            if path not in noted:
                copied = replaced((args, dict(kwargs)), torch.clone)
                noted[path] = package.ExampleCall(args=copied[0], kwargs=copied[1])

        return hook

    try:
        handles.extend(
            module.get_submodule(path).register_forward_pre_hook(hook_for(path), with_kwargs=True) for path in paths
        )
        yield noted
    finally:
        for handle in handles:
            handle.remove()


def _require_served(work: Work, module: torch.nn.Module, bucket: Bucket) -> None:
    """Every call of every region must be answered by its code, at every size; else the pod would be slow in part."""
    picked = pick_sizes(bucket)
    try:
        with as_served(work.levers, work.kind):
            opened = package.load_package(work.artifact, module)
            for sizes in (*picked, picked[0]):
                call = build_call(bucket, sizes, seed=SEEDS[0], device=work.device)
                opened(*call.args, **call.kwargs)
    except Mismatch as error:
        raise package.NotPackageable(
            f"with regions the module's own Python runs, and changes the module, so no pod would know it again: {error}"
        ) from error
    if opened.missed:
        path, why = next(iter(opened.missed.items()))
        if why == CHANGED:
            raise package.NotPackageable(
                f"the region {path} is set to something else while its module runs: pass it as an argument instead, or set it"
                " before the module is called",
                name=path,
            )
        raise package.NotPackageable(f"the region {path} is also called otherwise than at first: {why}", name=path)


def _constants(regions: Sequence[RegionSpec]) -> int:
    return sum(len(region.paths) * len(region.package.constants) for region in regions)


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))
