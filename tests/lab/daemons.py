"""Long-running processes of a lab: started inside its namespaces, recorded, stopped by their own recorded identity.

Why it exists: a lab outlives the process that started it, so what runs is written down (process id *and* start time,
because ids are used again) and nothing is ever stopped by name.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.command import EndedError, LabError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lab.layout import Layout

HOLDER = "holder"  # the process that keeps the node's mount namespace open; see lab.isolation


def start_time(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None when it does not run (a zombie does not run)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _record(layout: Layout, name: str) -> Path:
    return layout.root / "run" / f"{name}.json"


def pid_of(layout: Layout, name: str) -> int | None:
    """The process id of a daemon of this lab; None when it does not run."""
    try:
        stored = json.loads(_record(layout, name).read_text())
    except FileNotFoundError:
        return None
    pid = int(stored["pid"])
    _reap(pid)
    return pid if start_time(pid) == stored["started"] else None


def recorded(layout: Layout) -> list[str]:
    """The names of every daemon that was started and not stopped since."""
    return sorted(path.stem for path in (layout.root / "run").glob("*.json"))


#: Most daemons are Go programs, of which the collector of garbage takes a sixth; a lab has memory, and two processors.
QUICK_GO = {"GOGC": "400"}


def spawn(
    layout: Layout, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, inside: bool = True
) -> int:
    """Starts a daemon, with its output in ``log/<name>.log``, and returns its process id.

    ``inside``: in the node's network and mount namespaces. ``nsenter`` replaces itself by the program, so the id stays.
    """
    if running := pid_of(layout, name):
        return running
    command = list(argv)
    if inside:
        holder = pid_of(layout, HOLDER)
        if holder is None:
            raise LabError(f"lab {layout.name} is not up; run `make cluster-up`")
        command = ["nsenter", f"--net={layout.netns_path}", f"--mount=/proc/{holder}/ns/mnt", "--wd=/", "--", *argv]
    layout.logs.mkdir(exist_ok=True)
    log = os.open(layout.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        # Not subprocess: its object insists on being waited for, and a daemon outlives us.
        pid = os.posix_spawnp(
            command[0], command, {**QUICK_GO, **os.environ, **(env or {})}, setsid=True,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, log, 1),
                (os.POSIX_SPAWN_DUP2, log, 2),
            ],
        )  # fmt: skip
    finally:
        os.close(log)
    path = _record(layout, name)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"pid": pid, "started": start_time(pid)}))
    return pid


def stop(layout: Layout, name: str, *, grace: float = 5.0) -> None:
    """Ends a daemon: asks, waits ``grace`` seconds (0: does not ask), then kills. Nothing happens when it does not run."""
    pid = pid_of(layout, name)
    if pid is not None:
        if grace > 0:
            _signal(pid, signal.SIGTERM)
            _wait_gone([pid], grace)
        if pid_of(layout, name) == pid:
            _signal(pid, signal.SIGKILL)
            _wait_gone([pid], 10)
    _record(layout, name).unlink(missing_ok=True)


def kill_all(pids: Sequence[int]) -> None:
    """Kills these processes and waits until they are gone."""
    for pid in pids:
        _signal(pid, signal.SIGKILL)
    _wait_gone(pids, 10)


def require_alive(layout: Layout, name: str) -> None:
    """Raises :class:`EndedError` with the end of its log when a daemon has ended by itself."""
    if pid_of(layout, name) is None:
        raise EndedError(
            f"{name} has ended. Its log ({layout.logs / f'{name}.log'}) closes with:\n{log_tail(layout, name)}"
        )


def log_tail(layout: Layout, name: str, characters: int = 2000) -> str:
    """The end of a daemon's log."""
    path = layout.logs / f"{name}.log"
    return path.read_text(errors="replace")[-characters:] if path.exists() else ""


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # it was started by another process: nothing to reap
        os.waitpid(pid, os.WNOHANG)


def _wait_gone(pids: Sequence[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for pid in pids:
            _reap(pid)
        if not any(start_time(pid) for pid in pids):
            return
        time.sleep(0.05)
