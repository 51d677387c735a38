"""Begins a target's process: look at torch first, then compile.

Why it exists: a torch that cannot build packages, or cannot even be imported, is no fault of one target, and has to be told
before anything else imports torch. Looking takes what importing takes, so it is done where torch is needed anyway.
"""

from __future__ import annotations

import argparse
import gc
from pathlib import Path
from typing import TYPE_CHECKING

from preheat_compiler import features
from preheat_compiler.faults import common_reason, print_traceback
from preheat_compiler.processes import EXIT_DISK_FULL

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str], *, launcher: str) -> int:
    """Write what was found of torch to the work folder; where it will do, be `preheat_compiler.target`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", type=Path, required=True)
    work = parser.parse_known_args(argv)[0].work
    # Modules are no garbage, and to look through those imported so far, again and again, is a sixth of the import.
    gc.disable()
    try:
        (work / "stage").write_text("importing torch", encoding="utf-8")
        if not features.tell(work / features.FILE):
            return 0
    except OSError as error:
        print_traceback()
        return EXIT_DISK_FULL if common_reason(error) == "DiskFull" else 1
    from preheat_compiler import target

    gc.freeze()
    gc.enable()
    try:
        return target.main(argv, launcher=launcher)
    finally:
        gc.unfreeze()  # libraries look at the end whether all of theirs was collected, and complain
