"""Puts this process where a strict pod is: a file system it can only read, and a user that is not root.

Why it exists: an artifact that needs to write beside itself, or to be root, works where it was built and fails in a pod
with `readOnlyRootFilesystem` and `runAsNonRoot`. Proving that needs rights that containers do not always have, so each
condition is tried, and what did not hold is said. Linux only; by libc, since Python learnt `unshare` in 3.12.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler import parent

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The user of Preheat's own containers; any that owns nothing will do.
NOBODY = 65532

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_KEPT_FLAGS = {"nosuid": _MS_NOSUID, "nodev": _MS_NODEV, "noexec": _MS_NOEXEC, "noatime": 1024, "relatime": 1 << 21}
#: The kernel's own, and where shared memory is: a read-only pod can write there too.
_LEFT_ALONE = ("/proc", "/sys", "/dev")
_PR_SET_DUMPABLE, _PR_SET_KEEPCAPS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT, _AMBIENT_RAISE = 4, 8, 28, 47, 2
_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION = 0x20080522
_CAP_DAC_READ_SEARCH = 2


@dataclass(frozen=True, kw_only=True)
class Seal:
    """What holds; the words say why not, or what to know about it."""

    read_only: bool
    non_root: bool
    words: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record as report.json has it."""
        return {"readOnlyFileSystem": self.read_only, "nonRoot": self.non_root, "why": list(self.words)}


def enter(writable: Path) -> Seal:
    """Make all but the folder `writable` read-only and stop being root, as far as this container allows.

    Must be called before any thread is started. Never raises OSError: what could not be done is in the answer.
    """
    words: list[str] = []
    uid, gid = os.getuid(), os.getgid()
    read_only = False
    try:
        _own_mounts(uid, gid)
        _make_read_only(writable)
        read_only = not _can_write(writable.parent)
        if not read_only:
            words.append("the file system can still be written to")
    except OSError as error:
        words.append(
            f"no read-only file system: {error.strerror or error} (mounting needs rights this container lacks)"
        )
    if uid == 0:
        try:
            if _leave_root(writable):
                words.append("it may read what root may, so that a model only root can read is proved too")
        except OSError as error:
            words.append(f"still root: {error.strerror or error}")
    # It is another user now, with other rights.
    parent.again()
    return Seal(read_only=read_only, non_root=os.getuid() != 0, words=tuple(words))


def _own_mounts(uid: int, gid: int) -> None:
    try:
        _call("unshare", _CLONE_NEWNS)
    except PermissionError:
        if uid == 0:
            # In a user namespace with one id there is no other user to become; staying root there proves less.
            raise
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
        Path("/proc/self/setgroups").write_bytes(b"deny")
        Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (uid, uid))
        Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (gid, gid))
    _call("mount", None, b"/", None, _MS_REC | _MS_PRIVATE, None)


def _make_read_only(writable: Path) -> None:
    place = os.fsencode(writable)
    _call("mount", place, place, None, _MS_BIND | _MS_REC, None)
    for point, options in mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")):
        inside = any(point == each or point.startswith(f"{each}/") for each in (*_LEFT_ALONE, str(writable)))
        if inside or "ro" in options:
            continue
        kept = sum(_KEPT_FLAGS.get(option, 0) for option in options)
        # One that is hidden below another mount cannot be reached, neither by us nor by the model.
        with suppress(FileNotFoundError, NotADirectoryError):
            _call("mount", None, os.fsencode(point), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | kept, None)


def mounts(text: str) -> list[tuple[str, frozenset[str]]]:
    """Mount points and their options, in order, from the text of /proc/self/mountinfo."""
    found = []
    for line in text.splitlines():
        fields = line.split(" ")
        if len(fields) > 5:
            point = fields[4]
            for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
                point = point.replace(code, character)
            found.append((point, frozenset(fields[5].split(","))))
    return found


def _can_write(folder: Path) -> bool:
    probe = folder / f".preheat-{os.getpid()}"
    try:
        probe.touch()
    except OSError:
        return False
    probe.unlink()
    return True


def _leave_root(writable: Path) -> bool:
    """Become another user; returns whether it may still read what root may."""
    for path in [writable, *writable.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    _call("prctl", _PR_SET_KEEPCAPS, 1, 0, 0, 0)
    # Else access(2), which looks for programs on PATH, says less than what can be opened.
    with suppress(OSError):
        _call("prctl", _PR_SET_SECUREBITS, _NO_SETUID_FIXUP, 0, 0, 0)
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    wanted = 1 << _CAP_DAC_READ_SEARCH
    reads = True
    try:
        _call("capset", header, struct.pack("=6I", wanted, wanted, wanted, 0, 0, 0))
        # For the programs it starts.
        _call("prctl", _PR_CAP_AMBIENT, _AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    except PermissionError:
        # The container has not got it to begin with, which is usual.
        reads = False
        _call("capset", header, struct.pack("=6I", 0, 0, 0, 0, 0, 0))
    # Else /proc/self belongs to root, and this process's own peak of memory could not be set back.
    _call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)
    return reads


def _call(name: str, *arguments: int | bytes | None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*_as_c(arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _as_c(arguments: Sequence[int | bytes | None]) -> list[Any]:
    return [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
