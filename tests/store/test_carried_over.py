"""An earlier revision is brought beside the request, and what of it is in the new one is stored once and counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from store.kit import BUCKET, REQUEST, artifact, target, write_out

if TYPE_CHECKING:
    from store.kit import Container, Pod

NEXT = {**REQUEST, "revision": "vision-new"}


def toolkit(pod: Pod, base: str, **env: str) -> Container:
    return pod.run("toolkit", identity="publish", PREHEAT_REQUEST=json.dumps({**NEXT, "base": base}), **env)


def first(pod: Pod, **changes: Any) -> str:
    write_out(pod, artifact(b"compiled" * 4000), [target(**changes)])
    return str(pod.publish().message["digest"])


def blobs(admin: Any, pod: Pod) -> set[str]:
    listed = admin.list_objects_v2(Bucket=BUCKET, Prefix=f"{pod.keys.prefix}blobs/")
    return {entry["Key"] for entry in listed.get("Contents", ())}


def test_what_it_has_for_this_profile_is_laid_out_as_in_a_pod(pod: Pod) -> None:
    digest = first(pod)
    ended = toolkit(pod, digest)
    assert ended.code == 0, ended.stderr
    base = pod.directory / "base"
    assert sorted(str(p.relative_to(base)) for p in base.rglob("*") if p.is_file()) == [
        "main/batch/cpu/model.so", "main/batch/cpu/target.json", "manifest.json",
    ]  # fmt: skip
    assert (base / "main/batch/cpu/model.so").read_bytes() == b"compiled" * 4000
    assert toolkit(pod, digest).code == 0, "it can run again in the same pod"


def test_the_same_artifact_is_stored_once_and_counted(admin: Any, pod: Pod) -> None:
    digest = first(pod)
    before = blobs(admin, pod)
    write_out(pod, {**artifact(b"compiled" * 4000), "main/batch/report.json": b'{"another":1}\n'})
    ended = pod.publish({**NEXT, "base": digest})
    assert ended.message["carried"] == 1
    assert ended.message["digest"] != digest
    new = blobs(admin, pod) - before
    assert len(new) <= 3, "reports are all that is new"
    fetched = pod.fetch(ended.message["digest"])
    assert fetched.code == 0
    assert (pod.directory / "revision/main/batch/cpu/model.so").read_bytes() == b"compiled" * 4000


def test_another_artifact_is_not_counted_whatever_it_says(pod: Pod) -> None:
    digest = first(pod)
    write_out(pod, artifact(b"another" * 4000), [target(message="carried over from the revision before")])
    assert "carried" not in pod.publish({**NEXT, "base": digest}).message


def test_a_rejected_target_is_not_counted(pod: Pod) -> None:
    changes = {"verdict": "Rejected", "reason": "NoDifference", "tier": None}
    digest = first(pod, **changes)
    assert toolkit(pod, digest).code == 0
    write_out(pod, artifact(b"compiled" * 4000), [target(**changes)])
    assert "carried" not in pod.publish({**NEXT, "base": digest}).message


def test_of_what_stays_rejected_the_report_is_brought_too(pod: Pod) -> None:
    digest = first(pod, verdict="Rejected", reason="NoDifference", tier=None)
    assert toolkit(pod, digest).code == 0
    base = pod.directory / "base" / "main/batch/cpu"
    assert (base / "report.json").read_bytes() == (pod.directory / "out/main/batch/report.json").read_bytes()
    assert not (base / "report.html").exists()


@pytest.mark.parametrize("trouble", ["no manifest", "no piece", "no store"])
def test_an_earlier_revision_that_cannot_be_had_is_no_fault(admin: Any, pod: Pod, trouble: str) -> None:
    digest = first(pod)
    if trouble == "no manifest":
        digest = "sha256:" + "0" * 64
    if trouble == "no piece":
        for key in blobs(admin, pod):
            admin.delete_object(Bucket=BUCKET, Key=key)
    env = {"PREHEAT_STORE_ENDPOINT": "http://127.0.0.1:9"} if trouble == "no store" else {}
    ended = toolkit(pod, digest, **env)
    assert ended.code == 0
    assert "no earlier revision" in ended.stdout
    assert not (pod.directory / "base").exists()


@pytest.mark.parametrize("base", ["latest", "", 7])
def test_a_base_that_is_no_digest_is_refused(pod: Pod, base: Any) -> None:
    for ended in (toolkit(pod, base), pod.publish({**NEXT, "base": base})):
        assert ended.code == 64
        assert "PREHEAT_REQUEST.base" in ended.message["message"]
