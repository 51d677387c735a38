"""The digest of values that are not plain: sets, numbers of numpy, enums, partials, and objects by what they keep.

Why it exists: a model's settings sit in objects of every make, from command line options to distributions. For each kind
there is one thing that is its content; where there is none, `unknown` says so. Plain values: see `values`.
"""

from __future__ import annotations

import enum
import functools
import operator
import re
import sys
import types
from collections import deque
from typing import Any

import torch

from .contents import is_numpys, keeps_more, made_with, memory, setting
from .libraries import OF_THE_PROCESS, foreign_parts, is_opaque, is_own, is_users, release, top_package
from .outside import let_through
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
#: What may be the better part of an object of somebody's own class.
_BASES = (*SCALARS, list, tuple, set, frozenset, deque, bytearray, BaseException)
#: A bound method that is written in C answers from what it is bound to.
_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)
_BOUND_TO = (*SCALARS, list, tuple, set, frozenset, dict, deque, re.Pattern, types.FunctionType)
#: What `functools.wraps` copies; `model.f` and `__main__.f` are the same.
WRAPPERS_MARKS = frozenset({*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__signature__"})
_NO_STATE = OF_THE_PROCESS | WRAPPERS_MARKS - {"__wrapped__"}


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
            self._enum(kind, value)
        elif isinstance(value, types.ModuleType):
            self.put("import", value.__name__ if is_opaque(value.__name__) else value.__name__.rpartition(".")[2])
        elif isinstance(value, types.MethodType):
            self.value(value.__func__)
            self.value(value.__self__)
        elif isinstance(value, staticmethod | classmethod | property):
            self.put(kind.__name__)
            for part in (value.fget, value.fset) if isinstance(value, property) else (value.__func__,):
                self.value(part)
            self._own(kind, value)
        elif isinstance(value, types.UnionType | types.GenericAlias):
            self.put("type", type(value).__name__)
            self.value(value.__args__)
        elif isinstance(value, functools.partial):
            self.put("partial")
            self.value(value.func)
            self.value(value.args)
            self.value(value.keywords)
            if not self._own(kind, value):
                self._state(kind, value)
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
            held: Any = getattr(value, "__self__", None) if kind in _BOUND else None
            if isinstance(held, _BOUND_TO) or is_own(type(held).__module__):
                self.value(held)
        elif kind is functools._lru_cache_wrapper:
            self.put("wraps", kind.__qualname__)
            self._state(kind, value)
        elif not is_own(kind.__module__) and hasattr(value, "__wrapped__") and callable(value):
            self.put("wraps", kind.__qualname__)
            self.value(value.__wrapped__)
        elif is_numpys(kind) and hasattr(value, "tobytes"):
            self._numpy(kind, value)
        elif top_package(kind.__module__) in _REPR_IS_CONTENT and is_opaque(kind.__module__):
            self.put(kind.__qualname__, repr(value))
        else:
            return False
        return True

    def _numpy(self, kind: type, value: Any) -> None:
        self.put("numpy", kind.__name__, str(value.dtype), getattr(value, "shape", ()))
        if value.dtype.hasobject:
            self._objects_of_numpy(kind, value)
        else:
            for part in memory(value):
                self._hash.update(part)
            if value.nbytes <= MAX_TENSOR_BYTES:
                self.watch.add_content(value.tobytes)
        if kind.__module__.startswith("numpy.ma"):
            self.value(value.mask)
        self._own(kind, value)

    def _objects_of_numpy(self, kind: type, value: Any) -> None:
        if value.dtype.kind != "O":
            self._not_known(f"a {kind.__qualname__} with fields that hold objects")
            return
        held = value.ravel().tolist()
        self.value(held)
        self.watch.add_content(lambda: len(held) == value.size and all(map(operator.is_, held, value.ravel().tolist())))

    def _enum(self, kind: type, value: Any) -> None:
        self.put("enum", kind.__qualname__, value._name_)
        if isinstance(value._value_, SCALARS):
            self.put(value._value_)
        if not is_opaque(kind.__module__):
            self.class_(kind)
            if not self._again(value):
                self.watch.add_object(value)
                self._state(kind, value)

    def _own(self, kind: type, value: Any) -> bool:
        """Class and state of an object with a content of its own, where the class is somebody's own; whether it is."""
        if not is_own(kind.__module__):
            return False
        self.watch.add_object(value)
        self.class_(kind)
        self._state(kind, value)
        return True

    def _object(self, kind: type, value: Any) -> None:
        if self._again(value):
            return
        made = made_with(kind, value)
        if made is not None:
            self.put("object", kind.__qualname__)
            self.watch.add_content(lambda: list(map(id, made_with(kind, value) or ())))
            self.value(made)
            self._own(kind, value)
            return
        self.watch.add_object(value)
        if top_package(kind.__module__) in _TOOLS and is_opaque(kind.__module__):
            self.put("object", kind.__module__, kind.__qualname__)
            return
        if is_opaque(kind.__module__):
            self.put("object", kind.__module__, kind.__qualname__)
            # torch's own helpers count on in themselves; of distributions, the parameters are content.
            if top_package(kind.__module__) in sys.stdlib_module_names:
                self._library_object(kind, value)
            elif kind.__module__.startswith("torch.distributions"):
                self._state(kind, value)
            else:
                self._set_object(kind, value)
            return
        base = next((base for base in _BASES if isinstance(value, base)), None)
        bare = getattr(value, "__dict__", None) is None and not _slots(kind)
        hidden = base is None and not bare and keeps_more(kind, but=_TOOLS)
        if hidden and callable(value) and isinstance(getattr(value, "__qualname__", None), str):
            # A function of Cython's, which has a class of its own.
            self.put("builtin", value.__module__, value.__qualname__, release(top_package(value.__module__)))
        elif base is None and (bare or hidden):
            self._not_known(f"an object of type {kind.__module__}.{kind.__qualname__}")
            return
        self.put("object")
        self.class_(kind)
        if base in (set, frozenset):
            self.put(sorted(map(self._alone, value)))
            if base is set:
                self.watch.add_set(value)
        elif base in (list, tuple, deque):
            self.value(list(base.__iter__(value)))
            if base is deque:
                self.put("at most", value.maxlen)
            if base is not tuple:
                self.watch.add_list(value)
        elif base is bytearray:
            self.value(bytes(memoryview(value)))
            self.watch.add_content(lambda: bytes(memoryview(value)))
        elif base is BaseException:
            self.value(value.args)
        elif base is not None:
            self.put(base.__name__, base.__repr__(value))
        self._state(kind, value)

    def _set_object(self, kind: type, value: Any) -> None:
        """An object of torch's or numpy's: what it is set to, and what code of somebody's own it holds."""
        plain = setting(kind, value)
        if plain is not None:
            self.put(plain)
            self.watch.add_content(functools.partial(setting, kind, value))
        state = getattr(value, "__dict__", None)
        for place, found in sorted(foreign_parts(value, is_users), key=lambda pair: pair[0]):
            if state:
                self.watch.add_attributes(state)
            self.put(place)
            self.value(found)

    def _state(self, kind: type, value: Any) -> None:
        """What an object keeps in its `__dict__` and its slots."""
        state = getattr(value, "__dict__", None)
        if state is not None:
            self.watch.add_attributes(state)
            self._dict(state, _NO_STATE)
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
        except Exception as error:  # generators, memory views and the like: what they would do next is not to be had
            let_through(error)
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
