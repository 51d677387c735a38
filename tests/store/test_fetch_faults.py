"""Whatever is wrong with the store or what it holds: nothing becomes visible, the pod starts, the reason says which."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from preheat_runtime.manifest import Manifest, canonical_json, digest_of
from store.kit import BUCKET, Pod, artifact, write_out
from store.proxy import Behaviour, proxy

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

MODEL = random.Random(1).randbytes(200_000) + b"\0" * 200_000


@pytest.fixture
def digest(pod: Pod) -> str:
    write_out(pod, artifact(MODEL))
    published = pod.publish()
    assert published.code == 0, published.message
    return str(published.message["digest"])


def assert_cold(pod: Pod, reason: str, *, stopped: bool = False) -> dict[str, Any]:
    receipt = pod.receipt()
    assert (receipt["outcome"], receipt["reason"]) == ("Failed", reason), receipt
    assert receipt["message"]
    # After a kill the mark stays, so that the next run of this container does not try again.
    mark = [".attempt"] if reason == "Killed" and not stopped else []
    assert sorted(path.name for path in pod.directory.iterdir()) == [*mark, "fetch.json", "site"]
    assert (pod.directory / "site/preheat_runtime/manifest.py").is_file()
    return receipt


def model_piece(admin: Any, pod: Pod, digest: str) -> tuple[str, bytes]:
    """Key and stored bytes of the model's first piece."""
    data = admin.get_object(Bucket=BUCKET, Key=pod.keys.manifest(digest))["Body"].read()
    file = next(file for file in Manifest.parse(data).targets[0].files if file.path == "model.so")
    key = pod.keys.blob(file.pieces[0].sha256)
    return key, admin.get_object(Bucket=BUCKET, Key=key)["Body"].read()


ALTERATIONS: dict[str, Callable[[bytes], bytes]] = {
    "one bit": lambda data: data[:1000] + bytes([data[1000] ^ 1]) + data[1001:],
    "shorter": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "empty": lambda data: b"",
    "another valid frame": lambda data: zstandard.compress(MODEL[::-1]),
    "a bomb": lambda data: zstandard.compress(b"\0" * 500_000_000)[: len(data)],
}


@pytest.mark.parametrize("alteration", ALTERATIONS.values(), ids=ALTERATIONS.keys())
def test_an_altered_piece(
    admin: Any, pod: Pod, server_pod: Pod, digest: str, alteration: Callable[[bytes], bytes]
) -> None:
    key, data = model_piece(admin, pod, digest)
    admin.put_object(Bucket=BUCKET, Key=key, Body=alteration(data))
    assert server_pod.fetch(digest).code == 0
    assert_cold(server_pod, "PieceCorrupt")


def test_publishing_again_heals_an_altered_piece(admin: Any, pod: Pod, server_pod: Pod, digest: str) -> None:
    key, data = model_piece(admin, pod, digest)
    admin.put_object(Bucket=BUCKET, Key=key, Body=ALTERATIONS["one bit"](data))
    assert pod.publish().message["digest"] == digest
    server_pod.fetch(digest)
    assert server_pod.receipt()["outcome"] == "Fetched"


def test_a_missing_piece(admin: Any, pod: Pod, server_pod: Pod, digest: str) -> None:
    key, _ = model_piece(admin, pod, digest)
    admin.delete_object(Bucket=BUCKET, Key=key)
    server_pod.fetch(digest)
    assert key.rpartition("/")[2] in assert_cold(server_pod, "PieceMissing")["message"]


def test_a_missing_manifest(server_pod: Pod) -> None:
    server_pod.fetch("sha256:" + "0" * 64)
    assert_cold(server_pod, "ManifestMissing")


@pytest.mark.parametrize("replacement", ["valid", "garbage", "empty"])
def test_a_replaced_manifest(admin: Any, pod: Pod, server_pod: Pod, digest: str, replacement: str) -> None:
    key = pod.keys.manifest(digest)
    data = admin.get_object(Bucket=BUCKET, Key=key)["Body"].read()
    # A forger's best: canonical, every rule kept, all pieces there, only the contents are not those of the digest.
    bodies = {"valid": data.replace(b"vision-7f3a19c2", b"vision-00000000"), "garbage": b"\xff{", "empty": b""}
    admin.put_object(Bucket=BUCKET, Key=key, Body=bodies[replacement])
    server_pod.fetch(digest)
    assert_cold(server_pod, "ManifestCorrupt")


