"""What keeps a lab apart from the machine: a network namespace, a mount namespace, control groups; and their removal.

Why it exists:
- *network*: the node must not be able to reach anything but the machine's end of one link. Its default route leads
  into a spare link without a far side (Service addresses need some route before they are translated), and forwarding
  is enabled inside the namespace only.
- *mounts*: programs write to fixed places (/run/containerd, /var/lib/kubelet, /var/log/containers, /tmp, ...) and
  mount many things. In a mount namespace of their own none of that reaches the machine, and all mounts go when the last
  process does.
- *control groups*: the kubelet puts pods below one group of ours, in every hierarchy, so that whatever a pod left
  running can be found and ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

from lab import daemons
from lab.command import EndedError, LabError, run, wait_for
from lab.layout import EMPTIED, OVERLAID, Layout, SecondLayout

_CGROUPS = Path("/sys/fs/cgroup")


def make(layout: Layout) -> None:
    """Makes the namespaces, the link and the control groups of a lab that has none."""
    _make_network(layout)
    _make_cgroups(layout)
    _hold_mounts(layout)


def join(layout: SecondLayout) -> None:
    """Makes the namespaces, the link to the first node and the control groups of a second one."""
    _link_nodes(layout)
    _make_cgroups(layout)
    _hold_mounts(layout)


def remove(layout: Layout) -> None:
    """Ends whatever still runs inside and takes everything away that :func:`make` made. Safe to repeat."""
    for _ in range(5):  # a process may start another one while being killed
        remaining = processes(layout)
        if not remaining:
            break
        daemons.kill_all(remaining)
    run(["ip", "link", "del", layout.host_link], timeout=10, check=False)
    if layout.netns_path.exists():
        run(["ip", "netns", "del", layout.netns], timeout=10)
    for top in _hierarchies():
        _remove_group(top / layout.cgroup)


def processes(layout: Layout) -> list[int]:
    """Every process in the lab's network namespace or in its control groups, except this one."""
    found: set[int] = set()
    with contextlib.suppress(FileNotFoundError):
        wanted = layout.netns_path.stat().st_ino
        for entry in Path("/proc").iterdir():
            # A process may end at any moment here; then it is not one of those that are left.
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and (entry / "ns/net").stat().st_ino == wanted:
                    found.add(int(entry.name))
    found.update(pods(layout))
    return sorted(pid for pid in found - {os.getpid()} if daemons.start_time(pid))


def pods(layout: Layout) -> list[int]:
    """Every process of the node's pods."""
    found: set[int] = set()
    for top in _hierarchies():
        for group in _groups(top / layout.cgroup):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in (group / "cgroup.procs").read_text().split())
    return sorted(found)


def leftovers(layout: Layout) -> list[str]:
    """What of this lab can still be found on the machine, in words; empty after :func:`remove`."""
    found = [f"process {pid}" for pid in processes(layout)]
    if layout.netns_path.exists():
        found.append(f"network namespace {layout.netns}")
    if (Path("/sys/class/net") / layout.host_link).exists():
        found.append(f"link {layout.host_link}")
    found += [f"control group {top / layout.cgroup}" for top in _hierarchies() if (top / layout.cgroup).exists()]
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    found += [f"mount {line.split()[1]}" for line in mounts if line.split()[1].startswith(f"{layout.root}/")]
    return found


def inside(layout: Layout) -> list[str]:
    """The words before a command that make it run in the node's network and mount namespaces."""
    holder = daemons.pid_of(layout, daemons.HOLDER)
    if holder is None:
        raise LabError(f"lab {layout.name} is not up; run `make cluster-up`")
    return ["nsenter", f"--net={layout.netns_path}", f"--mount=/proc/{holder}/ns/mnt", "--wd=/", "--"]


def _make_network(layout: Layout) -> None:
    def ip(*words: str) -> None:
        run(["ip", *words], timeout=10)

    ip("netns", "add", layout.netns)
    ip("link", "add", layout.host_link, "type", "veth", "peer", "name", "host0", "netns", layout.netns)
    ip("addr", "add", f"{layout.host_address}/30", "dev", layout.host_link)
    ip("link", "set", layout.host_link, "up")
    node = ("-n", layout.netns)
    ip(*node, "addr", "add", f"{layout.node_address}/30", "dev", "host0")
    ip(*node, "link", "set", "host0", "up")
    _lead_nowhere(layout)
    # Pods may reach the node (API, S3, registry), never the machine: it would answer them over its own default route.
    run(
        ["nsenter", f"--net={layout.netns_path}", "--", "nft", "-f", "-"],
        stdin="""
            add table inet lab
            add chain inet lab forward { type filter hook forward priority 0; }
            add rule inet lab forward oifname "host0" reject
        """,
        timeout=10,
    )


