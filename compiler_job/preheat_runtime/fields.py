"""Checks of single fields of a decoded document: each gives the value, or names the place and what must stand there.

Why it exists: a manifest is written by one image and read by two others, and what is wrong with it is read by people. `at`
is always the place that errors name, such as `targets[3].files[0].size`. All raise ManifestError.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final

from .canonical import ManifestError, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_PATH_CHARACTERS: Final = 512

_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,255}")
_FIGURE = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
_DECIMAL = re.compile(r"-?[0-9]{1,32}(?:\.[0-9]{1,32})?(?:[eE][+-]?[0-9]{1,3})?")


def is_path(text: str) -> bool:
    """Whether the text is a relative path of plain segments that can name nothing outside its folder."""
    segments = text.split("/")
    return len(text) <= MAX_PATH_CHARACTERS and all(
        _SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments
    )


def is_name(text: str) -> bool:
    """Whether the text can name a module, bucket or hardware profile, and a folder made of it."""
    return _NAME.fullmatch(text) is not None


def an_object(value: object, at: str, *keys: str) -> dict[str, Any]:
    """The object, which has exactly these keys."""
    if not isinstance(value, dict):
        raise ManifestError(f"{at}: must be an object")
    if missing := [key for key in keys if key not in value]:
        raise ManifestError(f"{at}: lacks {', '.join(missing)}")
    if unknown := sorted(set(value) - set(keys)):
        raise ManifestError(f"{at}: has unknown fields: {', '.join(map(repr, unknown))}")
    return value


def a_list(value: object, at: str) -> list[Any]:
    """The list."""
    if not isinstance(value, list):
        raise ManifestError(f"{at}: must be a list")
    return value


def a_mapping(value: object, at: str) -> dict[str, Any]:
    """The object, of whatever keys, up to 16 KiB."""
    if not isinstance(value, dict):
        raise ManifestError(f"{at}: must be an object")
    if len(canonical_json(value)) > 16 * 1024:
        raise ManifestError(f"{at}: is larger than 16 KiB")
    return value


def figures(value: object, at: str) -> dict[str, str]:
    """Decimal strings by name."""
    found = a_mapping(value, at)
    for name, number in found.items():
        if not _FIGURE.fullmatch(name):
            raise ManifestError(f"{at}: {name!r} is no name of a figure")
        if not isinstance(number, str) or not _DECIMAL.fullmatch(number):
            raise ManifestError(f"{at}.{name}: must be a decimal string")
    return found


def a_text(value: object, at: str, *, least: int = 0, most: int = 4096) -> str:
    """The text, of so many characters."""
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise ManifestError(f"{at}: must be a text of {least} to {most} characters")
    return value


def an_integer(value: object, least: int, most: int, at: str) -> int:
    """The number, from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ManifestError(f"{at}: must be an integer from {least} to {most}")
    return value


def a_hex(value: object, at: str) -> str:
    """A sha256 without its prefix."""
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ManifestError(f"{at}: must be 64 lower-case hexadecimal digits")
    return value


def a_name(value: object, at: str) -> str:
    """A name as of a module, bucket or hardware profile."""
    if not isinstance(value, str) or not is_name(value):
        raise ManifestError(f"{at}: {value!r} is no name (letters, digits, - and _, at most 63)")
    return value


def one_of(value: object, allowed: Iterable[str], at: str) -> str:
    """The word, which is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ManifestError(f"{at}: {value!r} is none of {', '.join(allowed)}")
    return value


def check_sorted(keys: list[Any], at: str) -> None:
    """Each is there once, in order."""
    for before, after in itertools.pairwise(keys):
        if before == after:
            raise ManifestError(f"{at}: {after!r} is there twice")
        if before > after:
            raise ManifestError(f"{at}: {after!r} is out of order")
