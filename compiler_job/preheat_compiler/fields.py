"""Takes the fields of a JSON object one by one, and refuses what is left over.

Why it exists: reading strictly means that every field is asked for by name and type, and that a field nobody asked for
is an error. Said once here, the reader of the request can be a list of its fields.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_SEGMENT = re.compile(r"[A-Za-z0-9._-]+")


class RequestError(Exception):
    """request.json is missing, of another version, or has a field this driver does not know; names the field."""


class Fields:
    """One JSON object; `where` is its path, for errors. Every method raises RequestError naming the field."""

    def __init__(self, raw: object, where: str) -> None:
        if not isinstance(raw, dict):
            raise RequestError(f"{where}: must be an object")
        self._left: dict[str, Any] = dict(raw)
        self._where = where

    def take(self, name: str, *, required: bool = True) -> Any:
        """The field whatever its type; None when it is absent or null and not required."""
        if name not in self._left and required:
            raise RequestError(f"{self._where}.{name}: is missing")
        value = self._left.pop(name, None)
        if value is None and required:
            raise RequestError(f"{self._where}.{name}: is null")
        return value

    def rest(self) -> dict[str, Any]:
        """All fields that were not taken yet."""
        return self._left

    def end(self) -> None:
        """Refuse fields that nobody took."""
        if self._left:
            raise RequestError(f"{self._where}.{min(self._left)}: is not a field this driver knows")

    def text(self, name: str, *, empty: bool = False) -> str:
        """A text; not the empty one unless `empty`."""
        value = self.take(name)
        if not isinstance(value, str) or not (value or empty):
            raise RequestError(f"{self._where}.{name}: must be text")
        return value

    def segment(self, name: str) -> str:
        """A text that can be part of a path."""
        value = self.text(name)
        if not _SEGMENT.fullmatch(value) or value.startswith("."):
            raise RequestError(f"{self._where}.{name}: {value!r} must be of letters, digits, '.', '_' and '-'")
        return value

    def one_of(self, name: str, choices: tuple[str, ...], *, default: str | None = None) -> str:
        """One of the given texts; `default` when it is absent."""
        if default is not None and self._left.get(name) is None:
            self._left.pop(name, None)
            return default
        value = self.text(name)
        if value not in choices:
            raise RequestError(f"{self._where}.{name}: {value!r} is none of {', '.join(choices)}")
        return value

    def integer(self, name: str, *, minimum: int | None = None, default: int | None = None) -> int:
        """An integer, not less than `minimum`."""
        value = self.take(name, required=default is None)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or (minimum is not None and value < minimum):
            least = "" if minimum is None else f" of at least {minimum}"
            raise RequestError(f"{self._where}.{name}: {value!r} must be an integer{least}")
        return value

    def optional_integer(self, name: str, *, minimum: int) -> int | None:
        """An integer, not less than `minimum`; None when it is absent."""
        if self._left.get(name) is None:
            self._left.pop(name, None)
            return None
        return self.integer(name, minimum=minimum)

    def decimal(self, name: str, *, required: bool = True) -> Decimal | None:
        """A finite decimal number, written as text or as an integer."""
        value = self.take(name, required=required)
        if value is None:
            return None
        try:
            number = Decimal(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else None
        except InvalidOperation:
            number = None
        if number is None or not number.is_finite():
            raise RequestError(f"{self._where}.{name}: {value!r} is not a decimal number written as text")
        return number

    def list(self, name: str, read: Callable[[object, str], Any], *, required: bool = True) -> tuple[Any, ...]:
        """A list whose items `read(item, where)` reads."""
        value = self.take(name, required=required)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise RequestError(f"{self._where}.{name}: must be a list")
        return tuple(read(item, f"{self._where}.{name}[{index}]") for index, item in enumerate(value))
