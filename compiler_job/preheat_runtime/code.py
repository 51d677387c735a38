"""A digest of Python code and of the values it refers to, equal in every process that would compute the same.

Why it exists: source text is slow to read and often absent, and says nothing of a helper that was replaced or a global
that was set. What is hashed here is the compiled code, the constants in it, and, followed transitively outside torch, the
standard library and installed packages (see `libraries`), every function, class and value it can reach by name. File names, line numbers and the name of
the module a class was imported from are left out, so that `model.Net` and `__main__.Net` are the same.

What has no content that can be compared between processes is collected in `unknown`. Every dict, list and class that
was looked into is kept in `watch`, so that a later call can tell in microseconds that nothing was exchanged.
"""

from __future__ import annotations

import ctypes
import enum
import functools
import hashlib
import re
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from .libraries import OF_THE_PROCESS, foreign_parts, release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .watch import Watch

#: Large libraries that a model does not change; their version stands for their content.
OPAQUE_PACKAGES = frozenset({"torch", "numpy", "scipy", "sympy", "triton", "PIL", "preheat_runtime"})
#: More than this many values, and the walk gives up: the module is then not recognised, which is safe.
MAX_NODES = 50_000
#: Plain tensors up to this many bytes are hashed by content: code may branch on them while it is traced.
MAX_TENSOR_BYTES = 1 << 16

_BORING_CLASS_ATTRIBUTES = frozenset(
    {
        "__doc__", "__dict__", "__weakref__", "__module__", "__annotations__", "__firstlineno__",
        "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__",
        "_abc_impl", "__orig_bases__", "__parameters__", "__dataclass_fields__", "__dataclass_params__", "__qualname__",
        "__slotnames__",
    }
)  # fmt: skip
_REPR_IS_CONTENT = ("decimal", "fractions", "datetime", "pathlib", "uuid", "_pydatetime", "_pydecimal")


def top_package(module_name: str | None) -> str:
    """First part of a dotted module name."""
    return (module_name or "").partition(".")[0]


def is_opaque(module_name: str | None) -> bool:
    """Whether code of this module is taken by name instead of by content."""
    top = top_package(module_name)
    return top in OPAQUE_PACKAGES or top in sys.stdlib_module_names


def origins(value: Any) -> tuple[str | None, ...]:
    """The modules that a function or class is of: what `functools.wraps` puts on it, and where its code really is."""
    if type(value) is types.FunctionType:
        return value.__module__, value.__globals__.get("__name__")
    return (value.__module__,)


def is_users(value: Any) -> bool:
    """Whether a function or class is somebody's own: neither all opaque nor all of installed packages."""
    return any(not is_opaque(name) and release(top_package(name)) is None for name in origins(value))


