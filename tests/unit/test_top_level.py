"""The folder `operator/` must not hide the standard library's module of that name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_standard_library_is_found_from_the_top_of_the_repository() -> None:
    code = "import operator, collections; print(operator.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env={}, capture_output=True, text=True, check=True
    )
    assert not done.stdout.startswith(str(REPOSITORY))
    assert not (REPOSITORY / "operator" / "__init__.py").exists()