def _link_nodes(layout: SecondLayout) -> None:
    """The second node's only way leads to the first one, which passes nothing on to the machine."""

    def ip(*words: str) -> None:
        run(["ip", *words], timeout=10)

    first, second = ("-n", layout.first.netns), ("-n", layout.netns)
    ip("netns", "add", layout.netns)
    ip(*first, "link", "add", "second0", "type", "veth", "peer", "name", "first0", "netns", layout.netns)
    for node, device, address in ((first, "second0", layout.first_address), (second, "first0", layout.node_address)):
        ip(*node, "addr", "add", f"{address}/30", "dev", device)
        ip(*node, "link", "set", device, "up")
    _lead_nowhere(layout)
    ip(*first, "route", "add", layout.pods, "via", layout.node_address)
    for there in (layout.first.pods, f"{layout.first.node_address}/32"):
        ip(*second, "route", "add", there, "via", layout.first_address)


def _lead_nowhere(layout: Layout) -> None:
    """Gives a node a default route into a link without a far side, and lets it forward."""
    node = ("ip", "-n", layout.netns)
    # The spare link: some kernels have no dummy device.
    for words in (
        "link set lo up", "link add nowhere0 type veth peer name nowhere1", "link set nowhere1 up", "link set nowhere0 up",
        "route add default dev nowhere0",
    ):  # fmt: skip
        run([*node, *words.split()], timeout=10)
    enter = ["nsenter", f"--net={layout.netns_path}", "--"]
    run([*enter, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], timeout=10)


def _hold_mounts(layout: Layout) -> None:
    over = layout.root / "over"
    lines = ["set -e", "mount --make-rshared /"]
    # SeaweedFS, for one, talks to "its" master through a socket in /tmp that is named after a port alone.
    lines += [f"mount -t tmpfs -o mode=1777 tmpfs {emptied}" for emptied in EMPTIED]
    for covered in OVERLAID:
        upper, work = (over / (covered.strip("/").replace("/", "-") + suffix) for suffix in ("", ".work"))
        upper.mkdir(parents=True)
        work.mkdir()
        lines.append(f"mount -t overlay -o lowerdir={covered},upperdir={upper},workdir={work} overlay {covered}")
    lines += [f"touch {layout.root}/mounts-ready", "exec sleep infinity"]
    enter = ["nsenter", f"--net={layout.netns_path}", "--", "unshare", "--mount", "--propagation", "slave"]
    daemons.spawn(layout, daemons.HOLDER, [*enter, "sh", "-c", "\n".join(lines)], inside=False)

    def ready() -> bool:
        if daemons.pid_of(layout, daemons.HOLDER) is None:
            raise EndedError(daemons.log_tail(layout, daemons.HOLDER))
        return (layout.root / "mounts-ready").exists()

    wait_for("mount namespace of the node", ready, seconds=10, every=0.05)


def _hierarchies() -> list[Path]:
    """The top folder of every control group hierarchy: several under version 1, one under version 2."""
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    return sorted(
        path
        for path in _CGROUPS.iterdir()
        if path.is_dir() and not path.is_symlink() and (path / "cgroup.procs").exists()
    )


def _make_cgroups(layout: Layout) -> None:
    for top in _hierarchies():
        group = top / layout.cgroup
        group.mkdir(exist_ok=True)
        if (top / "cgroup.controllers").exists() and top == _CGROUPS:
            _enable_controllers(top)
            _enable_controllers(group)
        elif top.name == "cpuset":  # version 1: a new cpuset is empty, and nothing can run in an empty one
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (group / setting).write_text((top / setting).read_text())


def _enable_controllers(group: Path) -> None:
    wanted = " ".join(f"+{name}" for name in (group / "cgroup.controllers").read_text().split())
    try:
        (group / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        raise LabError(
            f"{group}: controllers cannot be enabled ({error}). In a container with cgroup version 2, processes must "
            "first be moved out of the top group: `mkdir /sys/fs/cgroup/init` and write their ids to its cgroup.procs"
        ) from error


def _remove_group(group: Path) -> None:
    if not group.exists():
        return
    for folder in reversed(_groups(group)):
        _remove_empty_group(folder)


def _groups(top: Path) -> list[Path]:
    """A control group and all below it, parents first. Groups may go while we look, which os.walk takes calmly."""
    return [Path(folder) for folder, _, _ in os.walk(top)]


def _remove_empty_group(folder: Path) -> None:
    deadline = time.monotonic() + 2
    while folder.exists() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # the kernel frees a group a moment after its last process ended
            folder.rmdir()
            return
        time.sleep(0.05)


def delete_state(layout: Layout) -> None:
    """Deletes the lab's folder. Only after :func:`remove`: then no mount is left below it."""
    if found := leftovers(layout):
        raise LabError(f"lab {layout.name} has leftovers, its state stays in {layout.root}: {', '.join(found)}")
    shutil.rmtree(layout.root, ignore_errors=False)