def forged(admin: Any, pod: Pod, digest: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Publish a manifest with its right digest that an honest publisher would not write."""
    value = json.loads(admin.get_object(Bucket=BUCKET, Key=pod.keys.manifest(digest))["Body"].read())
    change(value)
    data = canonical_json(value)
    admin.put_object(Bucket=BUCKET, Key=pod.keys.manifest(digest_of(data)), Body=data)
    return digest_of(data)


def more_than_the_disk_has(value: dict[str, Any]) -> None:
    piece = {"sha256": "0" * 64, "size": 2**24, "storedSize": 2**24, "encoding": "identity"}
    count = shutil.disk_usage(tempfile.gettempdir()).free // (16 * 2**30) + 1
    if count > 48:
        pytest.skip("this disk is larger than anything a manifest can describe")
    value["targets"][0]["files"] += [
        {"path": f"z{i:03}", "sha256": "0" * 64, "size": 16 * 2**30, "pieces": [piece] * 1024} for i in range(count)
    ]


def another_decoded_size(value: dict[str, Any]) -> None:
    for file in value["targets"][0]["files"]:
        if file["path"] == "model.so":
            file["size"] += 7
            file["pieces"][0]["size"] += 7


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], None]]] = {
    "a path that climbs out": (
        "ManifestCorrupt",
        lambda value: value["targets"][0]["files"][0].update(path="../../../etc/passwd"),
    ),
    "an absolute path": ("ManifestCorrupt", lambda value: value["targets"][0]["files"][0].update(path="/etc/x")),
    "a file made of other pieces": (
        "PieceCorrupt",
        lambda value: value["targets"][0]["files"][0].update(sha256="0" * 64),
    ),
    "sizes that do not add up": ("ManifestCorrupt", lambda value: value["targets"][0]["files"][0].update(size=5)),
    "a piece that decodes to another size": ("PieceCorrupt", another_decoded_size),
    "a later format": ("UnknownFormat", lambda value: value.update(formatVersion=2)),
    "more than the disk has": ("NoSpace", more_than_the_disk_has),
}


@pytest.mark.parametrize(("reason", "change"), FORGERIES.values(), ids=FORGERIES.keys())
def test_a_forged_manifest_with_its_right_digest(
    admin: Any, pod: Pod, server_pod: Pod, digest: str, reason: str, change: Callable[[dict[str, Any]], None]
) -> None:
    server_pod.fetch(forged(admin, pod, digest, change))
    assert_cold(server_pod, reason)


def test_a_failed_fetch_takes_an_older_revision_away(admin: Any, pod: Pod, server_pod: Pod, digest: str) -> None:
    server_pod.fetch(digest)
    assert (server_pod.directory / "revision").is_dir()
    server_pod.fetch("sha256:" + "0" * 64)
    assert_cold(server_pod, "ManifestMissing")


def test_no_store_at_all(server_pod: Pod, digest: str) -> None:
    server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT="http://127.0.0.1:9")
    assert_cold(server_pod, "StoreUnreachable")


def test_a_store_that_never_answers(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(swallow=True)) as endpoint:
        server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT=endpoint, PREHEAT_FETCH_TIMEOUT_SECONDS="2")
    assert_cold(server_pod, "DeadlineExceeded")


def test_a_store_too_slow_for_the_deadline(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(bytes_per_second=20_000)) as endpoint:
        server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT=endpoint, PREHEAT_FETCH_TIMEOUT_SECONDS="3")
    assert_cold(server_pod, "DeadlineExceeded")


def test_connections_that_break_now_and_then(s3: Any, server_pod: Pod, digest: str) -> None:
    behaviour = Behaviour(cut_after=60_000, cuts_left=2)
    with proxy(s3.port, behaviour) as endpoint:
        server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT=endpoint)
    assert behaviour.cuts_left == 0
    assert server_pod.receipt()["outcome"] == "Fetched"


def test_connections_that_always_break(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(cut_after=60_000, cuts_left=1000)) as endpoint:
        server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT=endpoint)
    assert_cold(server_pod, "StoreUnreachable")


def test_no_secret(server_pod: Pod, digest: str) -> None:
    server_pod.fetch(digest, identity="missing")
    assert "Secret" in assert_cold(server_pod, "StoreCredentialsMissing")["message"]


def test_a_wrong_secret_is_denied_and_never_shown(server_pod: Pod, digest: str) -> None:
    ended = server_pod.fetch(digest, identity="wrong")
    assert_cold(server_pod, "StoreDenied")
    everything = ended.stdout + ended.stderr + (server_pod.directory / "fetch.json").read_text()
    assert "not-the-secret" not in everything
    assert "publish-key" not in everything


def test_no_such_bucket(server_pod: Pod, digest: str) -> None:
    server_pod.fetch(digest, PREHEAT_STORE_BUCKET="no-such-bucket")
    assert_cold(server_pod, "StoreDenied")


def children(process: subprocess.Popen[str]) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def wait_for_worker(process: subprocess.Popen[str]) -> int:
    for _ in range(600):
        if found := children(process):
            return found[0]
        time.sleep(0.05)
    raise AssertionError("the worker did not start")


def test_a_killed_worker_is_reported_and_the_container_succeeds(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(swallow=True)) as endpoint:
        process = server_pod.start(
            "fetch", identity="fetch", PREHEAT_MANIFEST=digest, PREHEAT_STORE_ENDPOINT=endpoint
        )  # fmt: skip
        worker = wait_for_worker(process)
        os.kill(worker, signal.SIGKILL)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(stdout)["reason"] == "Killed"
    assert_cold(server_pod, "Killed")
    # The kubelet runs it again when the kernel killed for memory; the store, whole again, is not asked a second time.
    again = server_pod.start("fetch", identity="fetch", PREHEAT_MANIFEST=digest)
    again.communicate(timeout=60)
    assert again.returncode == 0
    assert "former attempt" in assert_cold(server_pod, "Killed")["message"]


def test_the_worker_asks_to_be_killed_first(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(swallow=True)) as endpoint:
        process = server_pod.start(
            "fetch", identity="fetch", PREHEAT_MANIFEST=digest, PREHEAT_STORE_ENDPOINT=endpoint
        )  # fmt: skip
        score = Path(f"/proc/{wait_for_worker(process)}/oom_score_adj")
        for _ in range(200):
            if score.read_text().strip() == "1000":
                break
            time.sleep(0.05)
        found = score.read_text().strip()
        process.terminate()
        process.communicate(timeout=60)
    assert found == "1000"


def test_a_whole_container_killed_is_not_tried_twice(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(swallow=True)) as endpoint:
        process = server_pod.start(
            "fetch", identity="fetch", PREHEAT_MANIFEST=digest, PREHEAT_STORE_ENDPOINT=endpoint
        )  # fmt: skip
        worker = wait_for_worker(process)
        # As with memory.oom.group: everything in the container at once.
        process.kill()
        os.kill(worker, signal.SIGKILL)
        process.communicate(timeout=60)
    assert process.returncode != 0
    assert not (server_pod.directory / "fetch.json").exists()
    assert server_pod.fetch(digest).code == 0
    assert "former attempt" in assert_cold(server_pod, "Killed")["message"]


def test_a_pod_that_is_deleted_meanwhile_stops_at_once(s3: Any, server_pod: Pod, digest: str) -> None:
    with proxy(s3.port, Behaviour(swallow=True)) as endpoint:
        process = server_pod.start(
            "fetch", identity="fetch", PREHEAT_MANIFEST=digest, PREHEAT_STORE_ENDPOINT=endpoint
        )  # fmt: skip
        worker = wait_for_worker(process)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert not Path(f"/proc/{worker}").exists()
    assert_cold(server_pod, "Killed", stopped=True)
    assert server_pod.fetch(digest).log["outcome"] == "Fetched", "a restart of the container tries again"


def test_a_volume_that_cannot_be_written(server_pod: Pod, digest: str) -> None:
    (server_pod.directory / "site").write_text("in the way, and replaced")
    (server_pod.directory / ".incoming").write_text("in the way, and removed")
    assert server_pod.fetch(digest).log["outcome"] == "Fetched"
    gone = server_pod.fetch(digest, PREHEAT_DIR="/proc/nowhere")
    assert (gone.code, gone.log["outcome"], gone.log["reason"]) == (0, "Failed", "Internal")


def test_manifests_are_the_bytes_of_their_digest(admin: Any, pod: Pod, digest: str) -> None:
    data = admin.get_object(Bucket=BUCKET, Key=pod.keys.manifest(digest))["Body"].read()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == digest
