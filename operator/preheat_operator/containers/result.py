"""Reads out/result.json, which the user's image wrote: nothing in it is believed that can be checked.

Who the result is for (namespace, revision, hardware profile, which targets) comes from the request; the result adds
verdicts, figures and files. A target the request does not have is refused; one that the result forgets becomes Failed,
so that the others' work is not lost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from preheat_runtime import manifest as format_
from preheat_runtime.manifest import Target, is_path

if TYPE_CHECKING:
    from preheat_operator.containers.request import JobRequest

MAX_RESULT_BYTES: Final = 8 * 1024 * 1024
MAX_PYTHON_PATH_BYTES: Final = 2048
_TOP = frozenset({"formatVersion", "imagePythonPath", "python", "targets"})
_FIELDS = frozenset(
    {
        "module", "bucket", "verdict", "reason", "message", "tier", "requestKey", "fingerprint", "figures",
        "directory", "files",
    }
)  # fmt: skip


class ResultError(ValueError):
    """result.json cannot be used; the message names the field."""


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """A target without its files yet, and the paths below out/ they are to be read from, by path in the artifact."""

    target: Target
    sources: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the compile step came to."""

    image_python_path: str | None
    targets: tuple[TargetResult, ...]


def parse_result(data: bytes, request: JobRequest) -> Result:
    """Check result.json against the request. Raises ResultError naming the field."""
    try:
        value = format_.load_json(data)
        format_.check_format_version(value, "result.json")
        format_.canonical_json(value)
    except format_.ManifestError as error:
        raise ResultError(f"result.json: {error}") from None
    if unknown := sorted(set(value) - _TOP):
        raise ResultError(f"result.json: has unknown fields: {', '.join(map(repr, unknown))}")
    path = value.get("imagePythonPath")
    # It must fit into the termination message beside the digest.
    if path is not None and (not isinstance(path, str) or len(json.dumps(path)) > MAX_PYTHON_PATH_BYTES):
        raise ResultError(
            f"result.json: imagePythonPath must be null or a text of at most {MAX_PYTHON_PATH_BYTES} bytes"
        )
    items = value.get("targets")
    if not isinstance(items, list) or len(items) > format_.MAX_TARGETS:
        raise ResultError("result.json: targets must be a list")
    targets = [_target(item, i, request) for i, item in enumerate(items)]
    named = [(each.target.module, each.target.bucket) for each in targets]
    if len(set(named)) != len(named):
        raise ResultError("result.json: names a target twice")
    if foreign := sorted(set(named) - set(request.targets)):
        raise ResultError(f"result.json: the request has no target {'/'.join(foreign[0])}")
    forgotten = [TargetResult(target=_forgotten(*pair, request), sources={}) for pair in request.targets]
    targets += [each for each in forgotten if (each.target.module, each.target.bucket) not in named]
    return Result(image_python_path=path, targets=tuple(targets))


def _target(item: object, i: int, request: JobRequest) -> TargetResult:
    at = f"result.json: targets[{i}]"
    if not isinstance(item, dict) or set(item) - _FIELDS:
        raise ResultError(f"{at}: must be an object of {', '.join(sorted(_FIELDS))}")
    files = item.get("files", [])
    if not isinstance(files, list) or not all(isinstance(path, str) and is_path(path) for path in files):
        raise ResultError(f"{at}.files: must be relative paths of [A-Za-z0-9._-] segments")
    if len(files) > format_.MAX_FILES_PER_TARGET or len(set(files)) != len(files):
        raise ResultError(f"{at}.files: too many, or one twice")
    directory = item.get("directory")
    if files and (not isinstance(directory, str) or not is_path(directory)):
        raise ResultError(f"{at}.directory: must be a relative path of [A-Za-z0-9._-] segments")
    target = _checked(item, at, request, has_files=bool(files))
    return TargetResult(target=target, sources={path: f"{directory}/{path}" for path in sorted(files)})


def _checked(item: dict[str, Any], at: str, request: JobRequest, *, has_files: bool) -> Target:
    """Let the manifest's own reader judge every field but the files, which are not known yet."""
    message = item.get("message")
    value = {
        "tier": None, "requestKey": None, "fingerprint": None, "figures": {},
        **{key: field for key, field in item.items() if key not in ("directory", "files")},
        "hardware": request.hardware,
        "message": _readable(message) if isinstance(message, str) else message,
        "files": [{"path": "placeholder", "size": 0, "sha256": "0" * 64, "pieces": []}] if has_files else [],
    }  # fmt: skip
    try:
        return replace(Target.from_json(value, at=at), files=())
    except format_.ManifestError as error:
        raise ResultError(str(error)) from None


def _readable(text: str) -> str:
    """Keep line ends and tabs, drop what could steer a terminal, cut to the format's length."""
    kept = "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
    return kept[: format_.MAX_MESSAGE_CHARACTERS]


def _forgotten(module: str, bucket: str, request: JobRequest) -> Target:
    return Target(
        module=module, bucket=bucket, hardware=request.hardware, verdict="Failed", reason="Internal",
        message="the compile step ended without a verdict for this target", tier=None, request_key=None,
        fingerprint=None, figures={}, files=(),
    )  # fmt: skip
