"""Names, addresses and folders of one lab, all derived from its name and a small number.

Why it exists: several labs may run side by side (tests, the demo, a developer's), so nothing of a lab may be a constant
that another lab uses too, and whoever cleans up must be able to name everything without having started it.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.command import LabError, run
from lab.paths import cache_root, locked_file

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_NAME = "preheat"
_MOST_LABS = 64
# Network interfaces have at most 15 characters, and ours are "ph-<name>".
_NAME = re.compile(r"[a-z][a-z0-9-]{0,11}")
# The node's mount namespace covers these (see lab.isolation), so state cannot be below them.
OVERLAID = ("/opt", "/var/lib", "/var/log")
EMPTIED = ("/run", "/tmp")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one lab lives. ``index`` (0..63) picks its link addresses, 198.18.<index>.0/30."""

    name: str
    index: int
    root: Path

    @property
    def netns(self) -> str:
        return f"preheat-{self.name}"

    @property
    def netns_path(self) -> Path:
        return Path("/run/netns") / self.netns

    @property
    def cgroup(self) -> str:
        """Name of the control group, in every hierarchy, that holds the node's pods."""
        return f"preheat-{self.name}"

    @property
    def host_link(self) -> str:
        return f"ph-{self.name}"

    @property
    def host_address(self) -> str:
        return f"198.18.{self.index}.1"

    @property
    def node_address(self) -> str:
        return f"198.18.{self.index}.2"

    @property
    def pods(self) -> str:
        """The network of the node's pods."""
        return "10.244.0.0/24"

    @property
    def node_name(self) -> str:
        return f"{self.name}-node"

    @property
    def api(self) -> str:
        return f"https://{self.node_address}:6443"

    @property
    def registry(self) -> str:
        return f"{self.node_address}:5000"

    @property
    def s3_endpoint(self) -> str:
        return f"http://{self.node_address}:8333"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "admin.kubeconfig"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def pki(self) -> Path:
        return self.root / "pki"


@dataclass(frozen=True, kw_only=True)
class SecondLayout(Layout):
    """A second node of a lab: namespaces, control groups, folder and addresses of its own; the rest is the first's."""

    first: Layout

    @property
    def first_address(self) -> str:
        """The first node's address on the link between the two."""
        return f"198.18.{self.index}.5"

    @property
    def node_address(self) -> str:
        return f"198.18.{self.index}.6"

    @property
    def pods(self) -> str:
        return "10.244.1.0/24"

    @property
    def api(self) -> str:
        return self.first.api

    @property
    def registry(self) -> str:
        return self.first.registry

    @property
    def s3_endpoint(self) -> str:
        return self.first.s3_endpoint

    @property
    def kubeconfig(self) -> Path:
        return self.first.kubeconfig


def second_of(first: Layout) -> SecondLayout:
    """Where a lab's second node lives, whether or not there is one."""
    return SecondLayout(name=f"{first.name}-2", index=first.index, root=first.root / "second", first=first)


def _labs() -> Path:
    folder = cache_root() / "lab"
    for covered in (*OVERLAID, *EMPTIED):
        if folder.is_relative_to(covered):
            raise LabError(f"PREHEAT_CACHE={cache_root()}: the cache cannot be below {covered}; choose another folder")
    folder.mkdir(exist_ok=True)
    return folder


def _load(root: Path) -> Layout | None:
    try:
        stored = json.loads((root / "lab.json").read_text())
    except FileNotFoundError:
        return None
    return Layout(name=stored["name"], index=stored["index"], root=root)


def find(name: str) -> Layout | None:
    """The lab of that name, if it has been made here; it may be running or be left from a killed run."""
    if not _NAME.fullmatch(name):
        raise LabError(f"--name {name!r}: use a letter, then up to 11 of a-z, 0-9 and -")
    return _load(_labs() / name)


def everything() -> list[Layout]:
    """Every lab that this cache root knows."""
    found = (_load(path) for path in sorted(_labs().iterdir()) if path.is_dir())
    return [layout for layout in found if layout]


def allocate(name: str) -> Layout:
    """The lab of that name; a new one gets the first link network that nobody on this machine uses."""
    if existing := find(name):
        return existing
    with locked_file(_labs() / ".allocate"):
        # Other cache roots may have labs too: what counts is what the machine has.
        addresses = run(["ip", "-o", "-4", "addr"], timeout=10)
        used = {layout.index for layout in everything()} | {
            int(i) for i in re.findall(r" 198\.18\.(\d+)\.1/", addresses)
        }
        free = next((index for index in range(_MOST_LABS) if index not in used), None)
        if free is None:
            raise LabError(f"{_MOST_LABS} labs exist already; take some down (`python -m lab down --name ...`)")
        layout = Layout(name=name, index=free, root=_labs() / name)
        layout.root.mkdir(exist_ok=True)
        layout.logs.mkdir(exist_ok=True)
        (layout.root / "lab.json").write_text(json.dumps({"name": name, "index": free}))
    return layout


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Only one process at a time starts or stops the lab of that name."""
    with locked_file(_labs() / f".{name}.lock"):
        yield
