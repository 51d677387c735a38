"""The hook puts one function in front of torch.compile, says once that it is there, and survives everything."""

import json
import os
import sys
import types

import pytest

from preheat_runtime import hook, variables


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


def test_the_names_it_reads_are_those_that_others_write():
    """It spells them itself, so that a process that never calls torch.compile imports one module less."""
    own = {name: value for name, value in vars(hook).items() if name.startswith("ENV_")}
    assert len(own) == 4
    assert own.items() <= vars(variables).items()


@pytest.fixture
def work(torch, monkeypatch, tmp_path):
    """Preheat's volume, that outlives the container."""
    monkeypatch.setenv("PREHEAT_WORK_DIR", str(tmp_path))
    monkeypatch.delenv("PREHEAT_LOG", raising=False)
    return tmp_path


def test_it_says_once_for_each_container_that_it_is_there(work, capsys):
    for _ in range(3):  # as many processes do
        hook.autoload()
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line) == {"logger": "preheat", "event": "preheat-loaded", "pid": os.getpid()}
    (mark,) = work.glob(".loaded-*")
    # A container that was started again has another first process, and a new log.
    mark.rename(work / ".loaded-1")
    hook.autoload()
    assert "preheat-loaded" in capsys.readouterr().err
    assert mark.exists()


def test_it_is_silent_where_it_is_asked_to_be(work, monkeypatch, capsys):
    monkeypatch.setenv("PREHEAT_LOG", "off")
    hook.autoload()
    assert capsys.readouterr().err == ""
    assert not list(work.iterdir()), "another process, whose log is on, says it"


@pytest.mark.parametrize("variables", [{"PREHEAT_DISABLE": "1"}, {"PREHEAT_DIR": ""}, {"PREHEAT_WORK_DIR": ""}])
def test_where_nothing_is_installed_nothing_is_said(work, monkeypatch, capsys, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    hook.autoload()
    assert capsys.readouterr().err == ""
    assert not list(work.iterdir())


def test_a_volume_that_is_not_there_keeps_nothing_from_serving(torch, work, monkeypatch, capsys):
    monkeypatch.setenv("PREHEAT_WORK_DIR", str(work / "none"))
    hook.autoload()
    assert torch.compile._preheat
    assert capsys.readouterr().err == ""


def test_a_process_without_an_error_stream_is_served_too(torch, work, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    hook.autoload()
    assert torch.compile._preheat
