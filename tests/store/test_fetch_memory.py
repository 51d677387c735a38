"""A fetch inside a container's memory limit, kept by the kernel: it fits a small one, and survives one too small."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from store.kit import Pod, artifact, write_out

if TYPE_CHECKING:
    from collections.abc import Iterator

V1 = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def cgroup() -> Iterator[Path]:
    folder = V1 / f"preheat-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("needs a version 1 memory controller and the right to make groups in it")
    try:
        yield folder
    finally:
        folder.rmdir()


def fetch(cgroup: Path, pod: Pod, digest: str, *, limit_mib: int) -> tuple[int, dict[str, Any], int]:
    """Run fetch under a limit; returns its exit code, receipt, and how often the kernel killed a process."""
    (cgroup / "memory.limit_in_bytes").write_text(str(limit_mib * 2**20))
    script = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -m preheat_operator.fetch"
    env = pod.environment("fetch", PREHEAT_MANIFEST=digest)
    ended = subprocess.run(["/bin/sh", "-c", script], env=env, cwd="/", timeout=120, check=False)
    events = dict(line.split() for line in (cgroup / "memory.oom_control").read_text().splitlines())
    return ended.returncode, pod.receipt(), int(events.get("oom_kill", 0))


def test_two_hundred_megabytes_fit_a_container_of_96(cgroup: Path, pod: Pod, server_pod: Pod) -> None:
    model = random.Random(1).randbytes(50_000_000) + b"code " * 30_000_000
    write_out(pod, artifact(model))
    code, receipt, kills = fetch(cgroup, server_pod, pod.publish().message["digest"], limit_mib=96)
    assert (code, receipt["outcome"], kills) == (0, "Fetched", 0), receipt
    assert (server_pod.directory / "revision/main/batch/cpu/model.so").read_bytes() == model


def test_a_limit_too_small_kills_the_worker_and_not_the_pod(cgroup: Path, pod: Pod, server_pod: Pod) -> None:
    write_out(pod, artifact(b"model"))
    code, receipt, kills = fetch(cgroup, server_pod, pod.publish().message["digest"], limit_mib=24)
    assert (code, receipt["outcome"], receipt["reason"]) == (0, "Failed", "Killed"), receipt
    assert kills == 1
    assert sorted(path.name for path in server_pod.directory.iterdir()) == [".attempt", "fetch.json", "site"]
