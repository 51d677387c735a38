"""Termination messages: how what `publish` made, and whether `fetch` brought it, reaches the controller through the
Kubernetes API alone.

The kubelet keeps the last 4096 bytes of the file and nothing else, so the message must fit and must be whole.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from preheat_runtime.manifest import Target

DEFAULT_PATH: Final = "/dev/termination-log"
PLAIN_BYTES: Final = 3500
"""Above this the list of targets is compressed."""
MAX_BYTES: Final = 4096
MAX_REASON_CHARACTERS: Final = 1024
MAX_WORDS: Final = 500
"""Characters said of one target that is not kept."""


def published(digest: str, image_python_path: str | None, targets: Sequence[Target], *, carried: int = 0) -> bytes:
    """Return the message of a success. `targets` are those of this Job's hardware profile, `carried` how many of them
    an earlier revision had.
    """
    head = {"v": 1, "digest": digest, "pythonPath": image_python_path, **({"carried": carried} if carried else {})}
    document = _verdicts(head, targets)
    # What went wrong must be read where people look; the manifest holds all of it.
    words: dict[str, str] = {}
    for target in sorted((t for t in targets if t.verdict != "Kept"), key=lambda t: t.verdict != "Failed"):
        more = words | {f"{target.module}/{target.bucket}": target.message[:MAX_WORDS]}
        if len(_dump({**document, "words": more})) > MAX_BYTES:
            break
        words = more
    return _dump({**document, "words": words} if words else document)


def _verdicts(head: dict[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    lines = [_line(target) for target in targets]
    plain = {**head, "targets": lines}
    if len(_dump(plain)) <= PLAIN_BYTES:
        return plain
    compressed = {**head, "targetsZ": _compressed(lines)}
    if len(_dump(compressed)) <= MAX_BYTES:
        return compressed
    # Names beyond reason: the verdicts still fit without the figures, which the manifest holds anyway.
    short = {**head, "targetsZ": _compressed([line.rsplit("|", 3)[0] + "|||" for line in lines])}
    return short if len(_dump(short)) <= MAX_BYTES else head


def failed(reason: str, message: str) -> bytes:
    """Return the message of a failure, cut to a length that always fits."""
    for characters in (MAX_REASON_CHARACTERS, MAX_REASON_CHARACTERS // 4):
        data = _dump({"v": 1, "reason": reason, "message": message[:characters]})
        if len(data) <= MAX_BYTES:
            break
    return data


def write(message: bytes, env: Mapping[str, str]) -> None:
    """Write the message where the kubelet looks; replaces what an earlier attempt in this container wrote."""
    Path(env.get("PREHEAT_TERMINATION_LOG") or DEFAULT_PATH).write_bytes(message)


def note(message: bytes, env: Mapping[str, str]) -> None:
    """Write the message if the kubelet will look, as it does in every pod. Raises OSError."""
    path = Path(env.get("PREHEAT_TERMINATION_LOG") or DEFAULT_PATH)
    if path.exists():
        path.write_bytes(message)


def _line(target: Target) -> str:
    figures = target.figures
    return "|".join(
        (
            target.module,
            target.bucket,
            target.verdict,
            target.reason,
            figures.get("speedup", ""),
            figures.get("firstAnswerSeconds", ""),
            figures.get("sizeBytes", ""),
        )
    )


def _compressed(lines: Sequence[str]) -> str:
    return base64.b64encode(zlib.compress(_dump(list(lines)), 9)).decode()


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
