"""A publisher may be killed at any moment: a manifest in the store is always complete, and a rerun always succeeds."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from preheat_runtime.manifest import Manifest
from store.kit import BUCKET, REQUEST, Pod, artifact, write_out

# Beside other tests most are killed too early or too late to have left anything.
ATTEMPTS_EACH = 60


def pieces(admin: Any, pod: Pod) -> int:
    """How many pieces the store has."""
    return int(admin.list_objects_v2(Bucket=BUCKET, Prefix=f"{pod.keys.prefix}blobs/")["KeyCount"])


def manifests_of(admin: Any, pod: Pod) -> int:
    """How many manifests the store has; fail if a manifest names a piece that is not there, or an index entry dangles."""
    contents = admin.list_objects_v2(Bucket=BUCKET, Prefix=pod.keys.prefix).get("Contents", [])
    sizes = {item["Key"]: item["Size"] for item in contents}
    manifests = [key for key in sizes if "/manifests/" in key]
    for key in manifests:
        data = admin.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        for target in Manifest.parse(data).targets:
            for file in target.files:
                for piece in file.pieces:
                    assert sizes.get(pod.keys.blob(piece.sha256)) == piece.stored_size
    for key in sizes:
        if "/index/" in key:
            entry = json.loads(admin.get_object(Bucket=BUCKET, Key=key)["Body"].read())
            assert pod.keys.manifest(entry["digest"]) in sizes
    return len(manifests)


def test_killed_at_random_moments(admin: Any, pod: Pod, server_pod: Pod) -> None:
    kill(admin, pod, server_pod, half_done=3)


@pytest.mark.soak
def test_killed_at_many_random_moments(admin: Any, pod: Pod, server_pod: Pod) -> None:
    kill(admin, pod, server_pod, half_done=24)


def kill(admin: Any, pod: Pod, server_pod: Pod, *, half_done: int) -> None:
    """Kill publishers until so many were killed between their first new piece and their manifest."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    env = {"PREHEAT_REQUEST": json.dumps(REQUEST), "PREHEAT_JOB_UID": "0a1b"}
    write_out(pod, artifact(chance.randbytes(100_000)))
    pod.run("publish", identity="publish", **env)
    seen = attempts = 0
    while seen < half_done:
        attempts += 1
        assert attempts <= ATTEMPTS_EACH * half_done, f"only {seen} left pieces without a manifest"
        # Every third time the same files again, so that kills also fall into a resumed upload.
        if attempts % 3 == 1:
            write_out(pod, artifact(chance.randbytes(60 * 2**20)))
        manifests, blobs = manifests_of(admin, pod), pieces(admin, pod)
        process = pod.start("publish", identity="publish", **env)
        try:
            # Before it has done anything, or about when its first new piece is there.
            if chance.random() < 1 / 4:
                time.sleep(chance.uniform(0, 1))
            else:
                while process.poll() is None and pieces(admin, pod) == blobs:
                    time.sleep(0.01)
                time.sleep(chance.uniform(0, 0.05))
        finally:
            process.kill()
            process.communicate(timeout=60)
        seen += manifests_of(admin, pod) == manifests and pieces(admin, pod) > blobs
    ended = pod.run("publish", identity="publish", **env)
    assert ended.code == 0, ended.message
    print(f"{attempts} publishers, {seen} of them left pieces without a manifest")
    assert manifests_of(admin, pod) >= 2
    server_pod.fetch(ended.message["digest"])
    assert server_pod.receipt()["outcome"] == "Fetched"
