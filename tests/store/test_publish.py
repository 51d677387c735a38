"""What publish accepts from the user's image, what it writes, and what it reports."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from preheat_runtime.manifest import Manifest, canonical_json, digest_of
from store.kit import BUCKET, REFUSALS, REQUEST, Container, Pod, artifact, revision_files, target, write_out
from store.proxy import Behaviour, proxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MODEL = bytes(range(256)) * 400
JOB = "5d1f0f3a-0000-4000-8000-000000000001"


def keys_of(admin: Any, pod: Pod, below: str = "") -> list[str]:
    listed = admin.list_objects_v2(Bucket=BUCKET, Prefix=pod.keys.prefix + below)
    return sorted(item["Key"].removeprefix(pod.keys.prefix) for item in listed.get("Contents", []))


def read(admin: Any, key: str) -> bytes:
    data: bytes = admin.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    return data


def test_the_layout_of_the_store(admin: Any, pod: Pod) -> None:
    write_out(pod, artifact(MODEL))
    digest = pod.publish().message["digest"]
    entry = canonical_json({"formatVersion": 1, "digest": digest})
    assert read(admin, pod.keys.job(JOB)) == entry
    assert read(admin, pod.keys.request(target()["requestKey"])) == entry
    data = read(admin, pod.keys.manifest(digest))
    assert digest_of(data) == digest
    blobs = {piece.sha256 for file in Manifest.parse(data).targets[0].files for piece in file.pieces}
    assert keys_of(admin, pod, "blobs/") == sorted(f"blobs/sha256/{sha256}" for sha256 in blobs)
    for sha256 in blobs:
        assert hashlib.sha256(read(admin, pod.keys.blob(sha256))).hexdigest() == sha256
    assert len(keys_of(admin, pod)) == len(blobs) + 3


def outside(pod: Pod) -> Path:
    secret = pod.directory / "credentials"
    secret.write_text("top secret")
    return secret


def link_file(pod: Pod) -> None:
    (pod.directory / "out/main/batch/model.so").unlink()
    (pod.directory / "out/main/batch/model.so").symlink_to(outside(pod))


def link_folder(pod: Pod) -> None:
    (pod.directory / "out/main").rename(pod.directory / "elsewhere")
    (pod.directory / "out/main").symlink_to(pod.directory / "elsewhere")


def hard_link(pod: Pod) -> None:
    (pod.directory / "out/main/batch/model.so").unlink()
    os.link(outside(pod), pod.directory / "out/main/batch/model.so")


def pipe(pod: Pod) -> None:
    (pod.directory / "out/main/batch/model.so").unlink()
    os.mkfifo(pod.directory / "out/main/batch/model.so")


def folder_for_file(pod: Pod) -> None:
    (pod.directory / "out/main/batch/model.so").unlink()
    (pod.directory / "out/main/batch/model.so").mkdir()


def linked_result(pod: Pod) -> None:
    (pod.directory / "out/result.json").rename(pod.directory / "result.json")
    (pod.directory / "out/result.json").symlink_to("../result.json")


def linked_out(pod: Pod) -> None:
    (pod.directory / "out").rename(pod.directory / "real")
    (pod.directory / "out").symlink_to("real")


def huge_result(pod: Pod) -> None:
    os.truncate(pod.directory / "out/result.json", 9 * 2**20)


def result_is_a_pipe(pod: Pod) -> None:
    (pod.directory / "out/result.json").unlink()
    os.mkfifo(pod.directory / "out/result.json")


def changed(**changes: Any) -> Callable[[Pod], None]:
    return lambda pod: write_out(pod, artifact(MODEL), [target(**changes)])


def text(data: bytes) -> Callable[[Pod], None]:
    return lambda pod: (pod.directory / "out/result.json").write_bytes(data) and None


HOSTILE: dict[str, Callable[[Pod], None]] = {
    "a link to a file": link_file,
    "a link to a folder": link_folder,
    "a hard link": hard_link,
    "a pipe nobody writes to": pipe,
    "a folder for a file": folder_for_file,
    "result.json is a link": linked_result,
    "out is a link": linked_out,
    "result.json is huge": huge_result,
    "result.json is a pipe": result_is_a_pipe,
    "a path that climbs out": changed(files=["../../../credentials"]),
    "a directory that climbs out": changed(directory="../.."),
    "an absolute path": changed(files=["/etc/passwd"]),
    "a file that is not there": changed(files=["nothing"]),
    "a target nobody asked for": changed(bucket="other", directory="main/batch"),
    "a verdict nobody knows": changed(verdict="Splendid"),
    "a reason of another verdict": changed(reason="CompileFailed"),
    "kept without an artifact": changed(files=[]),
    "a figure that is no number": changed(figures={"speedup": "fast|er"}),
    "a number that is no text": changed(figures={"speedup": 1.75}),
    "a key that climbs out": changed(requestKey="../../x"),
    "a fingerprint without end": changed(fingerprint={"torch": "x" * 20_000}),
    "not JSON": text(b"{"),
    "JSON without end": text(b"[" * 100_000),
    "no object": text(b"[]"),
    "another version": text(b'{"formatVersion":2}'),
}


@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_result_is_refused_and_nothing_is_named(admin: Any, pod: Pod, harm: Callable[[Pod], None]) -> None:
    write_out(pod, artifact(MODEL))
    harm(pod)
    ended = pod.publish()
    assert ended.code == 66, ended.stdout
    assert ended.message["reason"] == "Internal"
    assert ended.message["message"].startswith("the compile step left no usable result: ")
    assert ended.stderr == ""
    assert keys_of(admin, pod, "manifests/") == keys_of(admin, pod, "index/") == []
    secret = hashlib.sha256(b"top secret").hexdigest()
    assert f"blobs/sha256/{secret}" not in keys_of(admin, pod)


def test_a_forgotten_target_fails_alone(admin: Any, pod: Pod) -> None:
    write_out(pod, artifact(MODEL))
    request = {**REQUEST, "targets": [*REQUEST["targets"], {"module": "main", "bucket": "one"}]}
    ended = pod.publish(request)
    assert ended.message["targets"][1] == "main|one|Failed|Internal|||"
    assert ended.code == 0


def test_a_message_for_people_cannot_steer_a_terminal(admin: Any, pod: Pod) -> None:
    write_out(pod, artifact(MODEL), [target(message="\x1b[31mred\n" + "x" * 5000)])
    manifest = Manifest.parse(read(admin, pod.keys.manifest(pod.publish().message["digest"])))
    message = manifest.targets[0].message
    assert message.startswith("\N{REPLACEMENT CHARACTER}[31mred\nxxx")
    assert len(message) == 1024


def test_many_targets_still_fit_the_termination_message(pod: Pod) -> None:
    buckets = [f"batch-{i}-sequence-{i * 128}" for i in range(128)]
    write_out(pod, {}, [target(bucket=b, verdict="Failed", reason="Timeout", files=[], tier=None) for b in buckets])
    ended = pod.publish({**REQUEST, "targets": [{"module": "main", "bucket": bucket} for bucket in buckets]})
    assert ended.code == 0
    assert (pod.directory / "termination-log").stat().st_size <= 4096
    assert "targets" not in ended.message
    lines = json.loads(zlib.decompress(base64.b64decode(ended.message["targetsZ"])))
    assert lines == [f"main|{bucket}|Failed|Timeout|1.7500|0.1200|1900000" for bucket in sorted(buckets)]


REQUESTS: dict[str, dict[str, str]] = {
    "none": {"PREHEAT_REQUEST": ""},
    "not JSON": {"PREHEAT_REQUEST": "{"},
    "another version": {"PREHEAT_REQUEST": json.dumps({**REQUEST, "formatVersion": 2})},
    "another namespace": {"PREHEAT_REQUEST": json.dumps({**REQUEST, "namespace": "other"})},
    "a target twice": {"PREHEAT_REQUEST": json.dumps({**REQUEST, "targets": REQUEST["targets"] * 2})},
    "no uid": {"PREHEAT_REQUEST": json.dumps(REQUEST), "PREHEAT_JOB_UID": ""},
    "a uid that is a path": {"PREHEAT_REQUEST": json.dumps(REQUEST), "PREHEAT_JOB_UID": "../x"},
    "a part that is no digest": {"PREHEAT_REQUEST": json.dumps(REQUEST), "PREHEAT_PARTS": "sha256:x"},
}


@pytest.mark.parametrize("env", REQUESTS.values(), ids=REQUESTS.keys())
def test_a_request_that_cannot_be_read(pod: Pod, env: dict[str, str]) -> None:
    write_out(pod, artifact(MODEL))
    ended = pod.run("publish", identity="publish", **{"PREHEAT_JOB_UID": JOB, **env})
    assert (ended.code, ended.message["reason"]) == (64, "Internal")
    assert "PREHEAT_" in ended.message["message"]


@pytest.mark.parametrize(
    ("identity", "env", "reason"),
    [
        *REFUSALS.values(),
        ("publish", {"PREHEAT_STORE_BUCKET": ""}, "StoreDenied"),
        ("publish", {"PREHEAT_STORE_ENDPOINT": "s3.example.org"}, "StoreDenied"),
        ("publish", {"PREHEAT_STORE_CA": "/nonexistent/ca.crt"}, "StoreDenied"),
    ],
    ids=[*REFUSALS, "bucket-unset", "endpoint-no-url", "no-ca"],
)
def test_a_store_that_refuses(admin: Any, pod: Pod, identity: str, env: dict[str, str], reason: str) -> None:
    write_out(pod, artifact(MODEL))
    ended = pod.publish(identity=identity, **env)
    assert (ended.code, ended.message["reason"]) == (70, reason), ended.message
    assert keys_of(admin, pod) == []
    assert "secret" not in (ended.stdout + ended.stderr).replace("Secret", "")


def test_a_store_out_of_reach_is_worth_a_retry(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    from preheat_operator import publish

    write_out(pod, artifact(MODEL))
    env = pod.environment("publish", PREHEAT_REQUEST=json.dumps(REQUEST), PREHEAT_JOB_UID=JOB)
    for name, value in {**env, "PREHEAT_STORE_ENDPOINT": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    assert publish.main(patience=0) == 1
    message = json.loads((pod.directory / "termination-log").read_bytes())
    assert message["reason"] == "StoreUnreachable"


def test_a_store_that_comes_back_is_waited_for(s3: Any, pod: Pod) -> None:
    write_out(pod, artifact(MODEL))
    behaviour = Behaviour(cut_after=-1, cuts_left=12)
    with proxy(s3.port, behaviour) as endpoint:
        ended = pod.publish(PREHEAT_STORE_ENDPOINT=endpoint)
    assert behaviour.cuts_left == 0
    assert (ended.code, "digest" in ended.message) == (0, True)


def published_for(pod: Pod, hardware: str, model: bytes, **env: str) -> Container:
    write_out(pod, artifact(model))
    return pod.publish({**REQUEST, "hardware": hardware}, **env)


def test_parts_become_one_manifest(admin: Any, pod: Pod, server_pod: Pod) -> None:
    first = published_for(pod, "cpu", b"for cpu").message["digest"]
    both = published_for(pod, "h100", b"for h100", PREHEAT_PARTS=first)
    assert [line.split("|")[0:2] for line in both.message["targets"]] == [["main", "batch"]]
    manifest = Manifest.parse(read(admin, pod.keys.manifest(both.message["digest"])))
    assert [each.hardware for each in manifest.targets] == ["cpu", "h100"]
    server_pod.fetch(both.message["digest"])
    files = revision_files(server_pod)
    assert files["main/batch/cpu/model.so"] == b"for cpu"
    assert files["main/batch/h100/model.so"] == b"for h100"


def test_a_merge_job_gives_the_same_digest_as_merging_while_publishing(pod: Pod) -> None:
    cpu = published_for(pod, "cpu", b"for cpu").message["digest"]
    h100 = published_for(pod, "h100", b"for h100").message["digest"]
    both = published_for(pod, "h100", b"for h100", PREHEAT_PARTS=cpu).message["digest"]
    for order in (f"{cpu},{h100}", f"{h100},{cpu}"):
        merged = pod.publish({**REQUEST, "hardware": "", "targets": []}, PREHEAT_PARTS=order)
        assert merged.code == 0, merged.message
        assert merged.message == {"v": 1, "digest": both, "pythonPath": "/app", "targets": []}


@pytest.mark.parametrize("field", ["uid", "revision", "image", "name"])
def test_a_part_of_another_revision_is_refused(pod: Pod, field: str) -> None:
    part = published_for(pod, "cpu", b"for cpu").message["digest"]
    ended = pod.publish({**REQUEST, "hardware": "h100", field: "other"}, PREHEAT_PARTS=part)
    assert (ended.code, ended.message["reason"]) == (66, "ManifestCorrupt")


def test_a_part_with_a_missing_piece_is_refused(admin: Any, pod: Pod) -> None:
    part = published_for(pod, "cpu", b"for cpu" * 100).message["digest"]
    manifest = Manifest.parse(read(admin, pod.keys.manifest(part)))
    file = next(file for file in manifest.targets[0].files if file.path == "model.so")
    admin.delete_object(Bucket=BUCKET, Key=pod.keys.blob(file.pieces[0].sha256))
    ended = published_for(pod, "h100", b"for h100", PREHEAT_PARTS=part)
    assert (ended.code, ended.message["reason"]) == (66, "PieceMissing")
    assert len(keys_of(admin, pod, "manifests/")) == 1


def test_a_replaced_part_is_refused(admin: Any, pod: Pod) -> None:
    part = published_for(pod, "cpu", b"for cpu").message["digest"]
    data = read(admin, pod.keys.manifest(part))
    admin.put_object(Bucket=BUCKET, Key=pod.keys.manifest(part), Body=data.replace(b"/app", b"/bad"))
    ended = published_for(pod, "h100", b"for h100", PREHEAT_PARTS=part)
    assert (ended.code, ended.message["reason"]) == (66, "ManifestCorrupt")


def test_two_publishers_of_one_revision_at_once(admin: Any, pod: Pod, server_pod: Pod, tmp_path: Path) -> None:
    pods = []
    for i in range(4):
        (tmp_path / f"pod-{i}").mkdir()
        pods.append(Pod(tmp_path / f"pod-{i}", pod.s3, pod.tenant))
        write_out(pods[-1], artifact(MODEL * 200))
    ended: list[Container] = []
    threads = [threading.Thread(target=lambda each=each: ended.append(each.publish())) for each in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.code for each in ended] == [0] * 4
    assert len({each.message["digest"] for each in ended}) == 1
    assert len(keys_of(admin, pod, "manifests/")) == 1
    server_pod.fetch(ended[0].message["digest"])
    assert server_pod.receipt()["outcome"] == "Fetched"