class CodeDigest:
    """One digest being made.

    `modules` and `tensors` map ids of submodules, parameters and buffers to their paths in the tree that is described.
    """

    def __init__(self, *, watch: Watch, modules: dict[int, str], tensors: dict[int, str]) -> None:
        self.unknown: list[str] = []
        self._watch = watch
        self._modules = modules
        self._tensors = tensors
        # Code refers to code in chains far longer than Python's stack is deep, so it waits here for its turn.
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._seen: dict[int, int] = {}
        self._scanned: set[str] = set()
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
        if kind in _PLAIN_VALUES:
            self.put(kind.__name__, value)
        elif kind in (tuple, list, torch.Size):
            self._sequence(kind, value)
        elif isinstance(value, dict):
            self._dict(value)
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

    def _sequence(self, kind: type, value: Iterable[Any]) -> None:
        items = list(value)
        # Whether two places hold the same tuple or two equal ones means nothing, and torch.export makes the former the latter.
        if (kind is list or not all(type(item) in _PLAIN_VALUES for item in items)) and self._again(value):
            return
        self.put(kind.__name__, len(items))
        if kind is list:
            self._watch.add_list(value)  # type: ignore[arg-type]
        for item in items:
            self.value(item)

    def _dict(self, value: dict[Any, Any]) -> None:
        if self._again(value):
            return
        self.put("dict", type(value).__name__, len(value))
        self._watch.add_dict(value)
        for key, item in value.items():
            if key not in OF_THE_PROCESS:
                self.value(key)
                self.value(item)

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
            plain = value.detach()
            self.put(plain.stride())
            size = plain.numel() * plain.element_size()
            if 0 < size <= MAX_TENSOR_BYTES:
                plain = plain.resolve_conj().resolve_neg().contiguous()
                self._hash.update(ctypes.string_at(plain.data_ptr(), size))

    def _rare(self, kind: type, value: Any) -> bool:
        """Values whose content has a form of its own; False when `value` is an ordinary object."""
        if kind in (set, frozenset):
            parts = sorted(self._alone(item) for item in value)
            self.put(kind.__name__, parts)
        elif isinstance(value, enum.Enum):
            self.put("enum", kind.__qualname__, value.name)
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
            self.put("numpy", kind.__name__, str(value.dtype), getattr(value, "shape", ()))
            self._hash.update(value.tobytes())
        elif top_package(kind.__module__) in _REPR_IS_CONTENT:
            self.put(kind.__qualname__, repr(value))
        else:
            return False
        return True

    def _alone(self, value: Any) -> str:
        part = CodeDigest(watch=self._watch, modules=self._modules, tensors=self._tensors)
        part.value(value)
        digest = part.hexdigest()
        self.unknown += part.unknown
        return digest

    def _object(self, kind: type, value: Any) -> None:
        if self._again(value):
            return
        if is_opaque(kind.__module__) and kind.__module__ != "types":
            # Loggers, locks, torch's own helpers: their type is all that is known, and all that is needed.
            self.put("object", kind.__module__, kind.__qualname__)
            return
        state = getattr(value, "__dict__", None)
        slots = [name for base in kind.__mro__ for name in _slots(base)]
        if state is None and not slots:
            self.put("unknown", kind.__qualname__)
            self.unknown.append(f"an object of type {kind.__module__}.{kind.__qualname__}")
            return
        self.put("object")
        self.class_(kind)
        if isinstance(value, list | tuple | set | frozenset):
            self.value(sorted(map(self._alone, value)) if isinstance(value, set | frozenset) else list(value))
        if state:
            self._dict(state)
        for name in slots:
            self.put(name)
            self.value(getattr(value, name, None))

    def class_(self, value: type) -> None:
        """Add a class: by name when it belongs to a library, else by all it is made of."""
        self._later(self._class_body, value)

    def _class_body(self, value: type) -> None:
        if is_opaque(value.__module__):
            self.put("class", value.__module__, value.__qualname__)
            self._foreign_parts(value)
            return
        library = release(top_package(value.__module__))
        self.put("class", value.__module__ if library else None, value.__qualname__, library)
        for base in value.__mro__[1:]:
            self.class_(base)
        self._watch.add_class(value)
        if library is not None:
            self._library_class(value)
            return
        for name, item in sorted(value.__dict__.items()):
            if name not in _BORING_CLASS_ATTRIBUTES:
                self.put("attribute", name)
                self.value(item)

    def _library_class(self, value: type) -> None:
        """What others have put into a class of an installed package, and into the module that defines it."""
        for name, item in sorted(foreign_parts(value, is_users), key=lambda pair: pair[0]):
            self.put("patched", name)
            self.value(item)
        for name, item in sorted(value.__dict__.items()):
            if isinstance(item, types.FunctionType):
                # Swapping two of its own methods leaves no foreign code behind.
                self.put(name, item.__module__, item.__qualname__)
            elif type(item) in _NUMBERS:
                self.put(name, item)
        self._library_module(value.__module__)

    def _library_module(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None or name in self._scanned:
            return
        self._scanned.add(name)
        for key, item in sorted(module.__dict__.items(), key=lambda pair: pair[0]):
            if type(item) is types.FunctionType:
                self._watch.add_name(module.__dict__, key)
                self.put("global", key, item.__module__, item.__qualname__)
                if is_users(item):
                    self.value(item)
            elif type(item) in _NUMBERS:
                self._watch.add_name(module.__dict__, key)
                self.put("global", key, item)
            elif not key.startswith("__") and not issubclass(type(item), types.ModuleType | type):
                for place, found in sorted(foreign_parts(item, is_users), key=lambda pair: pair[0]):
                    self.put("patched", key, place)
                    self.value(found)

    def _foreign_parts(self, value: type) -> None:
        """Methods that somebody put into a class of torch's."""
        if issubclass(value, torch.nn.Module):
            self._watch.add_class(value)
            for name, item in sorted(value.__dict__.items()):
                if type(item) is types.FunctionType and not all(map(is_opaque, origins(item))):
                    self.put("patched", name)
                    self.function(item)

    def function(self, value: Any) -> None:
        """Add a function: its code, defaults, closure, and the globals its code names; of a library its name."""
        self._later(self._function_body, value)

    def _function_body(self, value: Any) -> None:
        if not is_users(value):
            library = None if is_opaque(value.__module__) else release(top_package(value.__module__))
            self.put("function", value.__module__, value.__qualname__, library)
            if library is not None:
                self._library_module(value.__module__)
            return
        code: types.CodeType = value.__code__
        self.put("function")
        self.code(code)
        self.value(value.__defaults__)
        self.value(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                self.put("empty cell")
                continue
            self._watch.add_cell(cell)
            self.value(content)
        if hasattr(value, "__wrapped__"):
            self.value(value.__wrapped__)
        self._globals(value.__globals__, code)

    def code(self, code: types.CodeType) -> None:
        """Add a code object without its file name and lines."""
        self.put(
            "code", code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        )  # fmt: skip
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self.code(const)
            else:
                self.value(const)

    def _globals(self, scope: dict[str, Any], code: types.CodeType) -> None:
        names = _names(code)
        for name in sorted(names):
            if name not in scope:
                continue
            item = scope[name]
            self.put("global", name)
            self._watch.add_name(scope, name)
            if isinstance(item, types.ModuleType):
                self._module_parts(item, names, depth=2)
            else:
                self.value(item)

    def _module_parts(self, module: types.ModuleType, names: set[str], *, depth: int) -> None:
        """What code takes out of a module it names: `helpers.scale`, `package.helpers.scale`."""
        self.value(module)
        if is_opaque(module.__name__) or self._again(module):
            return
        for name in sorted(names & module.__dict__.keys()):
            item = module.__dict__[name]
            self.put("member", name)
            self._watch.add_name(module.__dict__, name)
            if isinstance(item, types.ModuleType):
                if depth:
                    self._module_parts(item, names, depth=depth - 1)
            else:
                self.value(item)
        self._seen.pop(id(module), None)  # other functions take other names out of it


_NUMBERS = (bool, int, float)
_PLAIN_VALUES = frozenset({type(None), bool, int, float, complex, str, bytes})
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
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


def _slots(base: type) -> list[str]:
    slots = base.__dict__.get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


@functools.lru_cache(maxsize=4096)
def _names_of(code: types.CodeType) -> frozenset[str]:
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names |= _names_of(const)
        elif isinstance(const, str) and const.isidentifier():
            names.add(const)  # getattr(module, "name")
    return frozenset(names)


def _names(code: types.CodeType) -> set[str]:
    return set(_names_of(code))


def patched_torch() -> list[tuple[str, Callable[..., Any]]]:
    """Functions in torch's main namespaces that are not torch's own, as somebody replaced them; name and function."""
    found = []
    spaces = (("torch", torch.__dict__), ("torch.nn.functional", torch.nn.functional.__dict__))
    for space, members in (
        *spaces,
        ("torch.Tensor", torch.Tensor.__dict__),
        ("torch.nn.Module", torch.nn.Module.__dict__),
    ):
        for name, item in list(members.items()):
            if type(item) is types.FunctionType and name != "compile" and not all(map(is_opaque, origins(item))):
                found.append((f"{space}.{name}", item))
    return sorted(found, key=lambda pair: pair[0])
