"""What functions import when they run: part of the identity as soon as it is imported, and imported by a pod when it must be."""

import importlib
import itertools
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from preheat_compiler import package
from preheat_runtime import imports
from preheat_runtime.bind import ModuleState
from preheat_runtime.choosing import Chooser
from preheat_runtime.identity import describe, difference, not_imported

numbers = itertools.count()
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x):
        {statement}
        return x * {value}

    def train_step(self):
        from {name}_training import loss
        return loss
"""
SETTINGS = "SCALE = 2.0\nOTHER = 1\n"
STATEMENTS = {
    "from": ("from {name}_settings import SCALE", "SCALE"),
    "from, by another name": ("from {name}_settings import SCALE as factor", "factor"),
    "whole": ("import {name}_settings", "{name}_settings.SCALE"),
    "whole, by another name": ("import {name}_settings as settings", "settings.SCALE"),
    "in a package": ("import {name}_package.settings", "{name}_package.settings.SCALE"),
    "from a package": ("from {name}_package import settings", "settings.SCALE"),
    "from a module in a package": ("from {name}_package.settings import SCALE", "SCALE"),
    "in a function in it": ("def scale():\n            from {name}_settings import SCALE\n            return SCALE", "scale()"),
    "what imports in turn": ("from {name}_turn import scale", "scale()"),
}  # fmt: skip


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a net with this statement in `forward`, and what it imports; gives it, and the module with its settings."""
    name = f"preheat_imports{next(numbers)}"
    monkeypatch.syspath_prepend(tmp_path)

    def make(statement, value):
        (tmp_path / f"{name}.py").write_text(
            NET.format(statement=statement.format(name=name), value=value.format(name=name), name=name)
        )
        (tmp_path / f"{name}_settings.py").write_text(SETTINGS)
        (tmp_path / f"{name}_training.py").write_text("raise SystemExit('this would train')\n")
        turn = f"def scale():\n    from {name}_settings import SCALE\n    return SCALE\n"
        (tmp_path / f"{name}_turn.py").write_text(turn)
        package = tmp_path / f"{name}_package"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "settings.py").write_text(SETTINGS)
        importlib.invalidate_caches()
        settings = f"{name}_package.settings" if "_package" in statement else f"{name}_settings"
        return importlib.import_module(name).Net(), settings

    yield make
    for each in [each for each in sys.modules if each.startswith(name)]:
        del sys.modules[each]


@pytest.mark.parametrize(("statement", "value"), STATEMENTS.values(), ids=STATEMENTS.keys())
def test_a_pod_is_as_the_job_once_it_has_imported_what_the_job_did(write, statement, value):
    net, settings = write(statement, value)
    first = describe(net)
    assert first.identity.unknown == ()
    assert first.identity.imports == {}
    assert first.watch.unchanged()
    net.forward(1.0)
    assert not first.watch.unchanged(), "what was imported is to be looked at"
    job = describe(net).identity
    assert settings in set(map(imports.module_of, job.imports))

    for name in [name for name in sys.modules if name.startswith(settings.partition(".")[0].rpartition("_")[0] + "_")]:
        del sys.modules[name]
    pod = describe(net).identity
    assert "not imported" in difference(pod, job)
    absent = not_imported(pod, job)
    assert settings in absent
    imports.bring(absent)
    described = describe(net)
    assert difference(described.identity, job) is None
    assert described.watch.unchanged()

    sys.modules[settings].OTHER = 2
    assert difference(describe(net).identity, job) is None
    sys.modules[settings].SCALE = 3.0
    assert not described.watch.unchanged()
    assert "which it imports when it runs, differs" in difference(describe(net).identity, job)


def test_what_only_other_code_of_the_module_imports_is_not_imported_and_no_difference(write):
    net, settings = write(*STATEMENTS["from"])
    net.forward(1.0)
    job = describe(net).identity
    training = settings.replace("_settings", "_training")
    assert training not in sys.modules
    sys.modules[training] = type(sys)(training)
    sys.modules[training].loss = 1.0
    assert difference(describe(net).identity, job) is None


def test_another_module_in_its_place_is_noticed(write):
    net, settings = write(*STATEMENTS["from"])
    net.forward(1.0)
    before = describe(net)
    sys.modules[settings] = type(sys)(settings)
    sys.modules[settings].SCALE = 3.0
    assert not before.watch.unchanged()
    assert difference(describe(net).identity, before.identity) is not None


