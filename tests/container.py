"""Runs a program as a strict pod does: a root of its own that it can only read, any user, no home, no network, no rights.

Why it exists: what works in a development environment fails where nothing can be written, where no name belongs to the
user, or where /tmp runs no programs; and a cluster for each such pod would take minutes. These are the kernel's own
namespaces and mounts, as a container runtime makes them; only the seccomp profile is missing (the end-to-end tests have it).
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: A user as OpenShift gives them: no name, no home, no file belongs to it.
ANY_USER = 1000660000
#: What a pod sees of Preheat, and where these tests put the user's own code.
PREHEAT, WORK, APP = "/opt/preheat", "/var/cache/preheat", "/srv/app"

_ENTER = r"""
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
new=$1 uid=$2 shm=$3 tmp=$4 name=$5
shift 5
mount -t tmpfs -o mode=755 container "$new"
while [ "$1" != -- ]; do
    mkdir -p "$new$2"
    mount --bind "$1" "$new$2"
    mount -o "remount,bind,$3" "$new$2"
    shift 3
done
shift
for link in bin lib lib64 sbin; do
    [ ! -L "/$link" ] || ln -s "$(readlink "/$link")" "$new/$link"
done
mkdir -p "$new/etc" "$new/tmp" "$new/proc" "$new/dev"
echo "root:x:0:0:root:/root:/bin/sh" >"$new/etc/passwd"
printf '127.0.0.1 localhost\n127.0.0.1 %s\n' "$name" >"$new/etc/hosts"
mount -t proc proc "$new/proc"
for device in null zero full random urandom; do
    : >"$new/dev/$device"
    mount --bind "/dev/$device" "$new/dev/$device"
done
ln -s /proc/self/fd "$new/dev/fd"
mkdir "$new/dev/shm"
mount -t tmpfs -o "size=$shm,nosuid,nodev,noexec,mode=1777" shm "$new/dev/shm"
# A compile from nothing leaves some hundred megabytes there.
[ "$tmp" = none ] || mount -t tmpfs -o "$tmp,nosuid,nodev,size=1g,mode=1777" tmp "$new/tmp"
hostname "$name"
ip link set lo up
mount -o remount,ro "$new"
exec chroot "$new" setpriv --reuid "$uid" --regid "$uid" --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all -- \
    env -i -C /srv/app "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Container:
    """One pod's container. As it is by default, nothing can be written but `work`, and nothing there is /tmp's.

    Attributes:
        preheat: folder that becomes /opt/preheat; `app` becomes the working directory, where the user's code is.
        work: folder that becomes Preheat's own writable volume.
        user: number of the user and its group.
        tmp: `none` (a part of the read-only root), or how /tmp is mounted: `noexec`, `exec`.
        shm: size of /dev/shm.
        hostname: its own name.
        volume: options of the mount of /opt/preheat.
        also: more folders that it can read, each at its own place.
    """

    preheat: Path
    app: Path
    work: Path
    user: int = ANY_USER
    tmp: str = "none"
    shm: str = "64k"
    hostname: str = "pod-of-somebody-else"
    volume: str = "ro,nosuid,nodev"
    also: Sequence[Path] = field(default=())

    def command(self, *words: str, env: Mapping[str, str]) -> list[str]:
        """What to run, as root, so that `words` runs in the container, as its process 1, with `env` and nothing else."""
        mounts = [part for mount in self._mounts() for part in mount]
        variables = [f"{name}={value}" for name, value in env.items()]
        enter = ["unshare", "--mount", "--uts", "--net", "--ipc", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER]
        new = tempfile.mkdtemp(prefix="container-", dir=self.work.parent)
        return [*enter, "sh", new, str(self.user), self.shm, self.tmp, self.hostname, *mounts, "--", *variables, *words]

    def _mounts(self) -> Iterator[tuple[str, str, str]]:
        """From, to, and options."""
        # The interpreter lies behind links where it is a virtual environment's.
        places = {Path("/usr"), Path("/sys"), Path(sys.prefix), Path(sys.base_prefix), *self.also}
        for place in sorted(places, key=lambda each: len(each.parts)):
            if not any(place != other and place.is_relative_to(other) for other in places):
                yield str(place), str(place), "ro,nosuid,nodev"
        yield str(self.preheat), PREHEAT, self.volume
        yield str(self.app), APP, "ro,nosuid,nodev"
        yield str(self.work), WORK, "rw,nosuid,nodev"
