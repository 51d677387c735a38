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


OLDER = """
import json
from preheat_compiler import features
there = features._has
features._has = lambda module, name: name != "cpp.march" and there(module, name)
print(json.dumps(vars(features.find())))
"""


def test_a_torch_that_is_too_old_is_told_what_it_lacks_and_which_will_do() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(preheat_compiler.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", OLDER], check=True, capture_output=True, text=True, env=env)
    said = json.loads(done.stdout)
    assert said["reason"] == "TorchUnsupported"
    assert said["message"] == (
        f"torch {said['version']} lacks torch._inductor.config.cpp.march (code for a class of CPUs). "
        "Use torch 2.13 or later."
    )


@pytest.mark.parametrize(
    ("module", "name", "there"),
    [
        ("torch", "compile", True),
        ("torch.export", "Dim", True),
        ("torch._inductor.config", "cpp.march", True),
        ("torch._inductor.config", "cpp.no_such_option", False),
        ("torch.no_such_module", "compile", False),
    ],
)
def test_what_is_needed_is_looked_for_and_not_guessed_from_a_version(module: str, name: str, there: bool) -> None:
    from preheat_compiler.features import _has

    assert _has(module, name) is there


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
