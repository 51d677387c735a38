"""How the user's model is found: each way in which that fails has its reason, the field, and what to do."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.model import find_callable, find_module, load_factory
from preheat_compiler.verdict import TargetError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOURCE = """
import urllib.error

weights = {"a": 1}

class Loader:
    depth = 3
    @classmethod
    def load(cls):
        return "made by a class"

def load(size=1, kind="plain"):
    return size, kind

def raises():
    return weights["b"]

def leaves():
    raise SystemExit("no weights given")

class Stop(BaseException):
    pass

def stops():
    raise Stop("not today")

def interrupts():
    raise KeyboardInterrupt

class Lazy(type):
    @property
    def load(cls):
        raise RuntimeError("not ready")

class Maker(metaclass=Lazy):
    pass

def undecodable():
    raise RuntimeError("no weights at " + b"/models/caf\\xe9.pt".decode("utf-8", "surrogateescape"))

def offline():
    raise urllib.error.URLError("[Errno -3] Temporary failure in name resolution")

def on_a_gpu():
    raise RuntimeError("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU")

def without_cuda():
    assert False, "Torch not compiled with CUDA enabled"
"""


@pytest.fixture(autouse=True)
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's module `theirs`, in the working directory."""
    (tmp_path / "theirs.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield tmp_path
    for name in ("theirs", "asks", "broken", "gpu"):
        sys.modules.pop(name, None)


def line(words: str) -> str:
    return f"theirs.py:{next(n for n, text in enumerate(SOURCE.splitlines(), 1) if words in text)}"


def refused(factory: str, **arguments: object) -> TargetError:
    with pytest.raises(TargetError) as error:
        load_factory(factory, arguments.items())
    return error.value


def test_a_factory_is_called_with_its_arguments_and_nothing_else() -> None:
    assert load_factory("theirs:load") == (1, "plain")
    assert load_factory("theirs:load", [("size", 7), ("kind", "fancy")]) == (7, "fancy")
    assert load_factory("theirs:Loader.load") == "made by a class"


@pytest.mark.parametrize("factory", ["theirs:weights", "theirs:Loader.depth"])
def test_what_is_not_callable_is_named_with_its_field_and_the_remedy(factory: str) -> None:
    error = refused(factory)
    assert error.reason == "FactoryFailed"
    assert str(error) == f"torch.factory: '{factory}' is not callable. Name a function."


def test_a_name_that_is_not_there_comes_with_the_nearest() -> None:
    error = refused("theirs:laod")
    assert error.reason == "FactoryFailed"
    assert str(error) == "torch.factory: 'theirs' has no 'laod' (did you mean load?). Check torch.factory."
    assert "'theirs' has no 'Lode'" in str(refused("theirs:Lode.load"))


def test_whose_field_it_is_decides_the_reason() -> None:
    with pytest.raises(TargetError, match=r"exampleInputs: 'theirs:weights' is not callable") as error:
        find_callable("theirs:weights", "torch.modules[].buckets[].exampleInputs", "InputsRefused")
    assert error.value.reason == "InputsRefused"


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("theirs:raises", ("KeyError: 'b'", line('weights["b"]'), "calling theirs:raises() with no arguments")),
        ("theirs:leaves", ("SystemExit: no weights given", line("raise SystemExit"))),
        ("theirs:stops", ("Stop: not today", line('Stop("not today")'))),
        ("theirs:interrupts", ("KeyboardInterrupt", line("raise KeyboardInterrupt"))),
        ("theirs:undecodable", (r"no weights at /models/caf\udce9.pt", line("no weights at"))),
        ("theirs:Maker.load", ("reading 'load' of 'theirs': RuntimeError: not ready", line('"not ready"'))),
        ("theirs:offline", ("URLError", "name resolution", line("URLError("), "without network")),
    ],
)
def test_a_factory_that_raises_has_the_users_line(factory: str, says: tuple[str, ...]) -> None:
    error = refused(factory)
    assert error.reason == "FactoryFailed"
    for words in says:
        assert words in str(error)


def test_arguments_that_do_not_fit_are_named() -> None:
    error = refused("theirs:load", width=3)
    assert error.reason == "FactoryFailed"
    assert "with the torch.arguments width" in str(error)
    assert "unexpected keyword argument 'width'" in str(error)


