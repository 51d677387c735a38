"""An image whose torch cannot do what is needed is refused with a word, before anything is compiled."""

import os
import subprocess
import sys
from pathlib import Path

import preheat_compiler

FIND = """
import json, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
from preheat_compiler.features import find
print(json.dumps(vars(find())))
"""


def find(*absent: str) -> str:
    """What the probe says in a process that cannot import some modules."""
    env = {**os.environ, "PYTHONPATH": str(Path(preheat_compiler.__file__).parents[1])}
    words = [sys.executable, "-c", FIND, *absent]
    return subprocess.run(words, check=True, capture_output=True, text=True, env=env).stdout


def test_this_torch_has_all_that_is_needed() -> None:
    assert '"reason": null' in find()


def test_a_missing_setuptools_is_named_with_the_remedy() -> None:
    said = find("setuptools")
    assert '"reason": "TorchUnsupported"' in said
    assert "it imports setuptools, which the image lacks" in said
    assert "pip install setuptools" in said
