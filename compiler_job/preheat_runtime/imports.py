"""What functions import when they run, as `from settings import SCALE` inside `forward` does.

Why it exists: such a name is in no namespace that the function's code is looked up in, and often the module is not even
imported before the first call. What is imported by then is part of the identity, under the module's name and the names
that the code may take out of it; what is not cannot be, and nobody runs a module of the user's only to look at it. The
compile Job knows which were imported when it ran the code: those a pod imports before its first answer, as eager would.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

from .libraries import is_own
from .outside import let_through

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_IMPORT = dis.opmap["IMPORT_NAME"]


@functools.lru_cache(maxsize=4096)
def _statements(code: types.CodeType) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    """The import statements of a function and of those in it: module, how many packages up, names that are taken."""
    found: list[tuple[str, int, tuple[str, ...]]] = []
    if _IMPORT in code.co_code[::2]:
        before: list[Any] = [0, None]
        for step in dis.get_instructions(code):
            if step.opname == "IMPORT_NAME":
                level, names = before[-2:]
                found.append((step.argval, level if type(level) is int else 0, names if type(names) is tuple else ()))
            if step.opname != "EXTENDED_ARG":
                before.append(step.argval)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            found += _statements(const)
    return tuple(found)


def modules_of(code: types.CodeType, scope: dict[str, Any]) -> Iterator[str]:
    """Full names of the modules of somebody's own that code imports, and of what may be one: `b` of `from a import b`."""
    for name, level, taken in _statements(code):
        full = _full_name(name, level, scope)
        if full is None or not is_own(full):
            continue
        yield full
        if not taken and "." in full:
            yield full.partition(".")[0]  # the name that is bound
        yield from (f"{full}.{each}" for each in taken)


def _full_name(name: str, level: int, scope: dict[str, Any]) -> str | None:
    if level == 0:
        return name
    package = scope.get("__package__")
    if package is None:
        own = scope.get("__name__", "")
        package = own if "__path__" in scope else own.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * level + name, package)
    except ImportError:
        return None


def key(module: str, names: Collection[str]) -> str:
    """Under what an identity has a module that code of these names imports."""
    return f"{module} {hashlib.sha256(' '.join(sorted(names)).encode()).hexdigest()[:16]}"


def module_of(key: str) -> str:
    """The module's name."""
    return key.partition(" ")[0]


def bring(modules: Collection[str]) -> None:
    """Import what running the code would import; what cannot be is not, and the code will say so itself.

    Not what another thread is about to import: it may wait for who is asking.
    """
    for name in sorted(modules):
        parts = name.split(".")
        parents = [sys.modules.get(".".join(parts[:count])) for count in range(1, len(parts))]
        if any(getattr(getattr(each, "__spec__", None), "_initializing", False) for each in parents):
            continue
        try:
            importlib.import_module(name)
        except (Exception, SystemExit) as error:  # whatever the user's module raises
            let_through(error)
