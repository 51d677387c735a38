"""The hook puts one function in front of torch.compile, says once that it is there, and survives everything."""

import contextlib
import io
import json
import os
import sys
import types

import pytest

from preheat_runtime import hook, redaction, report, variables


@pytest.fixture
def torch(monkeypatch, tmp_path):
    def compile(model=None, **arguments):  # noqa: A001
        return ("real", model, arguments)

    fake = types.SimpleNamespace(compile=compile)
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path))
    monkeypatch.delenv("PREHEAT_DISABLE", raising=False)
    return fake


@pytest.fixture(autouse=True)
def reporter(monkeypatch):
    """Each test is a process of its own, with a reporter of its own."""
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr(hook, "_complaints", set())
    report.of_this_process.cache_clear()
    yield
    report.of_this_process.cache_clear()


def install(monkeypatch, serve):
    monkeypatch.setitem(sys.modules, "preheat_runtime.serve", types.SimpleNamespace(serve=serve))
    monkeypatch.setattr("preheat_runtime.serve", sys.modules["preheat_runtime.serve"], raising=False)
    hook.autoload()


def without_the_rest(monkeypatch):
    """The rest of the runtime cannot be imported."""

    def broken():
        raise OSError("too many open files")

    monkeypatch.setattr(hook, "_serve", broken)
    hook.autoload()


def events(text):
    return [json.loads(line) for line in text.splitlines() if "preheat-loaded" not in line]


def test_what_serve_returns_is_returned(torch, monkeypatch):
    install(monkeypatch, lambda real, model, arguments: ("served", model, arguments))
    assert torch.compile("m", mode="default") == ("served", "m", {"mode": "default"})


def test_a_decorator_with_arguments_is_torchs(torch, monkeypatch):
    install(monkeypatch, lambda real, model, arguments: None)
    assert torch.compile(mode="x") == ("real", None, {"mode": "x"})


def test_what_torch_raises_is_raised_and_torch_is_not_asked_again(torch, monkeypatch, capsys):
    calls = []

    def refused(model, **arguments):
        calls.append(model)
        raise RuntimeError("no such mode")

    monkeypatch.setattr(torch, "compile", refused)
    install(monkeypatch, lambda real, model, arguments: real(model, **arguments))
    with pytest.raises(RuntimeError, match="no such mode"):
        torch.compile("m", mode="x")
    assert calls == ["m"]
    assert capsys.readouterr().err == "", "it is no fault of ours"


def test_a_fault_is_said_once_as_everything_is_and_torch_answers(torch, work, monkeypatch, capsys):
    without_the_rest(monkeypatch)
    for number in range(3):  # blocks of a model, each compiled on its own
        assert torch.compile(number) == ("real", number, {})
    (said,) = events(capsys.readouterr().err)
    assert (said["event"], said["logger"], said["manifest"]) == ("preheat-error", "preheat", None)
    assert said["reason"] == "torch.compile goes on without Preheat: OSError: too many open files"
    assert [json.loads(line) for line in (work / "reports.jsonl").read_text().splitlines()] == [said]


def test_a_fault_is_counted_where_reports_are_taken(torch, monkeypatch, tmp_path):
    sent = []
    monkeypatch.setenv("PREHEAT_REPORTS_URL", "https://127.0.0.1:9")
    monkeypatch.setenv("PREHEAT_REPORTS_TOKEN", str(tmp_path / "token"))
    monkeypatch.setattr("preheat_runtime.sending.Sender.send", lambda self, record: sent.append(record))
    without_the_rest(monkeypatch)
    for _ in range(3):
        torch.compile("m")
    assert sent == [{"event": "preheat-error"}]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_says_its_own(torch, work, monkeypatch):
    without_the_rest(monkeypatch)
    torch.compile("m")
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            torch.compile("m")
            torch.compile("m")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    said = [json.loads(line) for line in (work / "reports.jsonl").read_text().splitlines()]
    assert [line["pid"] for line in said] == [os.getpid(), child]


def test_a_reporter_that_fails_too_leaves_a_plain_line(torch, work, monkeypatch, capsys):
    def broken(*_, **__):
        raise OSError("nothing can be opened")

    monkeypatch.setattr(report, "Reporter", broken)
    without_the_rest(monkeypatch)
    for _ in range(3):
        assert torch.compile("m") == ("real", "m", {})
    said = [line for line in capsys.readouterr().err.splitlines() if "preheat-loaded" not in line]
    assert said == ["preheat: torch.compile goes on without Preheat: OSError: too many open files"]


@pytest.mark.parametrize("reporter_too", [False, True])
def test_a_closed_stream_ends_no_import_of_torch_and_no_compile(torch, monkeypatch, reporter_too):
    def broken(*_):
        raise OSError("broken")

    closed = io.StringIO()
    closed.close()
    if reporter_too:
        monkeypatch.setattr(report.Reporter, "failed", broken)
    monkeypatch.setattr(sys, "stderr", closed)
    without_the_rest(monkeypatch)
    assert torch.compile("m") == ("real", "m", {})
    monkeypatch.setattr(hook, "_install", broken)
    hook.autoload()


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
    (said,) = events(capsys.readouterr().err)
    assert said["event"] == "preheat-error"
    assert said["reason"].startswith("the hook failed: AttributeError")


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


def test_nothing_is_said_of_what_fails_while_the_interpreter_shuts_down(monkeypatch, capsys):
    """Then nothing can be imported, and torch answers: an object's `__del__` may well ask the model."""
    monkeypatch.setattr(hook.sys, "is_finalizing", lambda: True)
    hook.complain("an answer was not reported", ImportError("Python is likely shutting down"))
    monkeypatch.undo()
    assert capsys.readouterr().err == ""
    hook.complain("an answer was not reported", ImportError("no such module"))
    assert "no such module" in capsys.readouterr().err


def test_what_is_said_of_an_error_holds_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_notforlogs")
    error = PermissionError("https://me:pass-word@hub.example/x?sig=1 refuses hf_notforlogs")
    assert hook.in_words(error) == "PermissionError: https://hub.example/x refuses <HF_TOKEN>"


def test_where_it_cannot_be_redacted_only_its_kind_is_said(monkeypatch):
    def fail(*_):
        raise ValueError

    monkeypatch.setattr(redaction, "redact", fail)
    assert hook.in_words(PermissionError("hf_notforlogs")) == "PermissionError"
