"""What publish puts into the store, fetch brings into a pod, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
import stat
import subprocess
import sys

import pytest

from preheat_runtime import bytecode
from store.kit import BUCKET, REQUEST, Pod, artifact, fingerprint, revision_files, target, write_out


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize(
    "model",
    [b"x" * 100, noise(1000), noise(17 * 2**20) + b"\0" * 2**20, b"", b"0123456789abcdef" * (3 * 2**20)],
    ids=["small", "noise", "two-pieces-of-noise", "empty", "compressible"],
)
def test_fetch_brings_exactly_what_publish_was_given(pod: Pod, server_pod: Pod, model: bytes) -> None:
    files = artifact(model)
    write_out(pod, files)
    published = pod.publish()
    assert published.code == 0, published.stderr
    assert published.message["targets"] == ["main|batch|Kept|Faster|1.7500|0.1200|1900000"]
    assert published.message["pythonPath"] == "/app"
    digest = published.message["digest"]

    fetched = server_pod.fetch(digest)
    assert fetched.code == 0, fetched.stderr
    receipt = server_pod.receipt()
    assert (receipt["outcome"], receipt["reason"], receipt["manifest"]) == ("Fetched", "", digest), receipt
    there = revision_files(server_pod)
    manifest = there.pop("manifest.json")
    assert "sha256:" + hashlib.sha256(manifest).hexdigest() == digest
    del files["main/batch/report.json"]  # for people: a pod does not wait for it
    assert there == {f"main/batch/cpu/{path.removeprefix('main/batch/')}": data for path, data in files.items()}
    assert receipt["bytes"] == len(manifest) + sum(map(len, files.values()))


def test_files_can_be_read_by_any_user_and_nothing_private_is_left(pod: Pod, server_pod: Pod) -> None:
    write_out(pod, artifact(noise(1000)))
    os.umask(0o077)
    try:
        server_pod.fetch(pod.publish().message["digest"])
    finally:
        os.umask(0o022)
    assert sorted(path.name for path in server_pod.directory.iterdir()) == ["fetch.json", "revision", "site"]
    for path in server_pod.directory.rglob("*"):
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o755 if path.is_dir() or path.suffix == ".so" else 0o644), path


def test_torch_would_find_the_hook_of_a_site_folder(server_pod: Pod) -> None:
    server_pod.fetch("none")
    code = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='torch.backends')])"
    env = {"PYTHONPATH": str(server_pod.directory / "site")}
    found = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "['preheat_runtime.hook:autoload']"
    code = "import preheat_runtime.manifest as m; print(m.__file__)"
    found = subprocess.run([sys.executable, "-S", "-c", code], env=env, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(server_pod.directory / "site/preheat_runtime/manifest.py")


def test_no_revision_is_said_as_such(server_pod: Pod) -> None:
    for annotation in ("none", ""):
        assert server_pod.fetch(annotation).code == 0
        receipt = server_pod.receipt()
        assert (receipt["outcome"], receipt["reason"], receipt["manifest"]) == ("NoRevision", "", None)


def test_an_annotation_that_is_no_digest_is_refused(server_pod: Pod) -> None:
    assert server_pod.fetch("sha1:6f").code == 0
    assert server_pod.receipt()["reason"] == "UnknownFormat"
    assert (server_pod.directory / "site").is_dir()


def test_a_pod_that_somebody_else_let_go_on_starts_as_it_is(server_pod: Pod) -> None:
    assert server_pod.fetch("pending").code == 0
    receipt = server_pod.receipt()
    assert (receipt["outcome"], receipt["reason"]) == ("NoRevision", "")
    assert (server_pod.directory / "site").is_dir()


def test_only_targets_that_can_fit_this_machine_are_brought(pod: Pod, server_pod: Pod) -> None:
    buckets = {
        "here": fingerprint(),
        "elsewhere": fingerprint(machine="made-up"),
        "gpu": fingerprint(device="cuda", cpuIsa=None),
        "rejected": fingerprint(),
        "failed": fingerprint(),
    }
    verdicts = {"rejected": ("Rejected", "SpeedupBelowMinimum"), "failed": ("Failed", "CompileFailed")}
    targets = []
    for bucket, print_ in buckets.items():
        verdict, reason = verdicts.get(bucket, ("Kept", "Faster"))
        targets.append(target(bucket=bucket, fingerprint=print_, verdict=verdict, reason=reason, files=["target.json"]))
    write_out(pod, {f"main/{bucket}/target.json": b"{}" for bucket in buckets}, targets)
    request = {**REQUEST, "targets": [{"module": "main", "bucket": bucket} for bucket in buckets]}
    published = pod.publish(request)
    assert published.code == 0, published.message
    server_pod.fetch(published.message["digest"])
    brought = {path.split("/")[1] for path in revision_files(server_pod) if "/" in path}
    assert brought == {"here", "gpu", "rejected"}
    assert server_pod.receipt()["message"].startswith("3 of 5 targets")


def test_byte_code_comes_along_for_the_site_also_after_a_restart(pod: Pod, server_pod: Pod) -> None:
    packed = bytecode.pack()
    files = {**artifact(noise(1000)), f"main/batch/{bytecode.FILE}": packed}
    write_out(pod, files, [target(files=[path.removeprefix("main/batch/") for path in files])])
    digest = pod.publish().message["digest"]
    cache = server_pod.directory / "site" / "preheat_runtime" / "__pycache__"
    for again in (False, True):
        assert "already here" in server_pod.fetch(digest).log["message"] or not again
        made = {path.name.partition(".")[0] for path in cache.iterdir()}
        assert made == {path.stem for path in cache.parent.glob("*.py")}
    assert server_pod.fetch("none").log["outcome"] == "NoRevision"
    assert not cache.exists()


def test_a_second_publish_sends_nothing_that_is_there(pod: Pod, admin: object) -> None:
    write_out(pod, artifact(noise(20 * 2**20)))
    first = pod.publish()
    blobs = admin.list_objects_v2(Bucket=BUCKET, Prefix=f"v1/{pod.tenant}/blobs/")["Contents"]
    second = pod.publish()
    assert (first.code, second.code) == (0, 0)
    assert first.message == second.message
    again = admin.list_objects_v2(Bucket=BUCKET, Prefix=f"v1/{pod.tenant}/blobs/")["Contents"]
    assert [(blob["Key"], blob["LastModified"]) for blob in again] == [(b["Key"], b["LastModified"]) for b in blobs]


def test_a_restarted_pod_uses_what_lies_there_even_without_a_store(pod: Pod, server_pod: Pod) -> None:
    write_out(pod, artifact(noise(1000)))
    digest = pod.publish().message["digest"]
    server_pod.fetch(digest)
    before = revision_files(server_pod)
    again = server_pod.fetch(digest, PREHEAT_STORE_ENDPOINT="http://127.0.0.1:9")
    assert again.log["outcome"] == "Fetched"
    assert "already here" in again.log["message"]
    assert revision_files(server_pod) == before


def test_a_restarted_pod_brings_anew_what_was_damaged(pod: Pod, server_pod: Pod) -> None:
    write_out(pod, artifact(noise(1000)))
    digest = pod.publish().message["digest"]
    server_pod.fetch(digest)
    before = revision_files(server_pod)
    (server_pod.directory / "revision/main/batch/cpu/model.so").write_bytes(noise(1000, seed=2))
    again = server_pod.fetch(digest)
    assert again.log["outcome"] == "Fetched"
    assert revision_files(server_pod) == before
