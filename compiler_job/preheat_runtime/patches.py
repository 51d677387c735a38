"""What somebody put into torch: functions in its namespaces, and whatever else in its classes.

Why it exists: torch's own code is taken by name and version, so what is not torch's own there must be found. Python tells of
a function where it was made; of a number nothing does, so the numbers that torch put there itself are compared with them.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from .libraries import is_opaque, is_own, origins
from .values import SCALARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .watch import Watch

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
#: What torch's classes are mostly made of.
_NATIVE = frozenset({*_FUNCTIONS, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType})
#: What a module asks for an answer first, and the mark of what we put there, or into its class: it computes what the module does.
CALL, OURS = "_compiled_call_impl", "_preheat_call"
_PLAIN = (*SCALARS, type(None), list, dict, tuple, set, frozenset, torch.Tensor, torch.dtype, functools.partial)


def is_plain(item: Any) -> bool:
    """Whether a value is of a kind that has its content in itself, whoever made it."""
    return type(item) in _PLAIN


def is_foreign(item: Any) -> bool:
    """Whether it is a function, method, property or class that is not all of torch, numpy or the standard library."""
    inner: Any = item.__func__ if isinstance(item, types.MethodType | staticmethod | classmethod) else item
    inner = inner.fget if isinstance(inner, property) else inner
    if type(inner) is types.FunctionType or isinstance(inner, type):
        return not all(map(is_opaque, origins(inner)))
    return False


def is_put_in(name: str, item: Any) -> bool:
    """Whether somebody put this into a class of torch's; plain values of torch's own are taken for such, and do no harm."""
    if type(item) is types.FunctionType:  # the most of them
        return not all(map(is_opaque, origins(item)))
    if is_plain(item):
        return not name.startswith("__")
    if is_ours(name, item):
        return False
    return is_foreign(item) or is_own(type(item).__module__)


def is_ours(name: str, item: Any) -> bool:
    """Whether we put this into a class, for the regions of a package to be asked; it is no part of what the class is."""
    return name == CALL and hasattr(type(item), OURS)


def patched_torch(watch: Watch) -> Iterator[tuple[str, Any]]:
    """Functions in torch's main namespaces that are not torch's own of that name, and what was put into its base classes.

    Some names are torch's own second names of a function, the same in every process.
    """
    # Lists of them first: another thread may import something meanwhile.
    for space, members in (("torch", torch.__dict__), ("torch.nn.functional", torch.nn.functional.__dict__)):
        functions = [pair for pair in list(members.items()) if type(pair[1]) in _FUNCTIONS and pair[0] != "compile"]
        watch.add_names(members, [name for name, _ in functions])
        yield from _odd(space, functions)
    for kind in (torch.Tensor, torch.nn.Module):
        watch.add_class(kind)
        members = list(kind.__dict__.items())
        yield from _odd(f"torch.{kind.__name__}", [pair for pair in members if type(pair[1]) in _FUNCTIONS])
        put_in = [pair for pair in members if type(pair[1]) not in _NATIVE and is_put_in(*pair)]
        for name, item in sorted(put_in, key=lambda pair: pair[0]):
            yield f"torch.{kind.__name__}.{name}", item


def _odd(space: str, functions: list[tuple[str, Any]]) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, item in sorted([each for each in functions if _is_odd(*each)], key=lambda pair: pair[0]):
        yield f"{space}.{name}", item


def _is_odd(name: str, item: Any) -> bool:
    if item.__name__ == name and (type(item) is not types.FunctionType or all(map(is_opaque, origins(item)))):
        return False
    # With its first compile it counts how many modules are made.
    return not (item.__module__ or "").startswith("torch._dynamo")
