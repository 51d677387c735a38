"""A publisher may be killed at any moment: a manifest in the store is always complete, and a rerun always succeeds."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from preheat_runtime.manifest import Manifest
from store.kit import BUCKET, REQUEST, Pod, artifact, write_out

KILLS = 24


def complete_manifests(admin: Any, pod: Pod) -> int:
    """Count the manifests in the store; fail if one names a piece that is not there, or an index entry dangles."""
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
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    env = {"PREHEAT_REQUEST": json.dumps(REQUEST), "PREHEAT_JOB_UID": "0a1b"}
    write_out(pod, artifact(chance.randbytes(100_000)))
    started = time.monotonic()
    pod.run("publish", identity="publish", **env)
    usual = time.monotonic() - started
    cut_short = 0
    for i in range(KILLS):
        # Every third time the same files again, so that kills also fall into a resumed upload.
        if i % 3 == 0:
            write_out(pod, artifact(chance.randbytes(40 * 2**20)))
        process = pod.start("publish", identity="publish", **env)
        try:
            time.sleep(chance.uniform(0.5, 1.0) * usual if i % 2 else chance.uniform(0.5, 2.5) * usual)
        finally:
            process.kill()
            process.communicate(timeout=60)
        cut_short += process.returncode != 0
        complete_manifests(admin, pod)
    assert cut_short > KILLS // 3
    ended = pod.run("publish", identity="publish", **env)
    assert ended.code == 0, ended.message
    assert complete_manifests(admin, pod) >= 2
    server_pod.fetch(ended.message["digest"])
    assert server_pod.receipt()["outcome"] == "Fetched"
