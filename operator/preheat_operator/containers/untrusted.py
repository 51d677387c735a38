"""Opens files that the user's image wrote.

Between two containers of one pod lies a volume in which the first could leave anything: links to the credentials of the
second, pipes that never end, devices, files that grow. Paths are therefore walked one folder at a time from a
descriptor, no link is ever followed, and only a plain file with one name is read, up to the size it had when opened.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, BinaryIO

from preheat_runtime.manifest import is_path

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class UntrustedFileError(ValueError):
    """Something in the output folder is not what it must be; the message names the path."""


class UntrustedFile:
    """An open plain file below an untrusted folder; `size` is what it had when opened."""

    def __init__(self, source: BinaryIO, *, path: str, size: int) -> None:
        self._source = source
        self.path = path
        self.size = size
        self._left = size

    def __enter__(self) -> UntrustedFile:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._source.close()

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end. Raises UntrustedFileError when the file changes meanwhile."""
        data = self._source.read(min(size, self._left))
        self._left -= len(data)
        if (not data and self._left) or (self._left == 0 and self._source.read(1)):
            raise UntrustedFileError(f"{self.path}: changed its size while it was read")
        return data


class UntrustedFolder:
    """The root below which files are opened. Use as a context."""

    def __init__(self, root: Path) -> None:
        self._root = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> UntrustedFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        os.close(self._root)

    def open(self, path: str, *, limit: int) -> UntrustedFile:
        """Open a plain file of at most `limit` bytes. Raises UntrustedFileError, or FileNotFoundError when absent."""
        if not is_path(path):
            raise UntrustedFileError(f"{path!r}: is no relative path of [A-Za-z0-9._-] segments")
        *folders, name = path.split("/")
        parent = os.dup(self._root)
        try:
            for folder in folders:
                child = _open(folder, os.O_DIRECTORY, parent, path)
                os.close(parent)
                parent = child
            # Non-blocking: opening a pipe nobody writes to must not hang.
            descriptor = _open(name, os.O_NONBLOCK, parent, path)
        finally:
            os.close(parent)
        return _checked(descriptor, path, limit)


def read_whole(folder: UntrustedFolder, path: str, *, limit: int) -> bytes:
    """Return a small file's contents; errors as `UntrustedFolder.open`."""
    with folder.open(path, limit=limit) as source:
        return b"".join(iter(lambda: source.read(1 << 20), b""))


def _open(name: str, flags: int, parent: int, path: str) -> int:
    try:
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, dir_fd=parent)
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: is not there") from None
    except PermissionError:
        raise UntrustedFileError(f"{path}: may not be read; the image's umask must leave it readable") from None
    except OSError as error:
        raise UntrustedFileError(f"{path}: is no plain file below plain folders ({error.strerror})") from None


def _checked(descriptor: int, path: str, limit: int) -> UntrustedFile:
    found = os.fstat(descriptor)
    problem = None
    if not stat.S_ISREG(found.st_mode):
        problem = "is no plain file"
    elif found.st_nlink != 1:
        problem = "is a hard link"
    elif found.st_size > limit:
        problem = f"has {found.st_size} bytes, more than {limit}"
    if problem:
        os.close(descriptor)
        raise UntrustedFileError(f"{path}: {problem}")
    return UntrustedFile(os.fdopen(descriptor, "rb", buffering=0), path=path, size=found.st_size)
