"""Notices, in microseconds, that something a module's identity was computed from has been exchanged.

Why it exists: computing the identity takes milliseconds, and people do change models after the first call: they set an
attribute, replace a helper, load other weights. Each call therefore compares the *objects* in every dict, list, class
and closure the identity looked into with those seen then. Any difference only means: look again properly.

A dict counts its own changes (PEP 509), and the numbers are compared first; so does that of a class. Since Python 3.12 torch
counts them by a watcher, which in Python 3.13 does not hear of attributes that are set through an object: where it is so, the
contents of an object's dict are always compared. What an object is made of, its class and its `__dict__`, is asked of many at
once where the garbage collector's own walk tells just these two.
"""

from __future__ import annotations

import gc
import operator
import sys
from collections import OrderedDict
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

_MISSING = object()
_same = operator.is_


def _dict_version() -> Callable[[dict[Any, Any]], int] | None:
    """The number of changes of a dict, where torch tells it; without a lock of its own, so only under Python's."""
    locked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return getattr(torch._C._dynamo.guards, "dict_version", None) if locked() else None


def _counts_objects(version: Callable[[dict[Any, Any]], int] | None) -> bool:
    """Whether the number of an object's dict also changes with what is done through the object."""
    if version is None:
        return False

    class Probe:
        there = 0

    probe = Probe()
    # An attribute's place is in the object itself until somebody asks for the dict, as all do that watch it.
    numbers = [version(probe.__dict__)]
    probe.there = 1
    numbers.append(version(probe.__dict__))
    probe.there = 2
    numbers.append(version(probe.__dict__))
    del probe.there
    numbers.append(version(probe.__dict__))
    return len(set(numbers)) == len(numbers)


dict_version = _dict_version()
OBJECTS_COUNT = _counts_objects(dict_version)


