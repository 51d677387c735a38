"""Locks that a forked child finds open, and what is made once under one.

Why it exists: servers load a model, answer once to warm up, and fork their workers. A lock that another thread held at
that moment would stay locked in the child for ever, and the child's first call would hang. All locks of this package are
of this kind, and are opened before anything else of ours runs in the child: hooks run in the order in which they were registered.

`functools.cached_property` has had no lock since Python 3.12, and before that one of its own that no fork opens; `lru_cache`
never had one. Where two threads must not do the same thing at a time, or must get the same object, `once` and
`once_property` stand for them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def ForkLock() -> threading.Lock:  # noqa: N802 (in the place of `threading.Lock`)
    """A `threading.Lock` that is open in a forked child, whoever held it in the parent. It is taken by `with`, and not else.

    Python's own, for there is no other that is let go whatever happens: another thread, or a signal handler, may raise an
    exception in the one that waits here (time limits do so), and Python raises it at the next step of *Python* code. Of a
    lock whose `__enter__` is written in Python, that is in there, with the lock taken and nobody left to let it go. Of this
    one it is inside the `with`. (CPython 3.14 has such a gap of its own, until it has the mending of gh-148874.)
    """
    lock = threading.Lock()
    _all.add(lock)
    return lock


class once(Generic[T]):  # noqa: N801 (a decorator)
    """A function without arguments that runs once in the life of a process: one thread runs it, the others wait for it.

    What it raises is raised, and the next call runs it again.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = ForkLock()
        self._made: tuple[T, ...] = ()

    def __call__(self) -> T:
        """What it gave, or gives now."""
        made = self._made
        if not made:
            with self._lock:
                made = self._made = self._made or (self._make(),)
        return made[0]

    def cache_clear(self) -> None:
        """Let the next call run it anew."""
        self._made = ()


class once_property(Generic[T]):  # noqa: N801 (a decorator)
    """As `functools.cached_property`, worked out by one thread while the others wait; also after a fork.

    Afterwards it is an attribute like any other, so looking at it costs nothing more.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._lock = ForkLock()
        self._name = ""
        self.__doc__ = make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> once_property[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> once_property[T] | T:
        if instance is None:
            return self
        held: dict[str, T] = instance.__dict__  # past the `__setattr__` of records, which refuse to be changed
        with self._lock:
            if self._name not in held:
                held[self._name] = self._make(instance)
            return held[self._name]


def _open_all() -> None:
    """In a child: whoever held one is not in this process. Users keep the very lock, so that it is not replaced but opened."""
    for lock in list(_all):
        # Its public face has nothing for this; `threading` and `logging` themselves do so, since Python 3.9.
        lock._at_fork_reinit()  # type: ignore[attr-defined]


_all: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_open_all)
