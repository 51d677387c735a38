"""Reading the termination messages of compile pods.

They are how a result reaches the controller, and they come from containers that ran other people's code: whatever
the bytes are, reading them ends in one of the shapes below, in bounded time and memory, and never in an exception.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass
from typing import Any

from preheat_operator.api.enums import REASONS_OF_VERDICT, Verdict, VerdictReason
from preheat_operator.api.status import MAX_TARGET_MESSAGE

# Kubernetes keeps the last 4096 bytes of a message; what they may unpack to is bounded here.
_MAX_MESSAGE = 8192
_MAX_UNPACKED = 256 * 1024
_MAX_TARGETS = 128
_MAX_TEXT = 1024
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_DECIMAL = re.compile(r"[0-9]{1,12}([.][0-9]{1,12})?")
_WHOLE = re.compile(r"[0-9]{1,15}")
_WEIGHTS = re.compile(r"(s3|hf):[0-9a-zA-Z]{1,64}")
_REASON = re.compile(r"[A-Z][A-Za-z]{0,62}")


@dataclass(frozen=True, kw_only=True, order=True)
class TargetName:
    """One module and bucket; with a hardware profile it is a target."""

    module: str
    bucket: str

    def __str__(self) -> str:
        return f"{self.module}/{self.bucket}"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one target ended, as `publish` reports it. Figures are decimal strings; `size` is in bytes.

    `message`, for people, is said of targets that were not kept, as far as there was room.
    """

    target: TargetName
    verdict: Verdict
    reason: VerdictReason
    speedup: str | None = None
    first_answer: str | None = None
    size: int | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Published:
    """`publish` wrote a manifest: its digest, the PYTHONPATH set inside the image, and how each target ended.

    `carried` is how many of the kept ones have the artifact of an earlier revision, to the byte.
    """

    digest: str
    python_path: str | None
    endings: tuple[Ending, ...]
    carried: int = 0


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """A container says why it gave up. `reason` is one word, unchecked against any list; `message` is for people."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far `compile` came: the target it worked on, if any."""

    running: TargetName | None


def read_publish(message: str) -> Published | Complaint | None:
    """What `publish` reported; None when nothing in the message can be believed."""
    document = _load(message)
    if document is None:
        return None
    digest = document.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return _complaint(document)
    python_path = document.get("pythonPath")
    if python_path is not None and (not isinstance(python_path, str) or len(python_path) > 4096):
        return None
    lines = document["targets"] if "targets" in document else _unpack(document.get("targetsZ"))
    if not isinstance(lines, list) or len(lines) > _MAX_TARGETS:
        return None
    endings: dict[TargetName, Ending] = {}
    words = document.get("words")
    for line in lines:
        ending = _ending(line, words if isinstance(words, dict) else {})
        if ending is not None:
            endings.setdefault(ending.target, ending)
    carried = document.get("carried")
    return Published(
        digest=digest, python_path=python_path, endings=tuple(endings.values()),
        carried=carried if type(carried) is int and 0 <= carried <= _MAX_TARGETS else 0,
    )  # fmt: skip


def read_compile(message: str) -> Complaint | Progress:
    """What `compile` wrote last; an unreadable message is a Progress that knows nothing."""
    document = _load(message)
    if document is None:
        return Progress(running=None)
    complaint = _complaint(document)
    if complaint is not None:
        return complaint
    return Progress(running=_target(document.get("running")))


def read_lookup(message: str) -> str | None:
    """Which weights a look saw; None when the message says nothing of the kind."""
    document = _load(message)
    seen = None if document is None else document.get("weights")
    return seen if isinstance(seen, str) and _WEIGHTS.fullmatch(seen) else None


def read_complaint(message: str) -> Complaint | None:
    """Why a container gave up, if it says so in our form."""
    document = _load(message)
    return None if document is None else _complaint(document)


def plain(text: object, *, limit: int = _MAX_TEXT) -> str:
    """Foreign text on one line, printable and bounded, as it may enter a condition."""
    if not isinstance(text, str):
        return ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _load(message: str) -> dict[str, Any] | None:
    if not message or len(message) > _MAX_MESSAGE:
        return None
    try:
        document = json.loads(message)
    # RecursionError: a few thousand brackets are enough for it.
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("v") != 1:
        return None
    return document


def _complaint(document: dict[str, Any]) -> Complaint | None:
    reason = document.get("reason")
    if not isinstance(reason, str) or _REASON.fullmatch(reason) is None:
        return None
    return Complaint(reason=reason, message=plain(document.get("message")))


def _unpack(packed: object) -> object:
    if not isinstance(packed, str):
        return None
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(base64.b64decode(packed, validate=True), _MAX_UNPACKED)
        if unpacker.unconsumed_tail:
            return None
        return json.loads(text)
    except (ValueError, RecursionError, binascii.Error, zlib.error):
        return None


def _target(value: object) -> TargetName | None:
    if not isinstance(value, str) or value.count("/") != 1:
        return None
    module, bucket = value.split("/")
    if _NAME.fullmatch(module) is None or _NAME.fullmatch(bucket) is None:
        return None
    return TargetName(module=module, bucket=bucket)


def _ending(line: object, words: dict[str, Any]) -> Ending | None:
    if not isinstance(line, str) or len(line) > 512 or line.count("|") != 6:
        return None
    module, bucket, verdict_text, reason_text, speedup, first_answer, size = line.split("|")
    target = _target(f"{module}/{bucket}")
    try:
        verdict, reason = Verdict(verdict_text), VerdictReason(reason_text)
    except ValueError:
        return None
    if target is None or reason not in REASONS_OF_VERDICT[verdict]:
        return None
    return Ending(
        target=target,
        verdict=verdict,
        reason=reason,
        speedup=speedup if _DECIMAL.fullmatch(speedup) else None,
        first_answer=first_answer if _DECIMAL.fullmatch(first_answer) else None,
        size=int(size) if _WHOLE.fullmatch(size) else None,
        message=plain(words.get(str(target)), limit=MAX_TARGET_MESSAGE) or None,
    )
