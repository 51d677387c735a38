"""The manifest of a revision: what every part of Preheat agrees to mean by one digest.

A manifest is canonical JSON named by its sha256. `publish` writes it, `fetch` verifies it before anything else is
looked at, the runtime reads it in the serving process. The three run on different Pythons in different images, so the
format and its checks live here once, on the standard library alone, and a reader refuses what it does not know: a
manifest that is accepted was written by this format's rules to the letter.

Errors: every refusal is a `ManifestError` that names the field; `UnknownFormatError` says the version is not ours.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from typing import TYPE_CHECKING, Any, Final

from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FORMAT_VERSION: Final = 1
MAX_MANIFEST_BYTES: Final = 8 * 1024 * 1024
"""A manifest of 128 targets with a hundred files each stays below; more is refused before it is parsed."""
MAX_PIECE_BYTES: Final = 16 * 1024 * 1024
"""Decoded size of a piece: small enough to hold in memory, to retry, and to load in parallel."""
MAX_FILE_BYTES: Final = 16 * 1024**3
MAX_FILES_PER_TARGET: Final = 4096
MAX_TARGETS: Final = 1024
MAX_MESSAGE_CHARACTERS: Final = 1024
MAX_PATH_CHARACTERS: Final = 512
ENCODINGS: Final = ("identity", "zstd")
TIERS: Final = ("package", "caches")
REASONS: Final[Mapping[str, frozenset[str]]] = {
    "Kept": frozenset({"Faster", "GatesMet", "NoDifference"}),
    "Rejected": frozenset(
        {
            "SpeedupBelowMinimum", "NoDifference", "ErrorAboveMaximum", "GraphBreaksAboveMaximum", "RecompilesAboveMaximum",
            "MemoryAboveMaximum",
        }
    ),
    "Failed": frozenset(
        {
            "FactoryFailed", "ModuleNotFound", "InputsRefused", "OptionRefused", "CompileFailed", "CompilerMissing", "ProofFailed",
            "Nondeterministic", "OutOfMemory", "DiskFull", "Timeout", "Killed", "DeviceMissing", "TorchMissing",
            "TorchUnsupported", "Internal", "ImageUnavailable", "StoreUnavailable", "ResultLost", "TemplateRefused",
        }
    ),
    "NoCapacity": frozenset({"Unschedulable"}),
}  # fmt: skip
"""Verdict → the reasons it may carry: the closed list of docs/contracts.md, 4."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?")
_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,255}")
_FIGURE = re.compile(r"[A-Za-z][A-Za-z0-9]{0,63}")
_DECIMAL = re.compile(r"-?[0-9]{1,32}(?:\.[0-9]{1,32})?(?:[eE][+-]?[0-9]{1,3})?")


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


def is_path(text: str) -> bool:
    """Whether the text is a relative path of plain segments that can name nothing outside its folder."""
    segments = text.split("/")
    return len(text) <= MAX_PATH_CHARACTERS and all(
        _SEGMENT.fullmatch(segment) and segment not in (".", "..") for segment in segments
    )


def is_name(text: str) -> bool:
    """Whether the text can name a module, bucket or hardware profile, and a folder made of it."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a file as it lies in the store; `sha256` is over the stored bytes and names the blob."""

    sha256: str
    size: int
    stored_size: int
    encoding: str

    @classmethod
    def from_json(cls, value: object, *, at: str) -> Piece:
        """Read and check one piece; `at` is the place named in errors."""
        fields = _object(value, at, "sha256", "size", "storedSize", "encoding")
        encoding = _one_of(fields["encoding"], ENCODINGS, f"{at}.encoding")
        size = _integer(fields["size"], 1, MAX_PIECE_BYTES, f"{at}.size")
        stored = _integer(fields["storedSize"], 1, size, f"{at}.storedSize")
        if encoding == "identity" and stored != size:
            raise ManifestError(f"{at}.storedSize: must equal size for encoding identity")
        return cls(sha256=_hex(fields["sha256"], f"{at}.sha256"), size=size, stored_size=stored, encoding=encoding)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this piece."""
        return {"sha256": self.sha256, "size": self.size, "storedSize": self.stored_size, "encoding": self.encoding}


@dataclass(frozen=True, kw_only=True)
class File:
    """A file of an artifact; `sha256` and `size` are over the decoded whole. An empty file has no pieces."""

    path: str
    size: int
    sha256: str
    pieces: tuple[Piece, ...]

    @classmethod
    def from_json(cls, value: object, *, at: str) -> File:
        """Read and check one file."""
        fields = _object(value, at, "path", "size", "sha256", "pieces")
        pieces = tuple(
            Piece.from_json(item, at=f"{at}.pieces[{i}]") for i, item in enumerate(_array(fields["pieces"], at))
        )
        size = _integer(fields["size"], 0, MAX_FILE_BYTES, f"{at}.size")
        if size != sum(piece.size for piece in pieces):
            raise ManifestError(f"{at}.size: is not the sum of its pieces' sizes")
        path = _string(fields["path"], f"{at}.path")
        if not is_path(path):
            raise ManifestError(f"{at}.path: {path!r} is no relative path of [A-Za-z0-9._-] segments")
        return cls(path=path, size=size, sha256=_hex(fields["sha256"], f"{at}.sha256"), pieces=pieces)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this file."""
        return {
            "path": self.path,
            "size": self.size,
            "sha256": self.sha256,
            "pieces": [piece.to_json() for piece in self.pieces],
        }


