"""A digest of Python code and of the values it refers to, equal in every process that would compute the same.

Why it exists: source text is slow to read and often absent, and says nothing of a helper that was replaced or a global
that was set. What is hashed here is the compiled code, the constants in it, and, followed transitively outside torch, the
standard library and installed packages (see `libraries`), every function, class and value it can reach by name. File names, line numbers and the name of
the module a class was imported from are left out, so that `model.Net` and `__main__.Net` are the same.

What has no content that can be compared between processes is collected in `unknown`. Every dict, list and class that
was looked into is kept in `watch`, so that a later call can tell in microseconds that nothing was exchanged.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from . import questions
from .imports import modules_of
from .libraries import foreign_parts, is_opaque, is_own, is_users, release, top_package
from .objects import WRAPPERS_MARKS, ObjectDigest
from .patches import is_foreign, is_ours, is_plain, is_put_in

if TYPE_CHECKING:
    from .watch import Watch

_BORING_CLASS_ATTRIBUTES = frozenset(
    {
        "__doc__", "__dict__", "__weakref__", "__module__", "__annotations__", "__firstlineno__",
        "__static_attributes__", "__annotate__", "__annotate_func__", "__annotations_cache__", "__abstractmethods__",
        "_abc_impl", "__orig_bases__", "__parameters__", "__dataclass_fields__", "__dataclass_params__", "__qualname__",
        "__slotnames__", "__classdictcell__",
        # What an enumeration knows its members by, which grows where it is of flags.
        "_value2member_map_", "_hashable_values_", "_unhashable_values_", "_unhashable_values_map_",
    }
)  # fmt: skip


#: Code that names one of these may go through weights in their order.
_WEIGHTS_IN_ORDER = frozenset(
    {
        "parameters",
        "named_parameters",
        "_parameters",
        "buffers",
        "named_buffers",
        "_buffers",
        "_named_members",
        "state_dict",
    }
)


class Found:
    """What digests come upon that is to be looked at on its own."""

    def __init__(self) -> None:
        self.imported: set[tuple[str, frozenset[str]]] = set()
        """Modules that functions import when they run, each with the names that may be taken out of it."""
        self.in_order = False
        """Whether some code may go through a module's weights, so that their order counts."""
        self.asked: dict[str, str] = {}
        """What code asks torch about the process, by its full name, with the `file:line` of one such place."""
        self.only_make: set[types.CodeType] = set()
        """Code that makes modules and runs in no call of theirs: what it asked for is in their attributes."""

    def ask(self, code: types.CodeType, scope: dict[str, Any], names: frozenset[str]) -> None:
        """Note what code asks."""
        if code not in self.only_make:
            for name, line in questions.asked(code, scope, names):
                self.asked.setdefault(name, f"{code.co_filename}:{line}")


