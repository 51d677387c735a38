"""A lab that is taken down leaves nothing behind, also when it was not stopped but lost its parts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lab import cluster, daemons, isolation, layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

pytestmark = pytest.mark.cluster
NAME = "spare"
# What tests in other workers have meanwhile: the build of the base image, a memory limit for a process.
OTHERS = ("mmdebstrap.", "preheat-test-")


@pytest.fixture(scope="module")
def spare(lab: Lab) -> Iterator[Lab]:
    """A second lab beside the one of the test run, with a pod in it."""
    cluster.down(NAME)
    second = cluster.up(NAME)
    try:
        container = {
            "name": "main",
            "image": second.images.pause().tagged,
            "volumeMounts": [{"name": "memory", "mountPath": "/m"}],
        }
        spec = {"containers": [container], "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}]}
        second.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}, namespace="default")
        second.kubectl("wait", "pod/p", "--for=condition=Ready", "--timeout=60s")
        yield second
    finally:
        cluster.down(NAME)


def seen_from_the_machine() -> set[str]:
    """What a lab could leave behind: mounts, links, network namespaces, control groups, folders of container programs."""
    mounts = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
    links = {f"link {path.name}" for path in Path("/sys/class/net").iterdir()}
    spaces = {f"netns {path.name}" for path in Path("/run/netns").iterdir()} if Path("/run/netns").exists() else set()
    groups = {str(path) for path in Path("/sys/fs/cgroup").glob("*/*") if path.is_dir()}
    folders = {
        p
        for p in ("/var/lib/kubelet", "/run/containerd", "/opt/containerd", "/var/lib/cni", "/var/log/containers")
        if Path(p).exists()
    }
    found = mounts | links | spaces | groups | folders
    return {each for each in found if not any(part.startswith(OTHERS) for part in each.split("/"))}


def test_down_leaves_nothing(lab: Lab) -> None:
    cluster.down(NAME)
    before = seen_from_the_machine()
    second = cluster.up(NAME)
    inside = isolation.processes(second.layout)
    assert len(inside) > 9
    assert seen_from_the_machine() - before  # there is something to leave behind
    cluster.down(NAME)
    assert seen_from_the_machine() - before == set()
    assert isolation.leftovers(second.layout) == []
    assert not [pid for pid in inside if daemons.start_time(pid)]
    assert not second.layout.root.exists()
    # and the lab beside it was not touched
    assert lab.kubectl("get", "--raw", "/readyz").strip() == "ok"


def test_nothing_of_a_lab_is_mounted_on_the_machine(spare: Lab) -> None:
    mounted = [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(spare.layout.root) in line]
    assert mounted == []
    assert not Path("/var/lib/kubelet").exists()


def test_lab_that_lost_its_parts_is_removed_and_made_again(spare: Lab) -> None:
    for name in ("containerd", "kube-apiserver", "etcd", daemons.HOLDER):
        pid = daemons.pid_of(spare.layout, name)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    pods = isolation.pods(spare.layout)
    assert pods  # what containerd had started goes on without it
    again = cluster.up(NAME)
    assert not [pid for pid in pods if daemons.start_time(pid)]
    assert again.kubectl("get", "pods", "-A", "-o", "name") == ""


def test_two_labs_share_no_address(lab: Lab, spare: Lab) -> None:
    assert lab.layout.node_address != spare.layout.node_address
    assert lab.registry != spare.registry
    assert {found.name for found in layout.everything()} >= {lab.layout.name, NAME}