@dataclass(frozen=True, kw_only=True)
class Target:
    """A module, a bucket, a hardware profile: their verdict, and the files of its artifact."""

    module: str
    bucket: str
    hardware: str
    verdict: str
    reason: str
    message: str
    tier: str | None
    request_key: str | None
    fingerprint: Mapping[str, Any] | None
    figures: Mapping[str, str]
    files: tuple[File, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies a target within a revision, and sorts it."""
        return (self.module, self.bucket, self.hardware)

    @property
    def folder(self) -> str:
        """Where the files lie below `revision/` in a pod."""
        return f"{self.module}/{self.bucket}/{self.hardware}"

    @classmethod
    def from_json(cls, value: object, *, at: str) -> Target:
        """Read and check one target. Only a Failed one may lack its requestKey and fingerprint."""
        fields = _object(
            value, at, "module", "bucket", "hardware", "verdict", "reason", "message", "tier", "requestKey",
            "fingerprint", "figures", "files",
        )  # fmt: skip
        verdict = _one_of(fields["verdict"], tuple(REASONS), f"{at}.verdict")
        may_lack = verdict not in ("Kept", "Rejected")
        files = tuple(File.from_json(item, at=f"{at}.files[{i}]") for i, item in enumerate(_array(fields["files"], at)))
        _check_files(files, at)
        tier = None if fields["tier"] is None else _one_of(fields["tier"], TIERS, f"{at}.tier")
        if verdict == "Kept" and (tier is None or not files):
            raise ManifestError(f"{at}: a Kept target needs a tier and files")
        key, fingerprint = fields["requestKey"], fields["fingerprint"]
        return cls(
            module=_name(fields["module"], f"{at}.module"),
            bucket=_name(fields["bucket"], f"{at}.bucket"),
            hardware=_name(fields["hardware"], f"{at}.hardware"),
            verdict=verdict,
            reason=_one_of(fields["reason"], tuple(sorted(REASONS[verdict])), f"{at}.reason"),
            message=_string(fields["message"], f"{at}.message", most=MAX_MESSAGE_CHARACTERS),
            tier=tier,
            request_key=None if key is None and may_lack else _hex(key, f"{at}.requestKey"),
            fingerprint=None if fingerprint is None and may_lack else _mapping(fingerprint, f"{at}.fingerprint"),
            figures=_figures(fields["figures"], f"{at}.figures"),
            files=files,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of this target."""
        return {
            "module": self.module, "bucket": self.bucket, "hardware": self.hardware, "verdict": self.verdict,
            "reason": self.reason, "message": self.message, "tier": self.tier, "requestKey": self.request_key,
            "fingerprint": None if self.fingerprint is None else dict(self.fingerprint),
            "figures": dict(self.figures), "files": [file.to_json() for file in self.files],
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything one (spec, image) came to, for every hardware profile known when it was written."""

    namespace: str
    name: str
    uid: str
    revision: str
    image: str
    image_python_path: str | None
    targets: tuple[Target, ...]

    @property
    def identity(self) -> tuple[str, str, str, str, str]:
        """What must be equal for two manifests to be parts of the same revision."""
        return (self.namespace, self.name, self.uid, self.revision, self.image)

    @classmethod
    def parse(cls, data: bytes, *, digest: str | None = None) -> Manifest:
        """Read a manifest; with `digest`, its bytes are compared with it before they are parsed.

        Raises ManifestError when the bytes are not the ones named, not canonical, or break a rule of the format, and
        UnknownFormatError when `formatVersion` is not 1.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise ManifestError(f"the manifest has {len(data)} bytes, more than {MAX_MANIFEST_BYTES}")
        if digest is not None and digest_of(data) != digest:
            raise ManifestError(f"the bytes have the digest {digest_of(data)}, not {digest}")
        value = load_json(data)
        manifest = cls.from_json(value)
        if canonical_json(value) != data:
            raise ManifestError("the manifest is not canonical JSON")
        return manifest

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """Check a decoded manifest against every rule but that of canonical bytes."""
        check_format_version(value, "the manifest")
        fields = _object(
            value, "manifest", "formatVersion", "namespace", "name", "uid", "revision", "image", "imagePythonPath",
            "targets",
        )  # fmt: skip
        targets = tuple(
            Target.from_json(item, at=f"targets[{i}]") for i, item in enumerate(_array(fields["targets"], "targets"))
        )
        if len(targets) > MAX_TARGETS:
            raise ManifestError(f"targets: {len(targets)} are more than {MAX_TARGETS}")
        _check_sorted([target.key for target in targets], "targets")
        path = fields["imagePythonPath"]
        return cls(
            namespace=_string(fields["namespace"], "namespace", least=1, most=253),
            name=_string(fields["name"], "name", least=1, most=253),
            uid=_string(fields["uid"], "uid", least=1, most=128),
            revision=_string(fields["revision"], "revision", least=1, most=253),
            image=_string(fields["image"], "image", least=1, most=1024),
            image_python_path=None if path is None else _string(path, "imagePythonPath", most=4096),
            targets=targets,
        )

    def to_bytes(self) -> bytes:
        """Return the canonical bytes, checked as a reader will check them. Targets and files are put in order."""
        value = {
            "formatVersion": FORMAT_VERSION, "namespace": self.namespace, "name": self.name, "uid": self.uid,
            "revision": self.revision, "image": self.image, "imagePythonPath": self.image_python_path,
            "targets": [target.to_json() for target in sorted(self.targets, key=lambda target: target.key)],
        }  # fmt: skip
        data = canonical_json(value)
        Manifest.parse(data)
        return data


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


def _object(value: object, at: str, *keys: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ManifestError(f"{at}: must be an object")
    if missing := [key for key in keys if key not in value]:
        raise ManifestError(f"{at}: lacks {', '.join(missing)}")
    if unknown := sorted(set(value) - set(keys)):
        raise ManifestError(f"{at}: has unknown fields: {', '.join(map(repr, unknown))}")
    return value


def _array(value: object, at: str) -> list[Any]:
    if not isinstance(value, list):
        raise ManifestError(f"{at}: must be a list")
    return value


def _mapping(value: object, at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ManifestError(f"{at}: must be an object")
    if len(canonical_json(value)) > 16 * 1024:
        raise ManifestError(f"{at}: is larger than 16 KiB")
    return value


def _figures(value: object, at: str) -> dict[str, str]:
    figures = _mapping(value, at)
    for name, number in figures.items():
        if not _FIGURE.fullmatch(name):
            raise ManifestError(f"{at}: {name!r} is no name of a figure")
        if not isinstance(number, str) or not _DECIMAL.fullmatch(number):
            raise ManifestError(f"{at}.{name}: must be a decimal string")
    return figures


def _string(value: object, at: str, *, least: int = 0, most: int = 4096) -> str:
    if not isinstance(value, str) or not least <= len(value) <= most:
        raise ManifestError(f"{at}: must be a text of {least} to {most} characters")
    return value


def _integer(value: object, least: int, most: int, at: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ManifestError(f"{at}: must be an integer from {least} to {most}")
    return value


def _hex(value: object, at: str) -> str:
    if not isinstance(value, str) or not _HEX.fullmatch(value):
        raise ManifestError(f"{at}: must be 64 lower-case hexadecimal digits")
    return value


def _name(value: object, at: str) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise ManifestError(f"{at}: {value!r} is no name (letters, digits, - and _, at most 63)")
    return value


def _one_of(value: object, allowed: Iterable[str], at: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ManifestError(f"{at}: {value!r} is none of {', '.join(allowed)}")
    return value


def _check_files(files: tuple[File, ...], at: str) -> None:
    if len(files) > MAX_FILES_PER_TARGET:
        raise ManifestError(f"{at}.files: {len(files)} are more than {MAX_FILES_PER_TARGET}")
    _check_sorted([file.path for file in files], f"{at}.files")
    paths = {file.path for file in files}
    for path in paths:
        segments = path.split("/")
        if any("/".join(segments[:i]) in paths for i in range(1, len(segments))):
            raise ManifestError(f"{at}.files: {path!r} lies below another file of the list")


def _check_sorted(keys: list[Any], at: str) -> None:
    for before, after in itertools.pairwise(keys):
        if before == after:
            raise ManifestError(f"{at}: {after!r} is there twice")
        if before > after:
            raise ManifestError(f"{at}: {after!r} is out of order")
