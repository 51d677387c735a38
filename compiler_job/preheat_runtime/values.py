"""A digest of values: attributes of modules, constants of code, what a global holds, transitively.

Why it exists: what a package baked in is mostly a number in an attribute, or in an object in a list in an attribute. Two
processes must agree on the digest exactly if their values are the same, so content counts, and where there is none that
could be compared, `unknown` says so. What was looked into is kept in `watch`. Classes and functions: see `code`.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import hashlib
import re
import sys
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from .libraries import OF_THE_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .watch import Watch

#: Large libraries that a model does not change; their version stands for their content.
OPAQUE_PACKAGES = frozenset({"torch", "numpy", "scipy", "sympy", "triton", "PIL", "preheat_runtime"})
#: More than this many values, and the walk gives up: the module is then not recognised, which is safe.
MAX_NODES = 50_000
#: Plain tensors up to this many bytes are hashed by content: code may branch on them while it is traced.
MAX_TENSOR_BYTES = 1 << 16

_REPR_IS_CONTENT = ("decimal", "fractions", "datetime", "pathlib", "uuid", "_pydatetime", "_pydecimal")
#: Tools of the process, not of the model: only that there is one is looked at.
_TOOLS = frozenset(
    {
        "logging", "threading", "_thread", "weakref", "_weakref", "contextlib", "warnings", "typing", "abc", "io", "_io",
        "multiprocessing", "concurrent", "asyncio", "socket", "subprocess", "ctypes", "_ctypes", "tempfile", "itertools",
    }
)  # fmt: skip
_SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod, torch._C.ScriptObject)
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


def top_package(module_name: str | None) -> str:
    """First part of a dotted module name."""
    return (module_name or "").partition(".")[0]


@functools.lru_cache(maxsize=4096)
def is_opaque(module_name: str | None) -> bool:
    """Whether code of this module is taken by name instead of by content."""
    top = top_package(module_name)
    return top in OPAQUE_PACKAGES or top in sys.stdlib_module_names


class ValueDigest:
    """One digest being made.

    `modules` and `tensors` map ids of submodules, parameters and buffers to their paths in the tree that is described.
    """

    def __init__(self, *, watch: Watch, modules: dict[int, str], tensors: dict[int, str]) -> None:
        self.unknown: list[str] = []
        self.watch = watch
        self._modules = modules
        self._tensors = tensors
        # Code refers to code in chains far longer than Python's stack is deep, so it waits here for its turn.
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._seen: dict[int, int] = {}
        self._keep: list[object] = []  # an id is only valid while its object lives
        self._hash = hashlib.sha256()

    def hexdigest(self) -> str:
        """128 bits are plenty against accidents, and keep target.json small."""
        while self._waiting:
            visit, value = self._waiting.popleft()
            visit(value)
        return self._hash.hexdigest()[:32]

    def put(self, *parts: object) -> None:
        """Add plain values."""
        self._hash.update(repr(parts).encode("utf-8", "surrogatepass"))

    def class_(self, value: type) -> None:
        """Add a class: by name when it belongs to a library, else by all it is made of."""
        raise NotImplementedError

    def function(self, value: Any) -> None:
        """Add a function: its code, defaults, closure, and the globals its code names; of a library its name."""
        raise NotImplementedError

    def _again(self, value: object) -> bool:
        """Whether the value was met before; writes a back reference if so."""
        number = self._seen.get(id(value))
        if number is not None:
            self.put("again", number)
            return True
        if len(self._seen) >= MAX_NODES:
            raise RecursionError(f"the module refers to more than {MAX_NODES} values")
        self._seen[id(value)] = len(self._seen)
        self._keep.append(value)
        return False

    def _later(self, visit: Callable[[Any], None], value: Any) -> None:
        if not self._again(value):
            self.put("later", self._seen[id(value)])
            self._waiting.append((visit, value))

    def value(self, value: Any) -> None:
        """Add any value; the order of the tests is from the frequent to the rare."""
        kind = type(value)
        if value is None or kind in _SCALARS:
            self.put(kind.__name__, value)
        elif kind in (tuple, list, torch.Size):
            self._sequence(kind, value)
        elif isinstance(value, dict):
            self._dict(value)
        elif isinstance(value, _SCRIPTED):
            self._not_known(f"a {kind.__qualname__}, which is scripted: code")
        elif isinstance(value, torch.nn.Module):
            self._module(value)
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif kind is types.FunctionType:
            self.function(value)
        elif isinstance(value, type):
            self.class_(value)
        elif not self._rare(kind, value):
            self._object(kind, value)

    def _not_known(self, what: str) -> None:
        self.put("unknown", what)
        self.unknown.append(what)

    def _sequence(self, kind: type, value: Iterable[Any]) -> None:
        items = list(value)
        # Whether two places hold the same tuple or two equal ones means nothing, and torch.export makes the former the latter.
        plain = kind in (tuple, torch.Size) and all(item is None or type(item) in _SCALARS for item in items)
        if not plain and self._again(value):
            return
        self.put(kind.__name__, len(items))
        if kind in (list, deque):
            self.watch.add_list(value)
        for item in items:
            self.value(item)

    def _dict(self, value: dict[Any, Any]) -> None:
        if self._again(value):
            return
        kind = type(value)
        self.put("dict", kind.__name__, len(value))
        self.watch.add_dict(value)
        for key, item in (OrderedDict if isinstance(value, OrderedDict) else dict).items(value):
            if key not in OF_THE_PROCESS:
                self.value(key)
                self.value(item)
        if kind is defaultdict:
            self.value(value.default_factory)  # type: ignore[attr-defined]
        elif not is_opaque(kind.__module__):
            # A dict of somebody's own class answers in its own way.
            self.watch.add_object(value)
            self.class_(kind)
            self._state(kind, value)

    def _module(self, value: torch.nn.Module) -> None:
        path = self._modules.get(id(value))
        self.put("module", path)
        if path is None:
            self.unknown.append(f"a {type(value).__qualname__} that is not registered as a submodule")

    def _tensor(self, value: torch.Tensor) -> None:
        path = self._tensors.get(id(value))
        if path is not None:
            # A weight in a second place, as recurrent layers keep theirs: the pod's own is used, whatever it holds.
            self.put("weight", path)
            return
        self.put("tensor", tuple(value.shape), str(value.dtype), str(value.device), str(value.layout))
        if value.device.type == "cpu" and value.layout is torch.strided and type(value) in _PLAIN_TENSORS:
            self.put(value.stride())
            if 0 < value.numel() * value.element_size() <= MAX_TENSOR_BYTES:
                read = functools.partial(_bytes_of, value)
                self._hash.update(read())
                self.watch.add_content(read)

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
            if isinstance(value._value_, _SCALARS):
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

    def _alone(self, value: Any) -> str:
        part = type(self)(watch=self.watch, modules=self._modules, tensors=self._tensors)
        part.value(value)
        digest = part.hexdigest()
        self.unknown += part.unknown
        return digest

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
        base = next((base for base in (*_SCALARS, list, tuple, set, frozenset) if isinstance(value, base)), None)
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


def _bytes_of(value: torch.Tensor) -> bytes:
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())


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
