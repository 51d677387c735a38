"""An image whose torch cannot do what is needed is refused with a word, before anything is compiled."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import preheat_compiler

FIND = "import json; from preheat_compiler.features import find; print(json.dumps(vars(find())))"


def find(**environ: str) -> str:
    """What is said in a process with these variables."""
    env = {**os.environ, "PYTHONPATH": str(Path(preheat_compiler.__file__).parents[1]), **environ}
    words = [sys.executable, "-c", FIND]
    return subprocess.run(words, check=True, capture_output=True, text=True, env=env).stdout


# One process for all that needs the compiler's own modules: importing them takes some ten seconds.
IN_TURN = """
import json, os, sys
from preheat_compiler import features
said = {}
def look(name):
    said[name] = vars(features.find())
sys.modules["setuptools"] = None
look("no setuptools")
del sys.modules["setuptools"]
look("as it is")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
look("told to load")
there = features._has
features._has = lambda module, name: name != "cpp.march" and there(module, name)
look("too old")
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said() -> dict[str, dict[str, str]]:
    """What is found in a process in which one thing after the other is otherwise."""
    env = {**os.environ, "PYTHONPATH": str(Path(preheat_compiler.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", IN_TURN], check=True, capture_output=True, text=True, env=env)
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_this_torch_has_all_that_is_needed(said: dict[str, dict[str, str]]) -> None:
    assert said["as it is"]["reason"] is None


def test_a_torch_that_is_too_old_is_told_what_it_lacks_and_which_will_do(said: dict[str, dict[str, str]]) -> None:
    assert said["too old"]["reason"] == "TorchUnsupported"
    assert said["too old"]["message"] == (
        f"torch {said['too old']['version']} lacks torch._inductor.config.cpp.march (code for a class of CPUs). "
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


def test_a_missing_setuptools_is_named_with_the_remedy(said: dict[str, dict[str, str]]) -> None:
    assert said["no setuptools"]["reason"] == "TorchUnsupported"
    assert "it imports setuptools, which the image lacks" in said["no setuptools"]["message"]
    assert "pip install setuptools" in said["no setuptools"]["message"]


@pytest.mark.parametrize("value", ["0", ""])
def test_a_torch_that_loads_no_entry_points_is_named_with_the_remedy(value: str) -> None:
    """torch takes any word but 1 for no; found later it would show as a proof that fails."""
    said = json.loads(find(TORCH_DEVICE_BACKEND_AUTOLOAD=value))
    assert said["reason"] == "TorchUnsupported"
    assert f"TORCH_DEVICE_BACKEND_AUTOLOAD={value} is set, so torch loads no Preheat in pods either" in said["message"]
    assert "Remove it from the image or the pod template, or set it to 1." in said["message"]


def test_a_torch_that_was_told_to_load_them_is_as_by_default(said: dict[str, dict[str, str]]) -> None:
    assert said["told to load"]["reason"] is None
