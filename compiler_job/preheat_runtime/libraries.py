"""Which code belongs to an installed package, and what others have put into it.

Why it exists: a model of a large library reaches half of that library by name, which takes seconds to read and a stack
deeper than Python's. What pip installed is known by the hashes it wrote down while it did, so such code is taken by name
and by that record; only what somebody else has put into it (a replaced function, a registered one) is looked at.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .outside import let_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Attributes that Python's hash seed decides, so no two processes agree on them, and that no answer depends on: a hash that
#: transformers' GenerationConfig keeps of itself, which of its modules must stay on one device, made from a set; and the
#: arguments that a diffusers model was not given, in a set's order.
OF_THE_PROCESS = frozenset({"_original_object_hash", "_no_split_modules", "_use_default_values"})

#: Large libraries that a model does not change, their version stands for their content; and what pybind11 calls its own.
OPAQUE_PACKAGES = frozenset(
    {"torch", "numpy", "scipy", "sympy", "triton", "PIL", "preheat_runtime", "pybind11_builtins"}
)

#: Registries are dicts in attributes of objects or classes; deeper than that nobody looks.
_DEPTH = 3


def top_package(module_name: str | None) -> str:
    """First part of a dotted module name."""
    return (module_name or "").partition(".")[0]


@functools.lru_cache(maxsize=4096)
def is_opaque(module_name: str | None) -> bool:
    """Whether code of this module is taken by name instead of by content."""
    top = top_package(module_name)
    return top in OPAQUE_PACKAGES or (top in sys.stdlib_module_names and not _in_front(top))


def _in_front(top: str) -> bool:
    """Whether somebody's own file has taken the name of a module of the standard library, as a `profile.py` does."""
    file, known = _file(top), getattr(os, "__file__", None)
    if not file or not known or not file.endswith((".py", ".pyc")):
        return False
    inside = file.removeprefix(known.removesuffix(Path(known).name))
    return inside == file or inside.startswith(("site-packages", "dist-packages"))


def _file(top: str) -> str | None:
    """Where a package or module comes from, or would come from if it were imported, which it is not here."""
    module = sys.modules.get(top)
    if module is not None:
        try:
            found: str | None = object.__getattribute__(module, "__file__")  # past the module's own `__getattr__`
        except AttributeError:
            return None
        return found
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, AttributeError, ValueError):
        return None
    return spec.origin if spec is not None and spec.has_location else None


def origins(value: Any) -> tuple[str | None, ...]:
    """The modules that a function or class is of: what `functools.wraps` puts on it, and where its code really is."""
    if type(value) is types.FunctionType:
        return value.__module__, value.__globals__.get("__name__")
    return (value.__module__,)


@functools.lru_cache(maxsize=4096)
def is_own(module_name: str | None) -> bool:
    """Whether code of this module is somebody's own: neither opaque nor of an installed package."""
    return not is_opaque(module_name) and release(top_package(module_name)) is None


def is_users(value: Any) -> bool:
    """Whether a function or class is somebody's own, by any of its origins."""
    return any(map(is_own, origins(value)))


@functools.lru_cache(maxsize=1024)
def release(top: str) -> str | None:
    """The installed distribution that brings the package `top`, with the hash of its record; None when there is none.

    None also for what is not listed in the record: checkouts installed in place, folders on PYTHONPATH.
    """
    file = _file(top)
    if not file:
        return None
    path = Path(file)
    package = path.name == "__init__.py"
    site = path.parent.parent if package else path.parent
    listed = f"{top}/__init__.py," if package else f"{path.name},"
    try:
        found = sorted(site.glob("*.dist-info"))
        # Most distributions are named as their package; the others are looked for afterwards.
        found.sort(key=lambda each: not each.name.lower().startswith(f"{top.lower()}-"))
        for folder in found:
            record = folder / "RECORD"
            content = record.read_bytes() if record.is_file() else b""
            if content.startswith(listed.encode()) or f"\n{listed}".encode() in content:
                return f"{folder.name.removesuffix('.dist-info')} {hashlib.sha256(content).hexdigest()[:16]}"
    except OSError as error:
        let_through(error)
        return None
    return None


def foreign_parts(value: Any, is_foreign: Callable[[Any], bool], depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Functions and classes of foreign code that `value` (a class, an object, a dict, a list) holds, with their place."""
    # By type() alone: asking a lazy object for its class would load what it stands for.
    for name, item in _members(value):
        inner = _plain(item)
        if type(inner) is types.FunctionType or issubclass(type(inner), type):
            if is_foreign(inner):
                yield name, inner
        elif depth and issubclass(type(inner), (dict, list, tuple)):
            for place, found in foreign_parts(inner, is_foreign, depth - 1):
                yield f"{name}.{place}", found


def _members(value: Any) -> list[tuple[str, Any]]:
    kind = type(value)
    if issubclass(kind, dict):
        return [(str(key), item) for key, item in list(dict.items(value))]
    if issubclass(kind, (list, tuple)):
        return [(str(index), item) for index, item in enumerate(value)]
    if issubclass(kind, type):
        return [(name, item) for name, item in list(value.__dict__.items()) if not name.startswith("__")]
    try:
        state = object.__getattribute__(value, "__dict__")
    except AttributeError:
        state = {}
    of_class = [each for each in _members(kind) if issubclass(type(each[1]), (dict, list))]
    return [*_members(state), *of_class]


def _plain(item: Any) -> Any:
    """The function that a descriptor stands for."""
    if isinstance(item, (staticmethod, classmethod)):
        return item.__func__
    if isinstance(item, property):
        return item.fget
    return item
