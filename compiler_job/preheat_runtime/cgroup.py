"""Where a container reads what it may use: the files of its control group, of version 2 or 1.

Why it exists: the figures of the node, which Python and /proc give, are not the container's.
"""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def text(path: Path) -> str:
    """What the file holds; nothing where there is none, or where it is not for us to read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return ""
