"""Builds the package of one target: AOTInductor code that holds no weights, and the contract under which it may run.

Why it exists: an ordinary AOTInductor package carries its weights, bakes small ones into the machine code even when
told not to, uses every instruction of the CPU it was built on, and runs with whatever inputs it is given. What is
built here holds no weight, names every constant to be bound, stays inside one CPU class, and comes with a
`target.json` that says exactly which module and which calls it answers. Errors: see `package_errors`.

Describe and build before the module's first forward: identity includes attributes, and some modules set some when they
run, while a pod compares before its first call.
"""

from __future__ import annotations

import functools
import tempfile
import traceback
import warnings
import zipfile
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import torch

from preheat_runtime import identity as identities
from preheat_runtime.hook import words_of
from preheat_runtime.levers import Levers
from preheat_runtime.native import Library, NativeError, SharedObject
from preheat_runtime.opened import OpenPackage
from preheat_runtime.package import LIBRARY_FILE, TARGET_FILE, DimRange, PackageSpec, Target
from preheat_runtime.parallel import kept_in_regions
from preheat_runtime.redaction import redact

from .levers import as_served, inductor_options
from .package_beside import check_package, check_region, compare, form_of_eager
from .package_call import ExampleCall, PlannedCall, narrowed, plan_call
from .package_cpu import GET_A_COMPILER, inductor_settings, require_compiler, require_cpu, vector_code
from .package_device import without_regex
from .package_effects import asks, prints
from .package_errors import (
    CompileFailed,
    CompilerMissing,
    CustomOperator,
    ExportFailed,
    IdentityUnknown,
    InputsRefused,
    IsaUnavailable,
    NotPackageable,
    OutputAliases,
    PackageError,
    SideEffect,
    UnbindableConstant,
)
from .package_found import left_as_found
from .package_graph import check_bindable, draws, inspect_graph, output_plan, without_texts, written
from .package_objects import room_for_two, wrapper_beside_kernels
from .package_proof import floating, randomise_, shuffle_
from .package_ranges import fixed_range
from .refusals import refused_silently
from .stages import EXPORT, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from preheat_runtime.package import Identity

    from .package_call import Ranges

__all__ = [
    "CompileFailed",
    "CompilerMissing",
    "CustomOperator",
    "DimRange",
    "ExampleCall",
    "ExportFailed",
    "IdentityUnknown",
    "InputsRefused",
    "IsaUnavailable",
    "NotPackageable",
    "OutputAliases",
    "PackageError",
    "PackageInfo",
    "SideEffect",
    "UnbindableConstant",
    "build_package",
    "check_package",
    "check_region",
    "describe_target",
    "floating",
    "load_package",
    "randomise_",
    "require_describable",
    "shuffle_",
]

# Without each of these a weight ends up in the code: as data, inlined because it is small, or folded with others.
_WEIGHTLESS = {
    "aot_inductor.package_constants_in_so": False,
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
    "cpp.weight_prepack": False,  # with max_autotune, matrix products keep a packed copy
}
# For the one compile of a process, precompiled headers cost more than they save, and torch needs an `openssl` to name
# them. Line tables, which only debuggers read, take a quarter of the C++ compiler's time and half of the library.
_LEAN = {"aot_inductor.precompile_headers": False, "aot_inductor.enable_line_tables": False}


PLAIN = Levers()


@dataclass(frozen=True, kw_only=True)
class PackageInfo:
    """What was built: file names relative to `out`, bytes in all, and the constants the pod will bind.

    `draws` are the operators of its graph that draw random numbers, with the user's `file:line`.
    """

    files: tuple[str, ...]
    size_bytes: int
    constants: tuple[str, ...]
    draws: tuple[str, ...] = ()


