"""`preheat inspect`: everything a manifest says, from a digest, a name or a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cli.found import _report
from preheat_runtime.manifest import digest_of
from store.kit import target
from store.local import here

if TYPE_CHECKING:
    from unit.cli.conftest import Place

FAILED = target(
    bucket="one", verdict="Failed", reason="CompilerMissing", message="no compiler\x1b[31m\ninstall g++", tier=None,
    fingerprint=None, requestKey=None, figures={}, files=[],
)  # fmt: skip


def test_a_name_is_explained(place: Place) -> None:
    digest = place.publish(targets=[target(fingerprint=here()), FAILED])
    ended = place.preheat("inspect", "--store", "store", "vision")
    assert (ended.code, ended.err) == (0, "")
    for words in (
        f"digest      {digest}", "revision    vision-7f3a19c2 of default/vision", "image       local",
        "main/batch/cpu: Kept (Faster), package", "speedup       1.75 x eager", "first answer s  0.1200",
        "torch 2.15.0", "100000", "model.so", target()["requestKey"],
        "main/one/cpu: Failed (CompilerMissing)", "install g++",
    ):  # fmt: skip
        assert " ".join(words.split()) in " ".join(ended.out.split()), words
    assert "\x1b" not in ended.out


def test_json_is_the_manifest_itself(place: Place) -> None:
    digest = place.publish()
    said = place.preheat("inspect", "--store", "store", "--output", "json", digest).json
    assert said["digest"] == digest
    assert said["manifest"]["targets"][0]["files"][0]["path"] == "model.so"
    assert said["others"] == []


def test_a_file_needs_no_store(place: Place) -> None:
    digest = place.publish()
    file = next((place.folder / "store/v1/local.default/manifests/sha256").iterdir())
    by_file = place.preheat("inspect", str(file), "--output", "json").json
    assert by_file["digest"] == digest == digest_of(file.read_bytes())


def test_what_else_there_is_of_a_name_is_listed(place: Place) -> None:
    first = place.publish(image="r:1")
    second = place.publish(image="r:2")
    ended = place.preheat("inspect", "--store", "store", "vision")
    assert f"digest      {second}" in ended.out
    assert f"vision-7f3a19c2 for cpu in image r:1: {first}" in ended.out


def test_the_last_compile_for_an_image_and_hardware_counts(place: Place) -> None:
    first = place.publish(model=b"one")
    second = place.publish(model=b"two")
    said = place.preheat("inspect", "--store", "store", "--output", "json", "vision").json
    assert (said["digest"], said["others"]) == (second, [])
    assert place.preheat("inspect", "--store", "store", first).code == 0, "what is pointed to no longer is still there"


def test_of_a_compile_that_failed_the_name_does_not_point_there(place: Place) -> None:
    good = place.publish()
    bad = place.publish(targets=[FAILED])
    assert place.preheat("inspect", "--store", "store", "--output", "json", "vision").json["digest"] == good
    assert place.preheat("inspect", "--store", "store", bad).code == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("vision",), exits.USAGE, "--store: is needed to find vision"),
        (("--store", "store", "other"), exits.MISSING, "nothing was compiled of other"),
        (("--store", "store", "sha256:" + "0" * 64), exits.MISSING, "ManifestMissing"),
        (("--store", "store", "UPPER"), exits.USAGE, "no digest"),
        (("./none.json",), exits.MISSING, "No such file"),
        (("--store", "store", "--namespace", "other", "vision"), exits.MISSING, "tenant local.other"),
        (("--store", "http://x", "vision"), exits.USAGE, "http://"),
        (("--store", "s3://UPPER", "vision"), exits.USAGE, "no name of a bucket"),
        (("--store", "s3://bucket/../x", "vision"), exits.USAGE, "no prefix"),
        (("--store", "store", "--tenant", "../x", "vision"), exits.USAGE, "--tenant"),
        (("--store", "store", "--namespace", "A", "vision"), exits.USAGE, "--namespace"),
    ],
)
def test_what_cannot_be_found_is_named(place: Place, words: tuple[str, ...], code: int, says: str) -> None:
    place.publish()
    ended = place.preheat("inspect", *words)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err


def test_a_file_that_is_no_manifest(place: Place) -> None:
    (place.folder / "x.json").write_text('{"formatVersion": 2}')
    ended = place.preheat("inspect", "./x.json")
    assert ended.code == exits.MISSING
    assert "formatVersion 2" in ended.err


@pytest.mark.parametrize("name", ["report.json", "other.json"])
def test_a_file_that_is_nested_too_deeply_is_no_fault_of_ours(place: Place, name: str) -> None:
    (place.folder / name).write_text("[" * 100_000 + "]" * 100_000)
    for words in (("inspect", f"./{name}"), ("diff", f"./{name}", f"./{name}")):
        ended = place.preheat(*words)
        assert (ended.code, ended.out) == (exits.MISSING, "")
        assert "is no manifest" in ended.err


def test_a_report_beside_a_manifest_that_is_nested_too_deeply(place: Place) -> None:
    report = b'{"formatVersion": 1, "requestKey": "x", "a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    with pytest.raises(CommandError, match="is not JSON") as raised:
        _report(report, "report.json")
    assert raised.value.code == exits.MISSING