@pytest.mark.parametrize(
    ("name", "source", "says"),
    [
        ("asks", "import urllib.error\nraise urllib.error.URLError('timed out')", ("URLError", "asks.py:2", "needs no network")),
        ("broken", "def load(:\n", ("SyntaxError", "broken.py:1")),
        ("absent", None, ("No module named 'absent'", "working directory, PYTHONPATH or site-packages")),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_says_where_and_why(
    theirs: Path, name: str, source: str | None, says: tuple[str, ...]
) -> None:
    if source is not None:
        (theirs / f"{name}.py").write_text(source)
    error = refused(f"{name}:load")
    assert error.reason == "FactoryFailed"
    for words in (*says, f"importing '{name}' of torch.factory"):
        assert words in str(error)


@pytest.mark.parametrize("factory", ["theirs:on_a_gpu", "theirs:without_cuda"])
def test_a_gpu_that_is_not_there_is_no_fault_of_the_factory(factory: str) -> None:
    error = refused(factory)
    assert error.reason == "DeviceMissing"
    assert "hardware[].nodeSelector" in str(error)
    assert "theirs.py:" in str(error)


def test_a_module_that_wants_a_gpu_when_it_is_imported_too(theirs: Path) -> None:
    (theirs / "gpu.py").write_text("raise RuntimeError('No CUDA GPUs are available')")
    assert refused("gpu:load").reason == "DeviceMissing"


class Pipeline:
    """As a diffusers pipeline: no module itself, its parts are."""

    def __init__(self) -> None:
        from torch import nn

        self.unet = nn.Linear(2, 2)
        self.vae = nn.ModuleDict({"decoder": nn.Linear(3, 3)})
        self.steps = [nn.Identity(), nn.Linear(4, 4)]
        self.width = 8


def test_modules_of_a_pipeline_are_found_by_attribute_key_and_index() -> None:
    made = Pipeline()
    assert find_module(made, "unet") is made.unet
    assert find_module(made, "vae.decoder") is made.vae["decoder"]
    assert find_module(made, "steps.1") is made.steps[1]
    assert find_module({"net": made.unet}, "net") is made.unet
    assert not made.unet.training


def test_what_the_users_code_raises_on_the_way_to_a_module_is_its_own() -> None:
    from torch import nn

    class Odd(nn.Module):
        @property
        def part(self) -> nn.Module:
            raise RuntimeError("not ready")

        def train(self, mode: bool = True) -> Odd:
            raise KeyboardInterrupt("stays as it is") if not mode else RuntimeError

    with pytest.raises(TargetError) as error:
        find_module(Odd(), "part")
    assert error.value.reason == "ModuleNotFound"
    assert "reading 'part' of what the factory returns: RuntimeError: not ready (" in str(error.value)
    with pytest.raises(TargetError) as error:
        find_module(Odd(), "")
    assert error.value.reason == "FactoryFailed"
    assert "evaluation mode: KeyboardInterrupt: stays as it is" in str(error.value)


@pytest.mark.parametrize(
    ("make", "path", "says"),
    [
        (Pipeline, "", ("'' is a Pipeline, not a torch.nn.Module", "Modules there: unet, vae")),
        (dict, "", ("'' is a dict, not a torch.nn.Module", "Modules there: none")),
        (lambda: None, "", ("'' is a NoneType, not a torch.nn.Module",)),
        (Pipeline, "width", ("'width' is a int, not a torch.nn.Module",)),
        (Pipeline, "unte", ("what the factory returns (Pipeline) has no 'unte' (did you mean unet?)", "It has: unet, vae")),
        (Pipeline, "vae.encoder", ("vae (ModuleDict) has no 'encoder' (did you mean decoder?)",)),
        (Pipeline, "steps.2", ("steps (list) has no '2'", "It has: 0, 1")),
    ],
)  # fmt: skip
def test_what_is_no_module_says_what_there_is(make: type, path: str, says: tuple[str, ...]) -> None:
    with pytest.raises(TargetError) as error:
        find_module(make(), path)
    assert error.value.reason == "ModuleNotFound"
    for words in says:
        assert words in str(error.value)
