"""The manifest's format: one byte string for one meaning, and nothing else accepted."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preheat_runtime.manifest import (
    REASONS,
    Manifest,
    ManifestError,
    UnknownFormatError,
    canonical_json,
    digest_of,
    is_digest,
    is_name,
    is_path,
)

PIECE = {"sha256": "a" * 64, "size": 10, "storedSize": 4, "encoding": "zstd"}
FILE = {"path": "model.so", "size": 10, "sha256": "b" * 64, "pieces": [PIECE]}
TARGET: dict[str, Any] = {
    "module": "main", "bucket": "batch", "hardware": "cpu", "verdict": "Kept", "reason": "Faster", "message": "fast",
    "tier": "package", "requestKey": "c" * 64, "fingerprint": {"torch": "2.15.0", "gpuName": None},
    "figures": {"speedup": "1.75"}, "files": [FILE],
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    "formatVersion": 1, "namespace": "prod", "name": "vision", "uid": "u", "revision": "vision-1", "image": "i:1",
    "imagePythonPath": None, "targets": [TARGET],
}  # fmt: skip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def without(value: Any, path: str) -> Any:
    changed = copy.deepcopy(value)
    *parents, last = path.split(".")
    at = changed
    for key in parents:
        at = at[int(key) if key.isdigit() else key]
    del at[last]
    return changed


def with_(path: str, new: Any) -> Any:
    changed = copy.deepcopy(MANIFEST)
    *parents, last = path.split(".")
    at = changed
    for key in parents:
        at = at[int(key) if key.isdigit() else key]
    at[int(last) if last.isdigit() else last] = new
    return changed


def test_a_manifest_survives_the_way_there_and_back() -> None:
    data = canonical_json(MANIFEST)
    manifest = Manifest.parse(data, digest=digest_of(data))
    assert manifest.to_bytes() == data
    assert manifest.targets[0].folder == "main/batch/cpu"


def test_the_digest_is_of_these_very_bytes() -> None:
    assert digest_of(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert canonical_json({"b": 1, "a": ["é", None]}) == '{"a":["é",null],"b":1}\n'.encode()


@given(JSON)
def test_canonical_json_says_the_same_and_only_once(value: Any) -> None:
    try:
        data = canonical_json(value)
    except ManifestError as error:
        assert "surrogate" in str(error) or "deeply" in str(error)  # noqa: PT017 - either is a right answer
        return
    assert json.loads(data) == value
    assert canonical_json(json.loads(data)) == data


@pytest.mark.parametrize("value", [1.5, float("nan"), {"a": [0.0]}, {1: "x"}, b"x", {"a": {2}}])
def test_what_canonical_json_cannot_say(value: Any) -> None:
    with pytest.raises(ManifestError):
        canonical_json(value)


def test_floats_are_answered_with_the_remedy() -> None:
    with pytest.raises(ManifestError, match=r"\$\.figures\.speedup: float .*: write a decimal string"):
        canonical_json({"figures": {"speedup": 1.75}})


def test_altered_bytes_are_refused_before_they_are_parsed() -> None:
    data = canonical_json(MANIFEST)
    with pytest.raises(ManifestError, match="digest"):
        Manifest.parse(b"{" * 100_000, digest=digest_of(data))


@pytest.mark.parametrize("form", ["indented", "no newline", "duplicate key", "escaped"])
def test_other_bytes_for_the_same_meaning_are_refused(form: str) -> None:
    data = canonical_json(MANIFEST)
    other = {
        "indented": json.dumps(MANIFEST, indent=1).encode(),
        "no newline": data[:-1],
        "duplicate key": data.replace(b'"uid":"u"', b'"uid":"x","uid":"u"'),
        "escaped": data.replace(b"vision-1", rb"vision\u002d1"),
    }[form]
    with pytest.raises(ManifestError, match="canonical"):
        Manifest.parse(other)


@pytest.mark.parametrize("version", [0, 2, "1", True, None, 1.0])
def test_another_format_is_named_as_such(version: Any) -> None:
    with pytest.raises(UnknownFormatError, match="formatVersion"):
        Manifest.from_json({**MANIFEST, "formatVersion": version})


FIELDS = (
    [key for key in MANIFEST if key != "formatVersion"]
    + [f"targets.0.{key}" for key in TARGET]
    + [f"targets.0.files.0.{key}" for key in FILE]
    + [f"targets.0.files.0.pieces.0.{key}" for key in PIECE]
)


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_needed_and_its_lack_is_named(path: str) -> None:
    with pytest.raises(ManifestError, match=path.rpartition(".")[2]):
        Manifest.from_json(without(MANIFEST, path))


@pytest.mark.parametrize(
    "path", ["extra", "targets.0.extra", "targets.0.files.0.extra", "targets.0.files.0.pieces.0.extra"]
)
def test_unknown_fields_are_refused(path: str) -> None:
    with pytest.raises(ManifestError, match="unknown fields: 'extra'"):
        Manifest.from_json(with_(path, 1))


WRONG = [
    ("namespace", ""), ("uid", 5), ("image", None), ("imagePythonPath", 5), ("targets", {}),
    ("targets.0.module", "../x"), ("targets.0.module", "a/b"), ("targets.0.bucket", "."), ("targets.0.hardware", "x|y"),
    ("targets.0.module", "x" * 64), ("targets.0.verdict", "kept"), ("targets.0.reason", "Timeout"),
    ("targets.0.message", "x" * 1025), ("targets.0.tier", "other"), ("targets.0.tier", None),
    ("targets.0.requestKey", None), ("targets.0.requestKey", "C" * 64), ("targets.0.fingerprint", None),
    ("targets.0.fingerprint", []), ("targets.0.figures", {"speedup": 1}), ("targets.0.figures", {"speedup": "inf"}),
    ("targets.0.figures", {"a b": "1"}), ("targets.0.files", []),
    ("targets.0.files.0.path", "/x"), ("targets.0.files.0.path", "a//b"), ("targets.0.files.0.path", "a/../b"),
    ("targets.0.files.0.path", ""), ("targets.0.files.0.path", "a\n"), ("targets.0.files.0.path", "x" * 600),
    ("targets.0.files.0.size", 11), ("targets.0.files.0.size", -1), ("targets.0.files.0.size", True),
    ("targets.0.files.0.size", 2**40), ("targets.0.files.0.sha256", "b" * 63),
    ("targets.0.files.0.pieces.0.size", 0), ("targets.0.files.0.pieces.0.size", 16 * 2**20 + 1),
    ("targets.0.files.0.pieces.0.storedSize", 11), ("targets.0.files.0.pieces.0.storedSize", 0),
    ("targets.0.files.0.pieces.0.encoding", "gzip"), ("targets.0.files.0.pieces.0.encoding", "identity"),
    ("targets.0.files.0.pieces.0.sha256", "../../x"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{path}-{str(value)[:12]!r}" for path, value in WRONG])
def test_wrong_values_are_refused(path: str, value: Any) -> None:
    with pytest.raises(ManifestError):
        Manifest.from_json(with_(path, value))


def test_only_a_failed_target_may_lack_key_and_fingerprint() -> None:
    failed = {**TARGET, "verdict": "Failed", "reason": "Timeout", "requestKey": None, "fingerprint": None, "files": []}
    assert Manifest.from_json({**MANIFEST, "targets": [failed]}).targets[0].request_key is None


@pytest.mark.parametrize("paths", [["b", "a"], ["a", "a"], ["a", "a/b"], ["a", "a.so", "a/b"]])
def test_files_are_sorted_different_and_never_below_each_other(paths: list[str]) -> None:
    with pytest.raises(ManifestError, match=r"targets\[0\].files"):
        Manifest.from_json(with_("targets.0.files", [{**FILE, "path": path} for path in paths]))


@pytest.mark.parametrize("hardware", [["b", "a"], ["a", "a"]])
def test_targets_are_sorted_and_different(hardware: list[str]) -> None:
    with pytest.raises(ManifestError, match="targets: "):
        Manifest.from_json({**MANIFEST, "targets": [{**TARGET, "hardware": name} for name in hardware]})


def test_every_verdict_takes_its_reasons_only() -> None:
    everything = {reason for reasons in REASONS.values() for reason in reasons}
    for verdict, reasons in REASONS.items():
        for reason in sorted(everything):
            value = with_("targets.0.verdict", verdict)
            value["targets"][0]["reason"] = reason
            if reason in reasons:
                Manifest.from_json(value)
            else:
                with pytest.raises(ManifestError, match="reason"):
                    Manifest.from_json(value)


@given(st.text(max_size=40))
def test_a_path_never_leaves_its_folder(text: str) -> None:
    if is_path(text):
        assert not text.startswith("/")
        assert not {"", ".", ".."} & set(text.split("/"))
        assert text.isascii()
        assert text.isprintable()


@given(st.text(max_size=70))
def test_a_name_is_one_segment(text: str) -> None:
    if is_name(text):
        assert is_path(text)
        assert "/" not in text
        assert len(text) <= 63


@given(st.binary(max_size=200))
def test_nothing_but_manifests_is_accepted(data: bytes) -> None:
    with pytest.raises(ManifestError):
        Manifest.parse(data)


@given(st.binary(max_size=50))
def test_digests_are_digests(data: bytes) -> None:
    assert is_digest(digest_of(data))
    assert not is_digest(digest_of(data).upper())
    assert not is_digest(digest_of(data) + "\n")
