"""Why a package could not be built, as types the driver can turn into verdicts.

All carry `.where`, the user's file and line, when torch tells it:

    PackageError
    ├── NotPackageable            the module works, but not as a package; caches can still serve it
    │   ├── ExportFailed          torch.export refused the module
    │   ├── UnbindableConstant    `.name`: a tensor the code uses that is no parameter or buffer
    │   ├── GraphMutates          `.name`: the call writes to a buffer or an input
    │   ├── CustomOperator        `.name`: needs an operator that only Python or a C++ extension knows
    │   ├── CompileFailed         Inductor or the C++ compiler failed on the exported graph
    │   ├── OutputAliases         an output shares memory with an input, a parameter or a buffer, or is the caller's own
    │   ├── SideEffect            the call does something beside answering: prints, changes what its caller has
    │   └── IdentityUnknown       `.name`: something in the module has no content that can be compared between processes
    ├── InputsRefused             the example call does not fit the module's signature, or has leaves other than tensors and constants
    ├── CompilerMissing           no working C++ compiler in the image
    └── IsaUnavailable            this CPU cannot build or prove code of the wanted class
"""

from __future__ import annotations


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


class SideEffect(NotPackageable):
    """The call does something beside answering that a package would not do."""


class IdentityUnknown(NotPackageable):
    """Something the module refers to (`.name`) cannot be compared between processes."""


class InputsRefused(PackageError):
    """The example call does not fit the module, or holds something other than tensors and constants."""


class CompilerMissing(PackageError):
    """There is no working C++ compiler in the image."""


class CompileFailed(NotPackageable):
    """Inductor or the C++ compiler failed; torch.compile goes another way, and may come through."""


class IsaUnavailable(PackageError):
    """This machine cannot run code of the wanted CPU class, so it can neither build nor prove it."""
