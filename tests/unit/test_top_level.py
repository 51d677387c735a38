"""What holds for the repository as a whole: `operator/` does not hide the standard library's module; no merge is half done."""

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


def test_no_file_holds_what_a_merge_left_open() -> None:
    marks = ("<" * 7, "|" * 7, ">" * 7)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    texts = [REPOSITORY / name for name in files.split("\0") if name.endswith((".md", ".py", ".toml", ".yaml", ".txt"))]
    assert len(texts) > 100
    for path in texts:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        assert not [line for line in lines if line.startswith(marks)], path