def test_nothing_is_imported_for_another_module(write):
    net, _ = write(*STATEMENTS["from"])
    pod = describe(net).identity
    job = replace(pod, imports={"preheat_no_such_module 0": "digest"}, patches="others")
    assert not_imported(pod, job) == set()
    assert not_imported(pod, replace(job, patches=pod.patches)) == {"preheat_no_such_module"}


def test_what_cannot_be_imported_is_left_to_the_code(write):
    net, settings = write(*STATEMENTS["from"])
    imports.bring({"preheat_no_such_module", settings.replace("_settings", "_training")})
    assert describe(net).identity.imports == {}


def test_what_another_thread_is_importing_is_not_waited_for(tmp_path, monkeypatch):
    name = f"preheat_imports{next(numbers)}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(
        "import preheat_imports_gate as gate\ngate.begun.set()\ngate.end.wait(60)\n"
    )
    (tmp_path / name / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    gate = type(sys)("preheat_imports_gate")
    gate.begun, gate.end = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, gate.__name__, gate)
    thread = threading.Thread(target=importlib.import_module, args=(name,))
    thread.start()
    assert gate.begun.wait(60)
    imports.bring({f"{name}.part"})
    assert f"{name}.part" not in sys.modules
    gate.end.set()
    thread.join()
    imports.bring({f"{name}.part"})
    assert f"{name}.part" in sys.modules


def test_libraries_cost_nothing():
    def forward(x):
        import math

        import torch.nn.functional as F  # noqa: N812
        from yaml import safe_load

        return F.relu(x) * math.pi, safe_load

    assert list(imports.modules_of(forward.__code__, forward.__globals__)) == []


SCOPES = [
    ({"__package__": "a.b"}, "from . import c", ["a.b", "a.b.c"]),
    ({"__package__": "a.b"}, "from ..d import c", ["a.d", "a.d.c"]),
    ({"__package__": None, "__name__": "a.b"}, "from .d import c", ["a.d", "a.d.c"]),
    ({"__package__": None, "__name__": "a.b", "__path__": []}, "from .d import c", ["a.b.d", "a.b.d.c"]),
    ({"__package__": None, "__name__": "__main__"}, "from .d import c", []),
    ({"__package__": ""}, "from ....d import c", []),
    ({}, "import a.b.c", ["a.b.c", "a"]),
]


@pytest.mark.parametrize(("scope", "statement", "expected"), SCOPES)
def test_names_are_those_that_python_would_import(scope, statement, expected):
    code = compile(f"def forward():\n    {statement}", "file", "exec")
    assert list(imports.modules_of(code, scope)) == expected


def test_a_statement_behind_many_constants_is_read():
    lines = [f"    x = {number}.5" for number in range(300)]
    code = compile("\n".join(["def forward():", *lines, "    from .a import b"]), "file", "exec")
    assert list(imports.modules_of(code, {"__package__": "top"})) == ["top.a", "top.a.b"]


def test_an_artifact_holds_what_running_the_code_imported_and_the_module_of_before_it(write):
    net, settings = write("from {name}_settings import SCALE\n        self.last = 1", "SCALE")
    described = describe(net)
    net.forward(1.0)
    made = package._with_imports(described, net)
    assert set(map(imports.module_of, made.imports)) == {settings}
    assert replace(made, imports={}) == described.identity


def test_what_cannot_be_compared_of_it_is_refused_by_the_job(write):
    net, settings = write(*STATEMENTS["from"])
    described = describe(net)
    package.require_describable(described)
    net.forward(1.0)
    sys.modules[settings].SCALE = (x for x in "ab")
    with pytest.raises(package.IdentityUnknown, match=f"{settings}, which a function imports, has a"):
        package._with_imports(described, net)


class Revision:
    reason = ""

    def __init__(self, *identities):
        self.candidates = [SimpleNamespace(target=SimpleNamespace(identity=each)) for each in identities]


def test_a_pod_imports_before_it_compares(write):
    net, settings = write(*STATEMENTS["from"])
    before = describe(net).identity
    net.forward(1.0)
    job = describe(net).identity
    del sys.modules[settings]
    chooser = Chooser(net, {}, SimpleNamespace(revision=Revision(before, replace(job, patches="others"))))
    assert not chooser._import_for(ModuleState(net))
    assert settings not in sys.modules
    chooser = Chooser(net, {}, SimpleNamespace(revision=Revision(before, job)))
    assert chooser._import_for(ModuleState(net))
    assert settings in sys.modules
    assert not chooser._import_for(ModuleState(net))
