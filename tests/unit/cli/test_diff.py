"""`preheat diff`: which fields make two keys differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from preheat_compiler.request import asked_for, parse_request, request_key
from preheat_operator.cli import exits
from preheat_operator.cli.diff import differences
from store.kit import target
from store.local import asked_target, here
from unit.compiler import requests

if TYPE_CHECKING:
    from unit.cli.conftest import Place


def asked(*, built_with: str = "2.15.0", **changes: Any) -> dict[str, Any]:
    return asked_for(parse_request(requests.make(**changes)), "main", "batch", here(torch=built_with))


def publish(place: Place, document: dict[str, Any] | None, **more: Any) -> str:
    made, report = asked_target(document)
    return place.publish(targets=[made], files={"main/batch/report.json": report}, **more)


def fields(found: Any) -> dict[str, tuple[Any, Any]]:
    return {each["field"]: (each["a"], each["b"]) for each in found["targets"][0]["differences"]}


def other_bucket() -> dict[str, Any]:
    torch = requests.make()["torch"]
    torch["modules"][0]["buckets"][0]["args"][0]["tensor"]["shape"] = ["n", 128]
    return torch  # type: ignore[no-any-return]


def test_the_hash_of_what_is_kept_is_the_key() -> None:
    made, _ = asked_target(asked())
    assert made["requestKey"] == request_key(asked())


CHANGES: dict[str, tuple[dict[str, Any], dict[str, tuple[Any, Any]]]] = {
    "image": ({"image": "registry/vision:2"}, {"image": ("registry/vision:1.4", "registry/vision:2")}),
    "factory": (
        {"torch": {**requests.make()["torch"], "factory": "model:other"}}, {"torch.factory": ("model:load", "model:other")},
    ),
    "bucket": ({"torch": other_bucket()}, {"bucket.args[0].tensor.shape[1]": (64, 128)}),
    "keepIf": ({"keepIf": {"minSpeedup": "1.05", "maxError": "1"}}, {"keepIf.maxError": (None, "1")}),
    "torch": ({"built_with": "2.16.0"}, {"fingerprint.torch": ("2.15.0", "2.16.0")}),
}  # fmt: skip


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_the_field_that_differs_is_named(
    place: Place, change: dict[str, Any], expected: dict[str, tuple[Any, Any]]
) -> None:
    a, b = publish(place, asked()), publish(place, asked(**change))
    ended = place.preheat("diff", "--store", "store", "--output", "json", a, b)
    assert ended.code == exits.DIFFERENT
    assert fields(ended.json) == expected
    text = place.preheat("diff", "--store", "store", a, b).out
    for field in expected:
        assert f"  {field}: " in text
    assert len(text.splitlines()) == 1 + len(expected)


def test_equal_keys_are_equal_whatever_was_made_of_them(place: Place) -> None:
    a, b = publish(place, asked()), publish(place, asked(), model=b"another build")
    ended = place.preheat("diff", "--store", "store", a, b)
    assert (ended.code, "the same key" in ended.out) == (0, True)


def test_names_files_and_digests_can_be_mixed(place: Place) -> None:
    digest = publish(place, asked())
    publish(place, asked(image="r:2"), name="other")
    (place.folder / "report.json").write_bytes(asked_target(asked(image="r:3"))[1])
    for other, image in (("other", "r:2"), ("./report.json", "r:3")):
        said = place.preheat("diff", "--store", "store", "--output", "json", digest, other).json
        assert fields(said) == {"image": ("registry/vision:1.4", image)}


def test_without_the_asked_document_it_is_said_and_the_manifest_is_compared(place: Place) -> None:
    a = publish(place, None)
    b = place.publish(targets=[target(fingerprint=here(torch="2.16.0"), requestKey="f" * 64)], image="r:2")
    ended = place.preheat("diff", "--store", "store", a, b)
    assert ended.code == exits.DIFFERENT
    assert "A: report.json does not say what was asked; only fingerprint, image are compared" in ended.out
    assert "B: report.json of main/batch/cpu: is no report.json of this version" in ended.out
    assert 'fingerprint.torch: "2.15.0" -> "2.16.0"' in ended.out
    assert 'image: "local" -> "r:2"' in ended.out


def test_an_asked_document_that_is_not_the_keys_is_not_believed(place: Place) -> None:
    made, _ = asked_target(asked())
    _, other = asked_target(asked(image="forged"))
    a = place.publish(targets=[made], files={"main/batch/report.json": other})
    b = publish(place, asked(image="r:2"))
    ended = place.preheat("diff", "--store", "store", a, b)
    assert "not what the key says" in ended.out
    assert "forged" not in ended.out


def test_targets_are_matched_by_name_and_the_rest_is_listed(place: Place) -> None:
    both = [target(bucket=bucket, fingerprint=here(), files=[]) | {"verdict": "Rejected", "reason": "SpeedupBelowMinimum"}
            for bucket in ("batch", "one")]  # fmt: skip
    a, b = place.publish(targets=both), place.publish(targets=both[1:])
    said = place.preheat("diff", "--store", "store", "--output", "json", a, b).json
    assert (said["onlyA"], said["onlyB"], said["same"]) == (["main/batch/cpu"], [], False)
    assert [each["a"]["target"] for each in said["targets"]] == ["main/one/cpu"]


@pytest.mark.parametrize(
    ("a", "b", "paths"),
    [
        ({"x": 1}, {"x": 1}, []),
        ({"x": 1}, {"x": True}, ["x"]),
        ({"x": [1, 2]}, {"x": [1]}, ["x[1]"]),
        ({"x": None}, {}, ["x"]),
        ({"x": {"y": {"z": 1}}}, {"x": {"y": {"z": 2, "w": 1}}}, ["x.y.w", "x.y.z"]),
        ({"x": {}}, {"x": []}, ["x"]),
    ],
)
def test_leaves(a: Any, b: Any, paths: list[str]) -> None:
    assert [each.field for each in differences(a, b)] == paths
