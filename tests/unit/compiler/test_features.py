"""An image whose torch cannot do what is needed is refused with a word, before anything is compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import preheat_compiler

FIND = """
import json, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from preheat_compiler.features import find
print(json.dumps(vars(find())))
"""


def find(*absent: str, **environ: str) -> str:
    """What the probe says in a process that cannot import some modules."""
    env = {**os.environ, "PYTHONPATH": str(Path(preheat_compiler.__file__).parents[1]), **environ}
    words = [sys.executable, "-c", FIND, *absent]
    return subprocess.run(words, check=True, capture_output=True, text=True, env=env).stdout


def test_this_torch_has_all_that_is_needed() -> None:
    assert '"reason": null' in find()


def test_a_missing_setuptools_is_named_with_the_remedy() -> None:
    said = find("setuptools")
    assert '"reason": "TorchUnsupported"' in said
    assert "it imports setuptools, which the image lacks" in said
    assert "pip install setuptools" in said


@pytest.mark.parametrize("value", ["0", ""])
def test_a_torch_that_loads_no_entry_points_is_named_with_the_remedy(value: str) -> None:
    """torch takes any word but 1 for no; found later it would show as a proof that fails."""
    said = json.loads(find(TORCH_DEVICE_BACKEND_AUTOLOAD=value))
    assert said["reason"] == "TorchUnsupported"
    assert f"TORCH_DEVICE_BACKEND_AUTOLOAD={value} is set, so torch loads no Preheat in pods either" in said["message"]
    assert "Remove it from the image or the pod template, or set it to 1." in said["message"]


def test_a_torch_that_was_told_to_load_them_is_as_by_default() -> None:
    assert json.loads(find(TORCH_DEVICE_BACKEND_AUTOLOAD="1"))["reason"] is None