class Watch:
    """A set of containers and the objects they held. Call `arm` when complete, `unchanged` before each use."""

    def __init__(self, *, version: Callable[[dict[Any, Any]], int] | None = dict_version) -> None:
        self._version = version
        self._dicts: dict[int, dict[Any, Any]] = {}
        self._without: dict[int, Collection[Any]] = {}
        self._of_objects: set[int] = set()
        self._sequences: dict[int, Any] = {}
        self._sets: dict[int, set[Any]] = {}
        self._classes: dict[int, type] = {}
        self._cells: dict[int, types.CellType] = {}
        self._names: dict[tuple[int, str], dict[str, Any]] = {}
        self._objects: dict[int, Any] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._functions: dict[int, types.FunctionType] = {}
        self._slots: list[tuple[Any, str]] = []
        self._read: list[Callable[[], Any]] = []

    def add_dict(self, value: dict[Any, Any]) -> None:
        """Watch keys, values and order of a dict."""
        self._dicts[id(value)] = value
        if isinstance(value, OrderedDict) and value:
            self._sequences[id(value)] = value  # move_to_end changes nothing that a dict knows of

    def add_attributes(self, value: dict[Any, Any], *, without: Collection[Any] = ()) -> None:
        """Watch the `__dict__` of an object; what the keys of `without` hold may be exchanged."""
        self.add_dict(value)
        self._of_objects.add(id(value))
        if without:
            self._without[id(value)] = without

    def add_slot(self, value: Any, name: str) -> None:
        """Watch an attribute that is in no dict."""
        self._slots.append((value, name))

    def add_list(self, value: Any) -> None:
        """Watch the items of a list, or of something else that gives out its very items in order."""
        self._sequences[id(value)] = value

    def add_set(self, value: set[Any]) -> None:
        """Watch the items of a set."""
        self._sets[id(value)] = value

    def add_class(self, value: type) -> None:
        """Watch the attributes of a class, and what it inherits from."""
        self._classes[id(value)] = value

    def add_cell(self, value: types.CellType) -> None:
        """Watch what a closure's variable holds."""
        self._cells[id(value)] = value

    def add_name(self, scope: dict[str, Any], name: str) -> None:
        """Watch one name in a namespace, also one that is not there."""
        self._names[id(scope), name] = scope

    def add_names(self, scope: dict[str, Any], names: Iterable[str]) -> None:
        """As `add_name`, for many."""
        self._names.update(zip(zip(repeat(id(scope)), names), repeat(scope)))

    def add_object(self, value: Any) -> None:
        """Watch of which class an object is, and that it keeps its `__dict__`; the dict itself is another matter."""
        if isinstance(value, torch.nn.Module):
            self._modules[id(value)] = value
        else:
            self._objects[id(value)] = value

    def add_function(self, value: types.FunctionType) -> None:
        """Watch code and defaults of a function, and that it keeps its `__dict__`: notebooks that reload a file change them in place."""
        self._functions[id(value)] = value

    def add_content(self, read: Callable[[], Any]) -> None:
        """Watch something that has no items to compare: `read` gives a plain value, now and before each use."""
        self._read.append(read)

    def arm(self) -> None:
        """Remember what everything holds now."""
        # Most dicts of a module tree are empty and stay so; asking whether any has content is one C loop.
        self._empty = [entry for entry in self._dicts.values() if not entry]
        full = {key: entry for key, entry in self._dicts.items() if entry}
        counts = {key for key in full if OBJECTS_COUNT or key not in self._of_objects}
        classes = list(self._classes.values())
        counted_classes = classes if self._version is not None else []
        counted = [entry for key, entry in full.items() if key in counts]
        self._armed_dicts = _Dicts(
            counted + list(map(_dict_of_class, counted_classes)), self._without, self._names, self._version
        )
        self._compared = _Dicts([entry for key, entry in full.items() if key not in counts], self._without, {}, None)
        self._armed_slots = [(value, name, getattr(value, name, _MISSING)) for value, name in self._slots]
        self._armed_sequences = [(entry, _items(entry)) for entry in self._sequences.values()]
        self._armed_sets = [(entry, set(map(id, entry)), list(entry)) for entry in self._sets.values()]
        compared_classes = [] if counted_classes else classes
        self._armed_classes = [(entry.__dict__, dict(entry.__dict__)) for entry in compared_classes]
        self._armed_kinds, self._bases = classes, list(map(_mro, classes))
        self._armed_cells = [(cell, _content(cell)) for cell in self._cells.values()]
        self._armed_modules = list(self._modules.values())
        self._kinds = list(map(type, self._armed_modules))
        self._spaces = list(map(_module_dict, self._armed_modules))
        self._walked = _walked(self._armed_modules, self._spaces, self._kinds)
        self._armed_objects = [(entry, type(entry), _dict_of(entry)) for entry in self._objects.values()]
        self._armed_functions = list(self._functions.values())
        self._parts = list(chain.from_iterable(map(_parts, self._armed_functions)))
        self._content = [read() for read in self._read]

    def unchanged(self) -> bool:
        """Whether every container still holds the same objects in the same order."""
        return (
            not any(self._empty)
            and self._armed_dicts.unchanged()
            and self._compared.unchanged()
            and self._objects_unchanged()
            and self._rest_unchanged()
        )

    def _objects_unchanged(self) -> bool:
        if self._walked is None:
            modules = all(map(_same, map(_module_dict, self._armed_modules), self._spaces)) and all(
                map(_same, map(type, self._armed_modules), self._kinds)
            )
        else:
            walked = gc.get_referents(*self._armed_modules)
            modules = len(walked) == len(self._walked) and all(map(_same, walked, self._walked))
        return modules and all(
            type(entry) is kind and _dict_of(entry) is space for entry, kind, space in self._armed_objects
        )

    def _rest_unchanged(self) -> bool:
        for space, before in self._armed_classes:
            if len(space) != len(before) or not all(map(_same, space.values(), before.values())):
                return False
        if not all(map(_same, map(_mro, self._armed_kinds), self._bases)):
            return False
        if not all(map(_same, chain.from_iterable(map(_parts, self._armed_functions)), self._parts)):
            return False
        for entry, held in self._armed_sequences:
            items = _items(entry)
            if len(items) != len(held) or not all(map(_same, items, held)):
                return False
        if not all(len(entry) == len(ids) and set(map(id, entry)) == ids for entry, ids, _ in self._armed_sets):
            return False
        if not all(_content(cell) is content for cell, content in self._armed_cells):
            return False
        if not all(getattr(value, name, _MISSING) is held for value, name, held in self._armed_slots):
            return False
        return all(map(operator.eq, [read() for read in self._read], self._content))


