"""The part of a compile request that Preheat's own containers act on.

`toolkit` hands the whole request to the compiler; `publish` needs to know who it publishes for. It reads the same
environment variable, never the copy in the shared volume: between the two ran the user's image, which can rewrite any
file there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from preheat_runtime import manifest as format_

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_REQUEST_BYTES: Final = 512 * 1024
_FIELDS = (
    "namespace", "name", "uid", "revision", "image", "hardware", "cpuIsa", "torch", "keepIf", "targets",
    "timeoutSeconds",
)  # fmt: skip
# With the lengths that a manifest has room for: what is longer would be compiled and could not be published.
_TEXTS = {"namespace": 253, "name": 253, "uid": 128, "revision": 253, "image": 1024}


class RequestError(ValueError):
    """The request cannot be read: a fault of Preheat, or two versions of it. The message names the field."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Who a Job works for and what it must answer; `raw` is the whole request."""

    namespace: str
    name: str
    uid: str
    revision: str
    image: str
    hardware: str
    targets: tuple[tuple[str, str], ...]
    raw: Mapping[str, Any]

    @property
    def base(self) -> str | None:
        """The manifest of a ready revision of the same code; None where there is none."""
        base = self.raw.get("base")
        return None if base is None else str(base)

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """What every manifest this Job writes, merges or recovers must carry."""
        return (self.namespace, self.name, self.uid, self.revision, self.image)

    @classmethod
    def parse(cls, text: str) -> JobRequest:
        """Read PREHEAT_REQUEST. Raises RequestError naming the field."""
        data = text.encode("utf-8", "surrogateescape")
        if not text.strip():
            raise RequestError("PREHEAT_REQUEST: is not set")
        if len(data) > MAX_REQUEST_BYTES:
            raise RequestError(f"PREHEAT_REQUEST: {len(data)} bytes are more than {MAX_REQUEST_BYTES}")
        try:
            value = format_.load_json(data)
            format_.check_format_version(value, "PREHEAT_REQUEST")
            format_.canonical_json(value)
        except format_.ManifestError as error:
            raise RequestError(f"PREHEAT_REQUEST: {error}") from None
        if missing := [field for field in _FIELDS if field not in value]:
            raise RequestError(f"PREHEAT_REQUEST: lacks {', '.join(missing)}")
        for field, most in _TEXTS.items():
            if not isinstance(value[field], str) or not 1 <= len(value[field]) <= most:
                raise RequestError(f"PREHEAT_REQUEST.{field}: must be a text of 1 to {most} characters")
        base = value.get("base")
        if base is not None and not (isinstance(base, str) and format_.is_digest(base)):
            raise RequestError("PREHEAT_REQUEST.base: is no digest")
        targets = _targets(value["targets"])
        hardware = value["hardware"]
        # A Job that only merges parts has no targets, and may name no profile.
        if not isinstance(hardware, str) or (targets and not format_.is_name(hardware)):
            raise RequestError(f"PREHEAT_REQUEST.hardware: {hardware!r} is no name")
        return cls(**{field: value[field] for field in _TEXTS}, hardware=hardware, targets=targets, raw=value)


def _targets(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        raise RequestError("PREHEAT_REQUEST.targets: must be a list")
    targets = []
    for i, item in enumerate(value):
        if not isinstance(item, dict):
            raise RequestError(f"PREHEAT_REQUEST.targets[{i}]: must be an object")
        pair = (item.get("module"), item.get("bucket"))
        if not all(isinstance(name, str) and format_.is_name(name) for name in pair):
            raise RequestError(f"PREHEAT_REQUEST.targets[{i}]: needs the names of a module and a bucket")
        targets.append((str(pair[0]), str(pair[1])))
    if len(set(targets)) != len(targets):
        raise RequestError("PREHEAT_REQUEST.targets: names a target twice")
    return tuple(targets)