def build_package(
    module: torch.nn.Module,
    example: ExampleCall,
    *,
    dynamic_shapes: Ranges | None,
    out: Path,
    cpu_isa: str,
    levers: Levers = PLAIN,
    tracing: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> PackageInfo:
    """Export `module` as it is, compile it without weights, write `model.so` and `target.json` to `out`.

    `dynamic_shapes` names what varies: position or keyword of an argument, and what leads on from there in lists and
    dicts -> index of a dimension -> range; the same `DimRange.name` at several places is one shared size. `cpu_isa` is
    X86_64_V3, X86_64_V4 or Native; no environment is needed. Grad is off and autocast is as `levers` say inside; other
    modes are the caller's. `tracing` is entered while the module's Python is traced, and only then. Raises a
    PackageError; `out` then holds nothing of ours.
    """
    require_cpu(cpu_isa)
    described = identities.describe(module)
    require_describable(described)
    call = plan_call(module, example, dynamic_shapes)
    _require_cpu_tensors(described.tensors, call)
    require_compiler()
    out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        with left_as_found(module):
            program = _export(module, call, autocast=levers.autocast, tracing=tracing)
        # Only in its functional form does a graph say what it writes to.
        functional = _functional(module, program, described.tensors)
        inspect_graph(functional, described.tensors)
        outputs = output_plan(functional)
        eager = form_of_eager(module, call, levers)
        library = out / LIBRARY_FILE
        try:
            without_texts(program)
            _compile(program, library, cpu_isa=cpu_isa, options=inductor_options(levers))
            loaded = _load(library)
            check_bindable(functional, loaded.constants, described.tensors)
            package = PackageSpec(
                library=LIBRARY_FILE,
                library_outputs=loaded.outputs,
                constants=tuple(sorted(loaded.constants.items())),
                out_spec=outputs.tree,
                outputs=outputs.leaves,
            )
            identity = _with_imports(described, module)
            target = Target(identity=identity, call=narrowed(call.spec, program), package=package, levers=levers)
            target.write(out / TARGET_FILE)
            with as_served(levers, "cpu"):
                compare(module, call, out, eager)
        except BaseException:
            library.unlink(missing_ok=True)
            (out / TARGET_FILE).unlink(missing_ok=True)
            raise
    files = (LIBRARY_FILE, TARGET_FILE)
    return PackageInfo(
        files=files,
        size_bytes=sum((out / name).stat().st_size for name in files),
        constants=tuple(sorted(loaded.constants.values())),
        draws=draws(functional),
    )


def describe_target(
    module: torch.nn.Module,
    example: ExampleCall,
    *,
    dynamic_shapes: Ranges | None,
    out: Path,
    cpu_isa: str,
    levers: Levers = PLAIN,
) -> Target:
    """Write only `target.json` to `out`: for Rejected targets and for the caches tier.

    What cannot be compared between processes is left out of the identity here: a pod that takes one module for another
    then runs it eagerly, or asks torch.compile, and both are right. Raises InputsRefused, IsaUnavailable.
    """
    require_cpu(cpu_isa)
    described = identities.describe(module)
    try:
        call = plan_call(module, example, dynamic_shapes).spec
    except NotPackageable as error:
        raise InputsRefused(str(error), where=error.where, name=error.name) from error
    target = Target(identity=replace(described.identity, unknown=()), call=call, levers=levers)
    out.mkdir(parents=True, exist_ok=True)
    target.write(out / TARGET_FILE)
    return target


def load_package(directory: Path, module: torch.nn.Module) -> OpenPackage:
    """The package in `directory` bound to `module`, as a callable that takes the module's arguments.

    It is the pod's own code path without the fall back: what does not fit raises `preheat_runtime.bind.Mismatch`, here
    or at a call. For proofs.
    """
    return OpenPackage(Target.read(directory / TARGET_FILE), directory, module)


def _with_imports(described: identities.Described, module: torch.nn.Module) -> Identity:
    """The identity of before the code ran, with the modules that it imported when it did. Raises IdentityUnknown."""
    traced = identities.describe(module)
    _require_known(traced.not_known_of_imports)
    return replace(described.identity, imports=traced.identity.imports, order=traced.identity.order)


def require_describable(described: identities.Described) -> None:
    """Raise NotPackageable for a module with hooks, or with something that a pod could not compare."""
    if described.hooked is not None:
        raise NotPackageable(f"{described.hooked} has hooks, which compiled code would not run", name=described.hooked)
    if described.compiled is not None:
        raise NotPackageable(
            f"{described.compiled} is compiled on its own; leave that to Preheat", name=described.compiled
        )
    if described.distributed is not None:
        raise asks(*described.distributed)
    _require_known(described.identity.unknown)


def _require_known(unknown: tuple[str, ...]) -> None:
    if unknown:
        first = unknown[0]
        raise IdentityUnknown(
            f"{first}, whose content a pod could not compare; keep such things out of the module, or give their class "
            "plain attributes",
            name=first,
        )


def _require_cpu_tensors(tensors: Mapping[str, torch.Tensor], call: PlannedCall) -> None:
    named = [*tensors.items(), *((f"argument {index}", tensor) for index, tensor in enumerate(call.tensors))]
    for name, tensor in named:
        if tensor.device.type != "cpu":
            raise NotPackageable(f"{name} is on {tensor.device}; packages are made for CPUs only", name=name)
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise NotPackageable(f"{name} is a {type(tensor).__qualname__}, not a plain tensor", name=name)
        if (odd := identities.unusual(tensor)) is not None:
            raise NotPackageable(
                f"{name} is {odd}, not a plain tensor; give the module one that holds its own values "
                "(.resolve_neg(), .resolve_conj(), .clone())",
                name=name,
            )


def _export(
    module: torch.nn.Module, call: PlannedCall, *, autocast: str | None,
    tracing: Callable[[], AbstractContextManager[object]],
) -> Any:  # fmt: skip
    try:
        with warnings.catch_warnings(), _autocast_inside(module, autocast), prints() as printed:
            warnings.simplefilter("ignore")
            with counted(EXPORT), tracing():
                program = torch.export.export(module, call.args, dict(call.kwargs), dynamic_shapes=call.export_shapes)
    except MemoryError:
        raise
    except Exception as error:  # torch raises whatever the user's code and its own tracer raise
        where = users_line(error)
        raise ExportFailed(
            f"torch.export refused {type(module).__qualname__}: {fixed_range(words_of(error)) or _first_lines(error)}",
            where=where,
        ) from error
    if printed:
        raise SideEffect("the code prints, which a package would not do", where=printed[0])
    return program


@contextmanager
def _autocast_inside(module: torch.nn.Module, autocast: str | None) -> Iterator[None]:
    """While it is exported, the module enters autocast itself: torch.export does not see what was entered around it."""
    if autocast is None:
        yield
        return
    forward = module.forward

    @functools.wraps(forward)
    def under_autocast(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cpu", dtype=getattr(torch, autocast)):
            return forward(*args, **kwargs)

    own = module.__dict__.get("forward")
    object.__setattr__(module, "forward", under_autocast)
    try:
        yield
    finally:
        if own is None:
            object.__delattr__(module, "forward")
        else:
            object.__setattr__(module, "forward", own)


def _functional(module: torch.nn.Module, program: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    try:
        return program.run_decompositions({})
    except MemoryError:
        raise
    except Exception as error:  # as for the export itself
        # What keeps a graph from it is mostly a write, which torch's own error does not speak of.
        if (write := written(program, tensors)) is not None:
            raise write from error
        raise ExportFailed(
            f"{type(module).__qualname__} has no functional form: {_first_lines(error)}", where=users_line(error)
        ) from error


def _compile(program: Any, library: Path, *, cpu_isa: str, options: Mapping[str, Any]) -> None:
    known = torch._inductor.config.get_config_copy()
    ours = {name: value for name, value in (_WEIGHTLESS | _LEAN).items() if name in known}
    settings = {**options, **ours, **inductor_settings(cpu_isa)}
    with (
        tempfile.TemporaryDirectory(prefix="preheat-package-") as scratch,
        vector_code(cpu_isa),
        _quick_objects(),
        kept_in_regions(packages=settings.get("aot_inductor.precompile_headers") is False),
        refused_silently(),
    ):
        archive = Path(scratch) / "model.pt2"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch._inductor.aoti_compile_and_package(program, package_path=str(archive), inductor_configs=settings)
        except MemoryError:
            raise
        except Exception as error:  # Inductor's errors share no base class
            if any(type(cause).__name__ in ("InvalidCxxCompiler", "InvalidVecISA") for cause in _causes(error)):
                why = f"Inductor found no working C++ compiler: {_first_lines(error)}"
                raise CompilerMissing(f"{why}. {GET_A_COMPILER}") from error
            raise CompileFailed(f"{type(error).__name__}: {_first_lines(error)}", where=users_line(error)) from error
        _take_library(archive, library)


@contextmanager
def _quick_objects() -> Iterator[None]:
    from torch._inductor import cpp_builder

    builders = getattr(cpp_builder, "CppBuilder", None)
    beside = wrapper_beside_kernels(builders) if room_for_two() else nullcontext()
    with without_regex(builders, Path(torch.__file__).parent / "include"), beside:
        yield


def _take_library(archive: Path, library: Path) -> None:
    with zipfile.ZipFile(archive) as package:
        names = package.namelist()
        libraries = [name for name in names if PurePosixPath(name).suffix == ".so"]
        if len(libraries) != 1:
            raise CompileFailed(f"the package holds {len(libraries)} libraries, not one: {libraries}")
        sources = [package.read(name) for name in names if PurePosixPath(name).name.endswith("wrapper.cpp")]
        if any(b"aoti_torch_proxy_executor_call_function(" in source for source in sources):
            raise CustomOperator("the code calls an operator that exists only in Python or in an extension")
        library.write_bytes(package.read(libraries[0]))


def _load(library: Path) -> Library:
    try:
        return Library(SharedObject(library), runners=1)
    except NativeError as error:
        raise CompileFailed(f"the compiled library cannot be loaded: {error}") from error


def users_line(error: BaseException) -> str | None:
    """`file:line` of the innermost frame that is neither torch's nor ours, looking through causes."""
    skip = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<", str(Path(traceback.__file__).parent))
    for cause in _causes(error):
        frames = traceback.extract_tb(cause.__traceback__)
        for frame in reversed(frames):
            if "site-packages" in frame.filename.removeprefix(skip[0]) or not frame.filename.startswith(skip):
                return f"{frame.filename}:{frame.lineno}"
    return None


def _causes(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


def _first_lines(error: BaseException) -> str:
    # What is cut here cannot be redacted any more.
    lines = [line.strip() for line in redact(words_of(error)).splitlines() if line.strip()]
    return " ".join(lines[:3])[:600] or type(error).__name__
