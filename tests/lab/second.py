"""A second node for a lab, for tests in which pods may go to different machines; and a CPU that it seems to have.

Why it exists: what an artifact fits is decided by what a pod finds on its node, and a lab has one machine. So each
container of the second node sees another /proc/cpuinfo, as lxcfs would give it, which tests may rewrite.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab import daemons, isolation, layout, pki
from lab.node import PARTS, Node
from lab.progress import step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab
    from lab.layout import Layout

_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, kw_only=True)
class SecondNode(Node):
    """The second node of a lab."""

    @property
    def _cpuinfo(self) -> Path:
        return self.layout.root / "cpuinfo"

    def seem(self, change: Callable[[set[str]], set[str]]) -> None:
        """Lets containers that start from now on see a CPU with other flags: what ``change`` makes of the real ones."""
        lines = []
        for line in _CPUINFO.read_text().splitlines():
            name, colon, value = line.partition(":")
            flags = f" {' '.join(sorted(change(set(value.split()))))}"
            lines.append(f"{name}{colon}{flags}" if name.strip() == "flags" else line)
        # In place: what containers see is this file, not whichever one has its name.
        self._cpuinfo.write_text("\n".join(lines) + "\n")

    def mounts(self) -> dict[str, Path]:
        """As on any node, and the other CPU."""
        return {**super().mounts(), str(_CPUINFO): self._cpuinfo}


@contextlib.contextmanager
def second_node(lab: Lab) -> Iterator[SecondNode]:
    """A second node that is Ready and sees the real CPU; gone, with its pods, at the end."""
    place = layout.second_of(lab.layout)
    remove(lab.layout)
    place.root.mkdir()
    node = SecondNode(layout=place, binaries=lab.binaries)
    try:
        with step("adding a second node", usually="10 s"):
            isolation.join(place)
            pki.join(place)
            node.seem(lambda flags: flags)
            node.start(pause=lab.images.pause().tagged)
        yield node
    finally:
        node.delete()
        remove(lab.layout)


def remove(first: Layout) -> None:
    """Ends a lab's second node and takes everything of it away, but for its Node object. Safe to repeat."""
    place = layout.second_of(first)
    if not place.root.exists() and not isolation.leftovers(place):
        return
    for part in reversed(PARTS):
        daemons.stop(place, part, grace=3)
    for _ in range(3):
        daemons.kill_all(isolation.pods(place))
    isolation.remove(place)
    if place.root.exists():
        isolation.delete_state(place)