class _Dicts:
    """Dicts that are not empty and names in namespaces, with what they held."""

    def __init__(
        self,
        dicts: list[dict[Any, Any]],
        without: Mapping[int, Collection[Any]],
        names: Mapping[tuple[int, str], dict[str, Any]],
        version: Callable[[dict[Any, Any]], int] | None,
    ) -> None:
        self._version = version
        self._dicts = dicts
        self._lengths = list(map(len, dicts))
        getters: dict[Any, Callable[[Any], Sequence[Any]]] = {}
        self._getters = [_getter(tuple(entry), without.get(id(entry), ()), getters) for entry in dicts]
        # Of the others, the keys are known by their number and by asking for each.
        self._ordered = [entry for entry in dicts if id(entry) not in without]
        self._order = list(chain.from_iterable(self._ordered))
        self._values = list(self._held())
        self._scopes = list(names.values())
        self._keys = [name for _, name in names]
        self._named = list(map(dict.get, self._scopes, self._keys, repeat(_MISSING)))
        self._counted = [*dicts, *{id(scope): scope for scope in self._scopes}.values()]
        self._versions = self._count()

    def _count(self) -> list[int] | None:
        return None if self._version is None else list(map(self._version, self._counted))

    def _held(self) -> Iterator[Any]:
        return chain.from_iterable(get(entry) for get, entry in zip(self._getters, self._dicts, strict=True))

    def unchanged(self) -> bool:
        if not self._counted:
            return True
        now = self._count()
        if now is not None and now == self._versions:
            return True
        if list(map(len, self._dicts)) != self._lengths:
            return False
        try:
            if not all(map(_same, self._held(), self._values)):
                return False
        except KeyError:
            return False
        if not all(map(_same, chain.from_iterable(self._ordered), self._order)):
            return False
        if not all(map(_same, map(dict.get, self._scopes, self._keys, repeat(_MISSING)), self._named)):
            return False
        self._versions = now  # counted before looking, so a change since then is still seen
        return True


# Past Module's own __getattr__, which would cost more than all the rest.
_module_dict = torch.nn.Module.__dict__["__dict__"].__get__
_mro = operator.attrgetter("__mro__")
_parts = operator.attrgetter("__code__", "__defaults__", "__kwdefaults__", "__dict__")


def _walked(modules: list[torch.nn.Module], spaces: list[Any], kinds: list[type]) -> list[Any] | None:
    """Dict and class of one module after the other, where the garbage collector's walk tells these and no more.

    It is one loop in C over all of them. Since Python 3.13 it also tells what each attribute holds.
    """
    walked = gc.get_referents(*modules)
    expected = list(chain.from_iterable(zip(spaces, kinds, strict=True)))
    return expected if len(walked) == len(expected) and all(map(_same, walked, expected)) else None


def _dict_of_class(value: type) -> dict[str, Any]:
    """What is behind the view that `__dict__` of a class is: only a dict counts its changes."""
    (space,) = gc.get_referents(value.__dict__)
    return space  # type: ignore[no-any-return]


def _dict_of(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _items(value: Any) -> Sequence[Any]:
    return list(chain.from_iterable(OrderedDict.items(value))) if isinstance(value, OrderedDict) else list(value)


def _getter(
    keys: tuple[Any, ...], without: Collection[Any], known: dict[Any, Callable[[Any], Sequence[Any]]]
) -> Callable[[Any], Sequence[Any]]:
    """What takes the values of `keys` but those of `without` out of a dict, one function for the many dicts with the same keys."""
    name = keys, id(without)  # `without` lives as long as the dicts that are looked at
    found = known.get(name)
    if found is None:
        wanted = [key for key in keys if key not in without]
        found = known[name] = (
            operator.itemgetter(*wanted) if len(wanted) > 1 else lambda entry: [entry[key] for key in wanted]
        )
    return found
