"""The hook puts one function in front of torch.compile, and survives everything."""

import sys
import types

import pytest

from preheat_runtime import hook


@pytest.fixture
def torch(monkeypatch, tmp_path):
    def compile(model=None, **arguments):  # noqa: A001
        return ("real", model, arguments)

    fake = types.SimpleNamespace(compile=compile)
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path))
    monkeypatch.delenv("PREHEAT_DISABLE", raising=False)
    return fake


def install(monkeypatch, serve):
    monkeypatch.setitem(sys.modules, "preheat_runtime.serve", types.SimpleNamespace(serve=serve))
    monkeypatch.setattr("preheat_runtime.serve", sys.modules["preheat_runtime.serve"], raising=False)
    hook.autoload()


def test_what_serve_returns_is_returned(torch, monkeypatch):
    install(monkeypatch, lambda real, model, arguments: ("served", model, arguments))
    assert torch.compile("m", mode="default") == ("served", "m", {"mode": "default"})


def test_none_means_the_real_one(torch, monkeypatch):
    install(monkeypatch, lambda real, model, arguments: None)
    assert torch.compile("m", mode="x") == ("real", "m", {"mode": "x"})
    assert torch.compile(mode="x") == ("real", None, {"mode": "x"})


def test_a_failure_is_said_and_the_real_one_answers(torch, monkeypatch, capsys):
    def broken(real, model, arguments):
        raise RuntimeError("broken")

    install(monkeypatch, broken)
    assert torch.compile("m") == ("real", "m", {})
    assert "broken" in capsys.readouterr().err


def test_twice_is_once(torch, monkeypatch):
    install(monkeypatch, lambda *_: None)
    first = torch.compile
    hook.autoload()
    assert torch.compile is first


@pytest.mark.parametrize("variables", [{"PREHEAT_DISABLE": "1"}, {"PREHEAT_DIR": ""}])
def test_not_wanted(torch, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    before = torch.compile
    hook.autoload()
    assert torch.compile is before


def test_a_torch_without_compile_is_no_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path))
    hook.autoload()
    assert "the hook failed" in capsys.readouterr().err
