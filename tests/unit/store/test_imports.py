"""What must not be loaded where memory and start time count."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["preheat_operator.fetch", "preheat_operator.toolkit", "preheat_runtime.manifest"])
def test_the_s3_library_is_loaded_only_when_it_is_used(module: str) -> None:
    code = f"import sys, {module}; print(sorted({{'botocore', 'zstandard', 'pydantic', 'kopf'}} & set(sys.modules)))"
    path = ":".join(entry for entry in sys.path if entry)
    found = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": path}, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"
