"""Lets a module's Python run and takes back what it leaves in the module.

Why it exists: tracing runs `forward`, which may count its calls or make an attribute at the first of them. A pod compares
the module before its first call, so what a package is bound to in the compile Job must be as it was before it was traced,
too; and torch puts back only what was there before.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_DICTS = (dict, OrderedDict, defaultdict)
_OTHERS = (list, set, deque)


@contextmanager
def left_as_found(module: torch.nn.Module) -> Iterator[None]:
    """Afterwards each part of the module has the attributes that it had, and lists, dicts and sets in them their items.

    What lies in objects of other types is left as it is.
    """
    found = _containers(module)
    try:
        yield
    finally:
        for value, held in found:
            if not _same(_content(value), held):
                _put_back(value, held)


def _containers(module: torch.nn.Module) -> list[tuple[Any, list[Any]]]:
    """Each container once, with what it holds: of a dict, its keys and then its values."""
    found: dict[int, tuple[Any, list[Any]]] = {}
    passed: set[int] = set()
    rest: list[Any] = [part.__dict__ for part in module.modules()]
    while rest:
        value = rest.pop()
        if id(value) in found or id(value) in passed:
            continue
        if type(value) is tuple:
            passed.add(id(value))
            rest += value
        elif type(value) in _DICTS or type(value) in _OTHERS:
            content = _content(value)
            found[id(value)] = value, content
            rest += content
    return list(found.values())


def _content(value: Any) -> list[Any]:
    return [*value.keys(), *value.values()] if isinstance(value, dict) else list(value)


def _same(content: list[Any], held: list[Any]) -> bool:
    return len(content) == len(held) and all(one is other for one, other in zip(content, held, strict=True))


def _put_back(value: Any, held: list[Any]) -> None:
    value.clear()
    if isinstance(value, dict):
        half = len(held) // 2
        value.update(zip(held[:half], held[half:], strict=True))
    elif isinstance(value, set):
        value.update(held)
    else:
        value.extend(held)
