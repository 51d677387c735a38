"""The digest of values that are not plain: sets, numbers of numpy, enums, partials, and objects by what they keep.

Why it exists: a model's settings sit in objects of every make, from command line options to distributions. For each kind
there is one thing that is its content; where there is none, `unknown` says so. Plain values: see `values`.
"""

from __future__ import annotations

import enum
import functools
import re
import sys
import types
from collections import deque
from typing import Any

import torch

from .libraries import is_opaque, top_package
from .values import MAX_TENSOR_BYTES, SCALARS, ValueDigest

_REPR_IS_CONTENT = ("decimal", "fractions", "datetime", "pathlib", "uuid", "_pydatetime", "_pydecimal")
#: Tools of the process, not of the model: only that there is one is looked at.
_TOOLS = frozenset(
    {
        "logging", "threading", "_thread", "weakref", "_weakref", "contextlib", "warnings", "typing", "abc", "io", "_io",
        "multiprocessing", "concurrent", "asyncio", "socket", "subprocess", "ctypes", "_ctypes", "tempfile", "itertools",
    }
)  # fmt: skip
_BUILTIN_CALLABLES: tuple[type, ...] = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)


class ObjectDigest(ValueDigest):
    """A digest that may hold any value but code; see `code`."""

    def _rare(self, kind: type, value: Any) -> bool:
        """Values whose content has a form of its own; False when `value` is an ordinary object."""
        if kind in (set, frozenset):
            parts = sorted(self._alone(item) for item in value)
            self.put(kind.__name__, parts)
            if kind is set:
                self.watch.add_set(value)
        elif kind is deque:
            self.put("at most", value.maxlen)
            self._sequence(kind, value)
        elif kind is types.MappingProxyType:
            self.value(dict(value))
            self.watch.add_list(value.values())
        elif kind is bytearray or (kind.__module__ == "array" and kind.__name__ == "array"):
            self.put(kind.__name__, getattr(value, "typecode", ""))
            self._hash.update(bytes(value))
            self.watch.add_content(lambda: bytes(value))
        elif isinstance(value, enum.Enum):
            self.put("enum", kind.__qualname__, value.name)
            if isinstance(value._value_, SCALARS):
                self.put(value._value_)
        elif isinstance(value, types.ModuleType):
            self.put("import", value.__name__ if is_opaque(value.__name__) else value.__name__.rpartition(".")[2])
        elif isinstance(value, types.MethodType):
            self.value(value.__func__)
            self.value(value.__self__)
        elif isinstance(value, staticmethod | classmethod):
            self.value(value.__func__)
        elif isinstance(value, property):
            for part in (value.fget, value.fset):
                self.value(part)
        elif isinstance(value, types.UnionType | types.GenericAlias):
            self.put("type", type(value).__name__)
            self.value(value.__args__)
        elif isinstance(value, functools.partial):
            self.put("partial")
            self.value(value.func)
            self.value(value.args)
            self.value(value.keywords)
        elif isinstance(value, torch.dtype | torch.device | torch.memory_format | torch.layout | range | slice):
            self.put(str(value))
        elif isinstance(value, re.Pattern):
            self.put("pattern", value.pattern, value.flags)
        elif isinstance(value, _BUILTIN_CALLABLES):
            self.put(
                "builtin",
                getattr(value, "__module__", None),
                getattr(value, "__qualname__", None) or getattr(value, "__name__", None),
            )
        elif hasattr(value, "__wrapped__") and callable(value):
            self.put("wraps", kind.__qualname__)
            self.value(value.__wrapped__)
        elif top_package(kind.__module__) == "numpy" and hasattr(value, "tobytes"):
            self._numpy(kind, value)
        elif top_package(kind.__module__) in _REPR_IS_CONTENT:
            self.put(kind.__qualname__, repr(value))
        else:
            return False
        return True

    def _numpy(self, kind: type, value: Any) -> None:
        self.put("numpy", kind.__name__, str(value.dtype), getattr(value, "shape", ()))
        self._hash.update(value.tobytes())
        if value.nbytes <= MAX_TENSOR_BYTES:
            self.watch.add_content(value.tobytes)

    def _object(self, kind: type, value: Any) -> None:
        if self._again(value):
            return
        self.watch.add_object(value)
        if top_package(kind.__module__) in _TOOLS:
            self.put("object", kind.__module__, kind.__qualname__)
            return
        if is_opaque(kind.__module__):
            self.put("object", kind.__module__, kind.__qualname__)
            # torch's own helpers count on in themselves; of distributions, the parameters are content.
            if top_package(kind.__module__) in sys.stdlib_module_names:
                self._library_object(kind, value)
            elif kind.__module__.startswith("torch.distributions"):
                self._state(kind, value)
            return
        base = next((base for base in (*SCALARS, list, tuple, set, frozenset) if isinstance(value, base)), None)
        if getattr(value, "__dict__", None) is None and not _slots(kind) and base is None:
            self._not_known(f"an object of type {kind.__module__}.{kind.__qualname__}")
            return
        self.put("object")
        self.class_(kind)
        if base in (set, frozenset):
            self.put(sorted(map(self._alone, value)))
            if base is set:
                self.watch.add_set(value)
        elif base in (list, tuple):
            self.value(list(base.__iter__(value)))
            if base is list:
                self.watch.add_list(value)
        elif base is not None:
            self.put(base.__name__, base.__repr__(value))
        self._state(kind, value)

    def _state(self, kind: type, value: Any) -> None:
        """What an object keeps in its `__dict__` and its slots."""
        state = getattr(value, "__dict__", None)
        if state is not None:
            self.watch.add_attributes(state)
            self._dict(state)
        for name in _slots(kind):
            self.put(name)
            self.value(getattr(value, name, None))
            self.watch.add_slot(value, name)

    def _library_object(self, kind: type, value: Any) -> None:
        """An object of the standard library: what it keeps in its `__dict__`, else what it would be copied with."""
        if getattr(value, "__dict__", None) is not None:
            self._state(kind, value)
            return
        try:
            made = value.__reduce_ex__(4)
        except Exception:  # generators, memory views and the like: what they would do next is not to be had
            self._not_known(f"an object of type {kind.__module__}.{kind.__qualname__}")
            return
        # A name; or what it is made with, its state, and what is put into it.
        self.value(made if isinstance(made, str) else [*made[1:3], *map(list, filter(None, made[3:5]))])


def _slots(kind: type) -> list[str]:
    found = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names = [slots] if isinstance(slots, str) else list(slots)
        found += [
            f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
            for name in names
            if name not in ("__dict__", "__weakref__")
        ]
    return found
