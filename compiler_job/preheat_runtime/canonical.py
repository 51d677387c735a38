"""Canonical JSON: the one byte string that stands for a value, so that a digest can name it; and JSON that others wrote.

Why it exists: manifests, requests and reports are compared by their bytes across images and releases. What cannot be said in
exactly one way is refused when it is written, and what is not as it would be written is refused when it is read.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

FORMAT_VERSION: Final = 1

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ManifestError(ValueError):
    """The text is no manifest of this format; the message names the field."""


class UnknownFormatError(ManifestError):
    """Written by a version of Preheat whose format this one does not know."""


def canonical_json(value: object) -> bytes:
    """Return the one byte string that stands for `value`: sorted keys, no blanks, UTF-8, one newline at the end.

    Raises ManifestError for floats (decimal strings stand in their place) and for anything JSON cannot say.
    """
    _refuse_unsayable(value, "$", 0)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return (text + "\n").encode()
    except UnicodeEncodeError:
        raise ManifestError("a text holds a lone surrogate, which UTF-8 cannot say") from None


def digest_of(data: bytes) -> str:
    """Return `sha256:<hex>` of exactly these bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def is_digest(text: str) -> bool:
    """Whether the text is a digest as this format writes it."""
    return _DIGEST.fullmatch(text) is not None


def load_json(data: bytes) -> Any:
    """Decode JSON that others wrote: UTF-8, no NaN, nothing nested beyond reason. Raises ManifestError."""
    try:
        return json.loads(data.decode(), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from None


def check_format_version(value: object, what: str) -> None:
    """Raise UnknownFormatError unless `value` is an object whose formatVersion is ours."""
    version = value.get("formatVersion") if isinstance(value, dict) else None
    if version != FORMAT_VERSION or isinstance(version, bool) or not isinstance(version, int):
        raise UnknownFormatError(
            f"{what} has formatVersion {version!r}, this version of Preheat reads {FORMAT_VERSION}"
        )


def _refuse_constant(name: str) -> None:
    raise ManifestError(f"{name} is no JSON")


def _refuse_unsayable(value: object, at: str, depth: int) -> None:
    if depth > 32:
        raise ManifestError(f"{at}: nested too deeply")
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ManifestError(f"{at}: the key {key!r} is no text")
            _refuse_unsayable(item, f"{at}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _refuse_unsayable(item, f"{at}[{i}]", depth + 1)
    else:
        remedy = ": write a decimal string" if isinstance(value, float) else ""
        raise ManifestError(f"{at}: {type(value).__name__} cannot be said in canonical JSON{remedy}")
