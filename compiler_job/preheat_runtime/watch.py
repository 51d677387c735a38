"""Notices, in microseconds, that something a module's identity was computed from has been exchanged.

Why it exists: computing the identity takes milliseconds, and people do change models after the first call: they set an
attribute, replace a helper, load other weights. Each call therefore compares the *objects* in every dict, list, class
and closure the identity looked into with those seen then. Any difference only means: look again properly.
"""

from __future__ import annotations

import operator
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types

_MISSING = object()


class Watch:
    """A set of containers and the objects they held. Call `arm` when complete, `unchanged` before each use."""

    def __init__(self) -> None:
        self._dicts: dict[int, dict[Any, Any]] = {}
        self._lists: dict[int, list[Any]] = {}
        self._classes: dict[int, type] = {}
        self._cells: dict[int, types.CellType] = {}
        self._names: dict[tuple[int, str], dict[str, Any]] = {}
        self._empty: list[dict[Any, Any]] = []

    def add_dict(self, value: dict[Any, Any]) -> None:
        """Watch keys and values of a dict."""
        self._dicts[id(value)] = value

    def add_list(self, value: list[Any]) -> None:
        """Watch the items of a list."""
        self._lists[id(value)] = value

    def add_class(self, value: type) -> None:
        """Watch the attributes of a class."""
        self._classes[id(value)] = value

    def add_cell(self, value: types.CellType) -> None:
        """Watch what a closure's variable holds."""
        self._cells[id(value)] = value

    def add_name(self, scope: dict[str, Any], name: str) -> None:
        """Watch one name in a namespace."""
        self._names[id(scope), name] = scope

    def arm(self) -> None:
        """Remember what everything holds now."""
        dicts = list(self._dicts.values())
        # Most dicts of a module tree are empty and stay so; asking whether any has content is one C loop.
        self._empty = [entry for entry in dicts if not entry]
        self._full = [entry for entry in dicts if entry]
        self._values = [value for entry in self._full for value in entry.values()]
        self._lengths = list(map(len, self._full))
        self._armed_lists = [(entry, list(entry)) for entry in self._lists.values()]
        self._scopes = list(self._names.values())
        self._keys = [name for _, name in self._names]
        self._named = [scope.get(name, _MISSING) for scope, name in zip(self._scopes, self._keys, strict=True)]
        self._armed_classes = [(entry.__dict__, list(entry.__dict__.values())) for entry in self._classes.values()]
        self._armed_cells = [(cell, cell.cell_contents) for cell in self._cells.values()]

    def unchanged(self) -> bool:
        """Whether every container still holds the same objects in the same order."""
        same = operator.is_
        if any(self._empty) or list(map(len, self._full)) != self._lengths:
            return False
        if not all(map(same, chain.from_iterable(map(dict.values, self._full)), self._values)):
            return False
        if not all(map(same, map(dict.get, self._scopes, self._keys), self._named)):
            return False
        for items, before in chain(self._armed_lists, ((space.values(), kept) for space, kept in self._armed_classes)):
            if len(items) != len(before) or not all(map(same, items, before)):
                return False
        return all(cell.cell_contents is content for cell, content in self._armed_cells)