class CodeDigest(ObjectDigest):
    """A digest that may also hold classes and functions, which is what modules are made of."""

    def __init__(
        self, *, watch: Watch, modules: dict[int, str], tensors: dict[int, str], found: Found | None = None
    ) -> None:
        super().__init__(watch=watch, modules=modules, tensors=tensors)
        self._scanned: set[str] = set()
        self._found = Found() if found is None else found

    def _another(self) -> CodeDigest:
        return CodeDigest(watch=self.watch, modules=self._modules, tensors=self._tensors, found=self._found)

    def module_parts(self, module: Any, names: frozenset[str]) -> None:
        """Add what code of these names may take out of a module."""
        self._named(module, set(names), set())

    def class_(self, value: type) -> None:
        """Add a class: by name when it belongs to a library, else by all it is made of."""
        self._later(self._class_body, value)

    def _class_body(self, value: type) -> None:
        if is_opaque(value.__module__):
            if questions.is_distributed(value.__module__):
                self._found.asked.setdefault(questions.full_name(value), "")
            self.put("class", value.__module__, value.__qualname__)
            self._foreign_parts(value)
            return
        library = release(top_package(value.__module__))
        self.put("class", value.__module__ if library else None, value.__qualname__, library)
        for base in value.__mro__[1:]:
            self.class_(base)
        if type(value) is not type:
            self.class_(type(value))
        self.watch.add_class(value)
        if library is not None:
            self._found.in_order = True  # for all that is known of its code
            self._library_class(value)
            return
        made = value.__dict__.get("__init__")
        if issubclass(value, torch.nn.Module) and type(made) is types.FunctionType:
            self._found.only_make.add(made.__code__)
        for name, item in sorted(value.__dict__.items()):
            if name not in _BORING_CLASS_ATTRIBUTES and not is_ours(name, item):
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
                self.watch.add_name(module.__dict__, key)
                self.put("global", key, item.__module__, item.__qualname__)
                if is_users(item):
                    self.value(item)
            elif type(item) in _NUMBERS:
                self.watch.add_name(module.__dict__, key)
                self.put("global", key, item)
            elif not key.startswith("__") and not issubclass(type(item), types.ModuleType | type):
                for place, found in sorted(foreign_parts(item, is_users), key=lambda pair: pair[0]):
                    self.put("patched", key, place)
                    self.value(found)

    def _foreign_parts(self, value: type) -> None:
        """What somebody put into a class of torch's: methods and properties; and numbers, whoever did."""
        if issubclass(value, torch.nn.Module) and value is not torch.nn.Module:  # which is looked at for all: see below
            self.watch.add_class(value)
            for base in value.__mro__[1:]:
                self.class_(base)
            for name, item in sorted(value.__dict__.items()):
                if is_put_in(name, item):
                    self.put("patched", name)
                    self.value(item)

    def function(self, value: Any) -> None:
        """Add a function: its code, defaults, closure, and the globals its code names; of a library its name."""
        self._later(self._function_body, value)

    def _function_body(self, value: Any) -> None:
        if not is_users(value):
            library = None if is_opaque(value.__module__) else release(top_package(value.__module__))
            if questions.is_distributed(value.__module__ or ""):
                self._found.asked.setdefault(questions.full_name(value), "")
            self.put("function", value.__module__, value.__qualname__, library)
            if library is not None:
                self._library_module(value.__module__)
            if value.__closure__:
                self._handed_over(value.__closure__)
            return
        code: types.CodeType = value.__code__
        self.watch.add_function(value)
        self.put("function")
        self.code(code)
        self.value(value.__defaults__)
        self.value(value.__kwdefaults__)
        for cell in value.__closure__ or ():
            self.watch.add_cell(cell)
            try:
                content = cell.cell_contents
            except ValueError:
                self.put("empty cell")
                continue
            self.value(content)
        if hasattr(value, "__wrapped__"):
            self.value(value.__wrapped__)
        self._attributes_of_function(value)
        self._globals(value.__globals__, code)
        names = _names_of(code)
        self._found.ask(code, value.__globals__, names)
        self._found.in_order = self._found.in_order or not names.isdisjoint(_WEIGHTS_IN_ORDER)
        for name in modules_of(code, value.__globals__):
            self._found.imported.add((name, names))

    def _handed_over(self, cells: tuple[types.CellType, ...]) -> None:
        """What a library's function was made with: somebody's own code, or plain values such as a factor."""
        for cell in cells:
            self.watch.add_cell(cell)
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            if is_plain(held) or is_own(type(held).__module__) or is_foreign(held):
                self.value(held)

    def _attributes_of_function(self, value: Any) -> None:
        """What somebody keeps in a function: `act.slope`, or what `functools.singledispatch` chooses from."""
        held = value.__dict__
        self.watch.add_attributes(held)
        for name in sorted(held.keys() - WRAPPERS_MARKS):
            if not name.startswith("_torchdynamo"):  # torch's own marks, which come when it first looks at the function
                self.put("attribute", name)
                self.value(held[name])

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
                self._builtin(scope, name)
                continue
            item = scope[name]
            self.put("global", name)
            self.watch.add_name(scope, name)
            self._named(item, names, set())

    def _named(self, item: Any, names: set[str], visited: set[int]) -> None:
        """What a name stands for; of a module, what code of these names may take out of it."""
        if isinstance(item, types.ModuleType):
            self._module_parts(item, names, visited)
        else:
            self.value(item)

    def _builtin(self, scope: dict[str, Any], name: str) -> None:
        """Python's own function of that name, as long as nobody puts another one in front of it or in its place."""
        item = builtins.__dict__.get(name)
        if item is not None:
            self.watch.add_name(scope, name)
            self.watch.add_name(builtins.__dict__, name)
            if type(item) is types.FunctionType and is_users(item):
                self.put("builtin", name)
                self.function(item)

    def _module_parts(self, module: types.ModuleType, names: set[str], visited: set[int]) -> None:
        """What code takes out of a module it names: `helpers.scale`, `package.helpers.scale`."""
        self.value(module)
        if is_opaque(module.__name__) or id(module) in visited:
            return
        visited.add(id(module))
        space = module.__dict__
        for name in sorted(names & space.keys()):
            self.put("member", name)
            self.watch.add_name(space, name)
            self._named(space[name], names, visited)
        if is_own(module.__name__):
            self.watch.add_name(space, "__getattr__")
            if "__getattr__" in space:  # it answers for names that are not there
                self.value(space["__getattr__"])
            if type(module) is not types.ModuleType:
                self.class_(type(module))


_NUMBERS = (bool, int, float)


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
