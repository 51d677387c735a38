"""Copies compiler caches to where a process will use them, and has what names its own place name that one.

Why it exists: Triton keeps a list of each kernel's files by their absolute paths, and compiles the kernel again, unseen, where
one of them is not there. A copy's lists named the files of the compile Job.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

_BEGINS, _ENDS, _FILES = "__grp__", ".json", "child_paths"


def copy_caches(source: Path, target: Path, *, final: Path) -> None:
    """Copy the folder `source` into `target`, which may be there, and will be renamed to `final`.

    The files of `source` stay as they are. Raises OSError.
    """

    def copy(file: str, to: str) -> None:
        shutil.copy2(file, to)
        copied = Path(to)
        if copied.name.startswith(_BEGINS) and copied.name.endswith(_ENDS):
            _relocate(copied, final / copied.parent.relative_to(target))

    shutil.copytree(source, target, copy_function=copy, dirs_exist_ok=True)


def _relocate(group: Path, folder: Path) -> None:
    """Have a list of files name those in `folder`, where it will lie itself; one that is not as expected stays as it is."""
    try:
        content = json.loads(group.read_bytes())
        files = content[_FILES]
        moved = {name: str(folder / Path(path).name) for name, path in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        return
    mode = group.stat().st_mode
    # Not in place: the copy may be one that cannot be written to.
    group.unlink()
    group.write_text(json.dumps({**content, _FILES: moved}), encoding="ascii")
    group.chmod(mode)
