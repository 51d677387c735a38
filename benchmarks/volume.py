"""Runs a benchmark with a folder of its own at /cache/model, in a mount namespace: nothing is made in the machine's root.

Why it exists: b10-transfer takes its volume and its archives only below /cache, as on the platform that it is for. All ways
run in there, so that it makes no difference between them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Where the folder is seen.
PLACE = "/cache/model"
_INSIDE = "PREHEAT_BENCH_VOLUME"
# Everything of the machine's root, as it is, and the folder beside it.
_ENTER = f"""
set -eu
root=$1 folder=$2 work=$3; shift 3
mount -t tmpfs -o mode=755 preheat-bench "$root"
for each in /*; do
    if [ -L "$each" ]; then cp -P "$each" "$root$each"
    elif [ -d "$each" ] && [ "$each" != /cache ]; then mkdir "$root$each"; mount --rbind "$each" "$root$each"; fi
done
mkdir -p "$root{PLACE}"
mount --bind "$folder" "$root{PLACE}"
exec chroot "$root" sh -c 'cd "$1"; shift; exec "$@"' sh "$work" "$@"
"""


def enter(folder: Path) -> None:
    """Start this program again where `folder` is at PLACE, and end with its result; returns when it is there already."""
    if os.environ.get(_INSIDE) == str(folder):
        return
    words = ["unshare", "--mount", "--propagation", "private", *([] if os.geteuid() == 0 else ["--map-root-user"])]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        raise SystemExit(f"b10-transfer needs {PLACE}, and this user may not make a mount namespace: run it as root")
    root = folder.parent / "root"
    root.mkdir(exist_ok=True)
    again = [sys.executable, *sys.argv]
    os.execvpe(
        words[0],
        [*words, "sh", "-c", _ENTER, "sh", str(root), str(folder), str(Path.cwd()), *again],
        {**os.environ, _INSIDE: str(folder)},
    )
