"""Notices, in a microsecond or two, that what one submodule reads was exchanged since its module was described.

Why it exists: a module that is served in regions runs its own Python between them, which may set something on a submodule for
the time of the call, and set it back at its end; or call it with other weights, as `torch.func.functional_call` does. So each
region is looked at when it is asked: what it keeps, and classes and names of the user's own code. What a forward hardly sets, and
would cost more than all of that to look at (addresses of weights, the code of functions, torch itself), the compile Job looks at,
at each region of each call: see `opened`.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from .libraries import is_opaque
from .watch import OBJECTS_COUNT, Watch, _dict_of_class, _Dicts

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_MISSING = object()
#: What has no parts to be watched; most of what modules hold.
_PLAIN = frozenset({type(None), bool, int, float, str, torch.Tensor, torch.nn.Parameter})


class Surroundings:
    """Of what a module's watch holds, what is looked at for each of its submodules."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.classes = {key: kind for key, kind in watch._classes.items() if not is_opaque(kind.__module__)}
        scopes = {id(scope): scope for scope in watch._names.values()}
        own = {key for key, scope in scopes.items() if _is_own(scope)}
        self.names = {key: scope for key, scope in watch._names.items() if key[0] in own}
        closures = (function.__closure__ or () for function in watch._functions.values())
        filled = [cell for cell in chain.from_iterable(closures) if _is_filled(cell)]
        # What holds a function or a class is hardly written to; a variable of a factory may be.
        self.cells = {id(cell): cell for cell in filled if not callable(cell.cell_contents)}
        roots = [scope.get(name) for (_, name), scope in self.names.items()]
        roots += [cell.cell_contents for cell in filled]
        roots += [value for kind in self.classes.values() for value in list(kind.__dict__.values())]
        self.held = _reached(watch, [value for value in roots if id(value) not in watch._modules], into_modules=False)
        """What these lead to, but modules: a setting in a global dict, a list of a class."""


class Part:
    """What is watched of one submodule, as of now. `unchanged` before each use."""

    def __init__(self, around: Surroundings, block: torch.nn.Module) -> None:
        watch = around.watch
        self._version = watch._version
        self._without = watch._without
        reached = {**around.held, **_reached(watch, [block])}
        dicts = {place: value for place, value in reached.items() if place in watch._dicts}
        self._empty = [value for value in dicts.values() if not value]
        full = [value for value in dicts.values() if value]
        counts = self._version is not None and OBJECTS_COUNT
        objects = [] if counts else [value for value in full if id(value) in watch._of_objects]
        # Contents are compared at each look where the number of changes leaves some out; else once that differs.
        self._compared = _Dicts(objects, watch._without, {}, None) if objects else None
        classes = {base for value in reached.values() for base in type(value).__mro__ if id(base) in around.classes}
        full += map(_dict_of_class, classes)
        compared = set(map(id, objects))
        full = [value for value in full if id(value) not in compared]
        self._held = [(value, value.copy()) for value in full]
        self._names = [(scope, name, scope.get(name, _MISSING)) for (_, name), scope in around.names.items()]
        scopes = {id(scope): scope for scope, _, _ in self._names}
        self._counted = [*full, *scopes.values()]
        self._versions = self._count()
        self._rest = _rest(around, reached)

    def _count(self) -> list[int]:
        return list(map(self._version, self._counted)) if self._version is not None else []

    def unchanged(self) -> bool:
        """Whether all of it still holds the same objects in the same order."""
        now = self._count()
        if now != self._versions or self._version is None:
            if not self._same():
                return False
            self._versions = now  # counted before looking, so a change since then is still seen
        return (
            not any(self._empty)
            and (self._compared is None or self._compared.unchanged())
            and (self._rest is None or self._rest.unchanged())
        )

    def _same(self) -> bool:
        for value, before in self._held:
            without: Collection[Any] = self._without.get(id(value), ())
            if list(value) != list(before) and (not without or value.keys() != before.keys()):
                return False
            if any(value.get(key, _MISSING) is not held and key not in without for key, held in before.items()):
                return False
        return all(scope.get(name, _MISSING) is held for scope, name, held in self._names)


def _rest(around: Surroundings, reached: Mapping[int, Any]) -> Watch | None:
    """A watch of what are no dicts; None where there is nothing."""
    watch = around.watch
    made = Watch(version=None)
    for place, value in reached.items():
        if place in watch._sequences:
            made.add_list(value)
        if place in watch._sets:
            made.add_set(value)
    made._cells = around.cells
    made._slots = [(value, name) for value, name in watch._slots if id(value) in reached]
    if not (made._sequences or made._sets or made._cells or made._slots):
        return None
    made.arm()
    return made


def _is_own(scope: dict[str, Any]) -> bool:
    return scope is not sys.modules and not is_opaque(str(scope.get("__name__")))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not _MISSING
    except ValueError:
        return False


def _reached(watch: Watch, rest: list[Any], *, into_modules: bool = True) -> dict[int, Any]:
    """What `watch` holds of these: submodules, the objects that they hold, and the containers that both are made of."""
    found: dict[int, Any] = {}
    while rest:
        value = rest.pop()
        place = id(value)
        if place in found or (place in watch._modules and not into_modules):
            continue
        if place in watch._modules or place in watch._objects:
            found[place] = value
            rest.append(getattr(value, "__dict__", None))
        if place in watch._dicts:
            found[place] = value
            without = watch._without.get(place)
            held = dict.items(value)
            rest.extend([item for key, item in held if type(item) not in _PLAIN and not (without and key in without)])
        elif place in watch._sequences or place in watch._sets:
            found[place] = value
            rest.extend(value)
    return found
