"""`dataclass` for what enters inference pods: the same classes, without the price of making them.

Why it exists: dataclasses writes source text for every class and compiles it at import. For the two dozen classes here that
was more than half of the time that importing the runtime takes, in every serving process and before its first answer.
What is made here has the same behaviour in everything that is used: keyword arguments, defaults, equality, hash, repr,
immutability, and `dataclasses.replace`, `asdict` and `fields`. `tests/unit/runtime/test_records.py` holds both side by side.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool, kw_only: bool, eq: bool = True) -> Callable[[type[T]], type[T]]:
        """As `dataclasses.dataclass` with these arguments; `frozen` and `kw_only` must be true, and nothing is inherited."""
        if not frozen or not kw_only:
            raise TypeError("records are frozen and take keywords only")

        def decorate(cls: type[T]) -> type[T]:
            return _make(cls, eq=eq)

        return decorate


__all__ = ["changed", "dataclass"]

T = TypeVar("T")


def changed(record: T, **values: Any) -> T:
    """As `dataclasses.replace`, of a record with nothing but its fields; also while the interpreter shuts down, when that raises.

    Raises TypeError for a name that is no field.
    """
    return type(record)(**{**vars(record), **values})


def _make(cls: type[T], *, eq: bool) -> type[T]:
    types: dict[str, Any] = dict(cls.__annotations__)
    names = frozenset(types)
    given = {name: cls.__dict__[name] for name in types if name in cls.__dict__}
    plain: dict[str, Any] = {}
    factories: dict[str, Callable[[], Any]] = {}
    for name, value in given.items():
        if not isinstance(value, dataclasses.Field):
            plain[name] = value
            continue
        if value.default_factory is not dataclasses.MISSING:
            factories[name] = value.default_factory
            delattr(cls, name)
        else:
            plain[name] = value.default
            setattr(cls, name, value.default)

    def complete(values: dict[str, Any]) -> dict[str, Any]:
        made = {name: make() for name, make in factories.items() if name not in values}
        filled = {**plain, **made, **values}
        if wrong := filled.keys() - names:
            raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {min(wrong)!r}")
        if len(filled) < len(names):
            missing = [name for name in types if name not in filled]
            raise TypeError(f"{cls.__name__}.__init__() is missing keyword arguments: {', '.join(missing)}")
        return filled

    def start(self: Any, **values: Any) -> None:
        self.__dict__.update(values if values.keys() == names else complete(values))

    def content(self: Any) -> tuple[Any, ...]:
        held = self.__dict__
        return tuple([held[name] for name in types])

    def equal(self: Any, other: object) -> Any:
        return content(self) == content(other) if type(other) is cls and type(self) is cls else NotImplemented

    def digest(self: Any) -> int:
        return hash(content(self))

    def words(self: Any) -> str:
        return f"{cls.__qualname__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in types)})"

    def refuse_set(self: Any, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def refuse_delete(self: Any, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    methods: dict[str, Callable[..., Any]] = {
        "__init__": start, "__repr__": words, "__setattr__": refuse_set, "__delattr__": refuse_delete,
        **({"__eq__": equal, "__hash__": digest} if eq else {}),
    }  # fmt: skip
    for name, function in methods.items():
        setattr(cls, name, function)
    setattr(cls, "__dataclass_fields__", _Fields(types, given))  # noqa: B010 (mypy knows no such attribute of a type)
    return cls


class _Fields:
    """What the functions of dataclasses look for; made by dataclasses itself, once somebody asks."""

    def __init__(self, types: dict[str, Any], given: dict[str, Any]) -> None:
        self._types, self._given = types, given

    def __get__(self, instance: object, owner: type) -> dict[str, dataclasses.Field[Any]]:
        described = [
            (name, kind, given if isinstance(given, dataclasses.Field) else dataclasses.field(default=given))
            for name, kind in self._types.items()
            for given in (self._given.get(name, dataclasses.MISSING),)
        ]
        twin: Any = dataclasses.make_dataclass(owner.__name__, described, kw_only=True)
        fields: dict[str, dataclasses.Field[Any]] = twin.__dataclass_fields__
        setattr(owner, "__dataclass_fields__", fields)  # noqa: B010 (mypy knows no such attribute of a type)
        return fields
