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
    from types import TracebackType

T = TypeVar("T")


class ForkLock:
    """As `threading.Lock` in a `with` statement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it: whoever held it is not in this process."""
        self._lock = threading.Lock()


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


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


_all: weakref.WeakSet[ForkLock] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_all)
