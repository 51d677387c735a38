"""The content of objects that libraries keep where no attribute tells it: numbers of numpy, modes of torch, weak references.

Why it exists: an object of a library is taken by its class, since most count on or keep caches in themselves. A few are
settings none the less (the dtype of an autocast, a type's limits, a backend's name), and what they say decides the answer.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from .libraries import top_package

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_POINTER = struct.calcsize("P")
_CHUNK = 1 << 20


def setting(kind: type, value: Any) -> Any:
    """What an object of torch's or numpy's is set to, in plain values; None for those that are not settings."""
    if kind is torch.autocast or issubclass(kind, torch.autocast):
        return [str(getattr(value, name, None)) for name in ("device", "fast_dtype", "_enabled", "_cache_enabled")]
    if kind in (torch.finfo, torch.iinfo):
        return str(value)
    if kind in (torch.set_grad_enabled, torch.inference_mode):
        return bool(value.mode)
    name = getattr(value, "name", None) if hasattr(kind, "__members__") else getattr(value, "__name__", None)
    if isinstance(name, str):  # an enumeration made in C++, a function of numpy's
        return name
    if top_package(kind.__module__) == "numpy":
        # Limits of a type, a type.
        return repr(value) if hasattr(value, "itemsize") else str(getattr(value, "dtype", None))
    return None


def made_with(kind: type, value: Any) -> tuple[Any, ...] | None:
    """What an object of the standard library stands for: the referent, or how a context manager is made anew."""
    if issubclass(kind, weakref.ref):
        # What is bound to a method that is held weakly is made anew each time.
        function = value._func_ref() if issubclass(kind, weakref.WeakMethod) else None
        return weakref.ref.__call__(value), function
    if kind in PROXIES:
        try:
            # A proxy passes every question on, and a bound method tells to whom.
            return (value.__repr__.__self__,)
        except (ReferenceError, AttributeError):
            return (None,)
    if issubclass(kind, contextlib._GeneratorContextManager):
        # What it was made with, it forgets when it is entered; as a decorator it is made anew each time.
        return getattr(value, "func", None), getattr(value, "args", None), getattr(value, "kwds", None)
    return None


def is_numpys(kind: type) -> bool:
    """Whether it is a class of numpy's, or made of one."""
    return any(top_package(base.__module__) == "numpy" for base in kind.__mro__)


def memory(value: Any) -> Iterator[Any]:
    """The bytes of an array of numpy's, or a number, in order; of a large array never all at once, if it can be helped."""
    numpy = sys.modules["numpy"]
    if not isinstance(value, numpy.ndarray):
        yield value.tobytes()
        return
    plain = value.view(numpy.ndarray)
    if plain.nbytes == 0:
        return
    if plain.flags.c_contiguous:
        yield plain.reshape(-1).view(numpy.uint8)
        return
    flags, of_each = ["external_loop", "buffered"], [["readonly", "contig"]]
    for chunk in numpy.nditer(plain, flags=flags, op_flags=of_each, order="C", buffersize=_CHUNK):
        yield chunk.tobytes()


def keeps_more(kind: type, *, but: Collection[str] = ()) -> bool:
    """Whether objects of this class keep something in neither `__dict__` nor slots, as what is written in C does.

    What they inherit from the packages `but` is left aside.
    """
    for each in kind.__mro__[:-1]:
        base: Any = each.__base__
        slots = each.__dict__.get("__slots__", ())
        count = len([slots] if isinstance(slots, str) else [*slots])
        count += bool(each.__dictoffset__ and not base.__dictoffset__)
        count += bool(each.__weakrefoffset__ and not base.__weakrefoffset__)
        if each.__basicsize__ - base.__basicsize__ > count * _POINTER and top_package(each.__module__) not in but:
            return True
    return False
