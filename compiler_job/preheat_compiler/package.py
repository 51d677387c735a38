"""Builds the package of one target: AOTInductor code that holds no weights, and the contract under which it may run.

Why it exists: an ordinary AOTInductor package carries its weights, bakes small ones into the machine code even when
told not to, uses every instruction of the CPU it was built on, and runs with whatever inputs it is given. What is
built here holds no weight, names every constant to be bound, stays inside one CPU class, and comes with a
`target.json` that says exactly which module and which calls it answers.

Errors (all carry `.where`, the user's file and line, when torch tells it):

    PackageError
    ├── NotPackageable            the module works, but not as a package; caches can still serve it
    │   ├── ExportFailed          torch.export refused the module
    │   ├── UnbindableConstant    `.name`: a tensor the code uses that is no parameter or buffer
    │   ├── GraphMutates          `.name`: the call writes to a buffer or an input
    │   ├── CustomOperator        `.name`: needs an operator that only Python or a C++ extension knows
    │   ├── OutputAliases         an output shares memory with an input, a parameter or a buffer
    │   └── IdentityUnknown       `.name`: something in the module has no content that can be compared between processes
    ├── InputsRefused             the example call does not fit the module's signature, or has leaves other than tensors and constants
    ├── CompilerMissing           no working C++ compiler in the image
    ├── CompileFailed             Inductor or the C++ compiler failed
    └── IsaUnavailable            this CPU cannot build or prove code of the wanted class
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch


class PackageError(Exception):
    """A package could not be built; the message is for people, `.where` is the user's `file:line` or None."""

    def __init__(self, message: str, *, where: str | None = None, name: str | None = None) -> None:
        super().__init__(message)
        self.where = where
        self.name = name


class NotPackageable(PackageError):
    """The module runs, but cannot be served as a package; caches are the next tier."""


class ExportFailed(NotPackageable):
    """torch.export refused the module."""


class UnbindableConstant(NotPackageable):
    """The code uses a tensor that is neither parameter nor buffer (`.name`), so its content would be baked in."""


class GraphMutates(NotPackageable):
    """The call writes to a buffer or an input (`.name`)."""


class CustomOperator(NotPackageable):
    """The code calls an operator (`.name`) that plain AOTInductor code cannot reach."""


class OutputAliases(NotPackageable):
    """An output shares memory with an input, a parameter or a buffer."""


class IdentityUnknown(NotPackageable):
    """Something the module refers to (`.name`) cannot be compared between processes."""


class InputsRefused(PackageError):
    """The example call does not fit the module, or holds something other than tensors and constants."""


class CompilerMissing(PackageError):
    """There is no working C++ compiler in the image."""


class CompileFailed(PackageError):
    """Inductor or the C++ compiler failed."""


class IsaUnavailable(PackageError):
    """This machine cannot run code of the wanted CPU class, so it can neither build nor prove it."""


@dataclass(frozen=True, kw_only=True)
class DimRange:
    """A named size that may vary: `minimum <= size <= maximum`, a multiple of `multiple_of`."""

    name: str
    minimum: int
    maximum: int
    multiple_of: int = 1


@dataclass(frozen=True, kw_only=True)
class ExampleCall:
    """One call of the module: each argument is a tensor or a constant (None, bool, int, float, str)."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PackageInfo:
    """What was built: file names relative to `out`, bytes in all, and the constants the pod will bind."""

    files: tuple[str, ...]
    size_bytes: int
    constants: tuple[str, ...]


#: Which sizes vary: position or keyword of an argument -> index of a dimension -> its range. The same `DimRange.name`
#: at several places means one shared size.
DynamicShapes = "Mapping[int | str, Mapping[int, DimRange]]"


def build_package(
    module: torch.nn.Module,
    example: ExampleCall,
    *,
    dynamic_shapes: Mapping[int | str, Mapping[int, DimRange]] | None,
    out: Path,
    cpu_isa: str,
) -> PackageInfo:
    """Export `module` as it is (mode, weights, dtype), compile it without weights, write `model.so` and `target.json` to `out`.

    Needs no environment of its own; `cpu_isa` is X86_64_V3, X86_64_V4 or Native. Grad is off inside, other modes are
    the caller's and become part of the contract. Raises a PackageError; `out` then holds nothing of ours.
    """
    raise NotImplementedError


def describe_target(
    module: torch.nn.Module,
    example: ExampleCall,
    *,
    dynamic_shapes: Mapping[int | str, Mapping[int, DimRange]] | None,
    out: Path,
    cpu_isa: str,
) -> None:
    """Write only `target.json` to `out`: for Rejected targets and for the caches tier.

    Raises InputsRefused, or IdentityUnknown when a pod could not recognise this module.
    """
    raise NotImplementedError


def load_package(directory: Path, module: torch.nn.Module) -> Any:
    """The package in `directory` bound to `module`, as a callable that takes the module's arguments.

    It is the pod's own code path without the fall back: a call that does not fit raises `preheat_runtime.bind.Mismatch`.
    For proofs.
    """
    raise NotImplementedError


def randomise_(module: torch.nn.Module, seed: int) -> None:
    """Give every floating parameter and buffer other values, in place, in ranges a network survives.

    Running variances stay positive, scales near one; integer and boolean buffers stay as they are.
    """
    raise NotImplementedError
