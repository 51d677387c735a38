"""Folders whose contents are loaded or published later: on a machine of several users they must be one's own.

In a pod the volume is reached by nobody else; here any local user could otherwise put code into what a script loads.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE: Final = 0o700
_OF_OTHERS: Final = 0o022


def is_private(folder: Path) -> bool:
    """Whether the folder is this user's and nobody else can write to it. Raises OSError."""
    found = folder.stat()
    return found.st_uid == os.geteuid() and not found.st_mode & _OF_OTHERS
