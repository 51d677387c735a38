"""The manifest of a revision: what every part of Preheat agrees to mean by one digest.

A manifest is canonical JSON named by its sha256. `publish` writes it, `fetch` verifies it before anything else is
looked at, the runtime reads it in the serving process. The three run on different Pythons in different images, so the
format and its checks live here once, on the standard library alone, and a reader refuses what it does not know: a
manifest that is accepted was written by this format's rules to the letter.

Errors: every refusal is a `ManifestError` that names the field; `UnknownFormatError` says the version is not ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .canonical import (
    FORMAT_VERSION,
    ManifestError,
    UnknownFormatError,
    canonical_json,
    check_format_version,
    digest_of,
    is_digest,
    load_json,
)  # fmt: skip
from .fields import (
    MAX_PATH_CHARACTERS,
    a_hex,
    a_list,
    a_mapping,
    a_name,
    a_text,
    an_integer,
    an_object,
    check_sorted,
    figures,
    is_name,
    is_path,
    one_of,
)  # fmt: skip
from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What others take from here; how JSON is written and fields are checked is part of the format.
__all__ = [
    "ENCODINGS", "FORMAT_VERSION", "MAX_FILES_PER_TARGET", "MAX_FILE_BYTES", "MAX_MANIFEST_BYTES", "MAX_MESSAGE_CHARACTERS",
    "MAX_PATH_CHARACTERS", "MAX_PIECE_BYTES", "MAX_TARGETS", "REASONS", "TIERS", "File", "Manifest", "ManifestError", "Piece",
    "Target", "UnknownFormatError", "canonical_json", "check_format_version", "digest_of", "is_digest", "is_name", "is_path",
    "load_json",
]  # fmt: skip

MAX_MANIFEST_BYTES: Final = 8 * 1024 * 1024
"""A manifest of 128 targets with a hundred files each stays below; more is refused before it is parsed."""
MAX_PIECE_BYTES: Final = 16 * 1024 * 1024
"""Decoded size of a piece: small enough to hold in memory, to retry, and to load in parallel."""
MAX_FILE_BYTES: Final = 16 * 1024**3
MAX_FILES_PER_TARGET: Final = 4096
MAX_TARGETS: Final = 1024
MAX_MESSAGE_CHARACTERS: Final = 1024
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
        fields = an_object(value, at, "sha256", "size", "storedSize", "encoding")
        encoding = one_of(fields["encoding"], ENCODINGS, f"{at}.encoding")
        size = an_integer(fields["size"], 1, MAX_PIECE_BYTES, f"{at}.size")
        stored = an_integer(fields["storedSize"], 1, size, f"{at}.storedSize")
        if encoding == "identity" and stored != size:
            raise ManifestError(f"{at}.storedSize: must equal size for encoding identity")
        return cls(sha256=a_hex(fields["sha256"], f"{at}.sha256"), size=size, stored_size=stored, encoding=encoding)

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
        fields = an_object(value, at, "path", "size", "sha256", "pieces")
        pieces = tuple(
            Piece.from_json(item, at=f"{at}.pieces[{i}]") for i, item in enumerate(a_list(fields["pieces"], at))
        )
        size = an_integer(fields["size"], 0, MAX_FILE_BYTES, f"{at}.size")
        if size != sum(piece.size for piece in pieces):
            raise ManifestError(f"{at}.size: is not the sum of its pieces' sizes")
        path = a_text(fields["path"], f"{at}.path")
        if not is_path(path):
            raise ManifestError(f"{at}.path: {path!r} is no relative path of [A-Za-z0-9._-] segments")
        return cls(path=path, size=size, sha256=a_hex(fields["sha256"], f"{at}.sha256"), pieces=pieces)

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
        fields = an_object(
            value, at, "module", "bucket", "hardware", "verdict", "reason", "message", "tier", "requestKey",
            "fingerprint", "figures", "files",
        )  # fmt: skip
        verdict = one_of(fields["verdict"], tuple(REASONS), f"{at}.verdict")
        may_lack = verdict not in ("Kept", "Rejected")
        files = tuple(File.from_json(item, at=f"{at}.files[{i}]") for i, item in enumerate(a_list(fields["files"], at)))
        _check_files(files, at)
        tier = None if fields["tier"] is None else one_of(fields["tier"], TIERS, f"{at}.tier")
        if verdict == "Kept" and (tier is None or not files):
            raise ManifestError(f"{at}: a Kept target needs a tier and files")
        key, fingerprint = fields["requestKey"], fields["fingerprint"]
        return cls(
            module=a_name(fields["module"], f"{at}.module"),
            bucket=a_name(fields["bucket"], f"{at}.bucket"),
            hardware=a_name(fields["hardware"], f"{at}.hardware"),
            verdict=verdict,
            reason=one_of(fields["reason"], tuple(sorted(REASONS[verdict])), f"{at}.reason"),
            message=a_text(fields["message"], f"{at}.message", most=MAX_MESSAGE_CHARACTERS),
            tier=tier,
            request_key=None if key is None and may_lack else a_hex(key, f"{at}.requestKey"),
            fingerprint=None if fingerprint is None and may_lack else a_mapping(fingerprint, f"{at}.fingerprint"),
            figures=figures(fields["figures"], f"{at}.figures"),
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
        fields = an_object(
            value, "manifest", "formatVersion", "namespace", "name", "uid", "revision", "image", "imagePythonPath",
            "targets",
        )  # fmt: skip
        targets = tuple(
            Target.from_json(item, at=f"targets[{i}]") for i, item in enumerate(a_list(fields["targets"], "targets"))
        )
        if len(targets) > MAX_TARGETS:
            raise ManifestError(f"targets: {len(targets)} are more than {MAX_TARGETS}")
        check_sorted([target.key for target in targets], "targets")
        path = fields["imagePythonPath"]
        return cls(
            namespace=a_text(fields["namespace"], "namespace", least=1, most=253),
            name=a_text(fields["name"], "name", least=1, most=253),
            uid=a_text(fields["uid"], "uid", least=1, most=128),
            revision=a_text(fields["revision"], "revision", least=1, most=253),
            image=a_text(fields["image"], "image", least=1, most=1024),
            image_python_path=None if path is None else a_text(path, "imagePythonPath", most=4096),
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


def _check_files(files: tuple[File, ...], at: str) -> None:
    if len(files) > MAX_FILES_PER_TARGET:
        raise ManifestError(f"{at}.files: {len(files)} are more than {MAX_FILES_PER_TARGET}")
    check_sorted([file.path for file in files], f"{at}.files")
    paths = {file.path for file in files}
    for path in paths:
        segments = path.split("/")
        if any("/".join(segments[:i]) in paths for i in range(1, len(segments))):
            raise ManifestError(f"{at}.files: {path!r} lies below another file of the list")
