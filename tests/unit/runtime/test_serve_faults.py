"""Whatever fails of ours, the call is answered once and as torch answers it; what torch or the user's code raises is raised."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import types
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_runtime import choosing, fallback, hook, policy, report, revision, room, serve, warm
from preheat_runtime.choosing import Choice
from preheat_runtime.native import NativeError
from preheat_runtime.policy import NotServed
from preheat_runtime.reasons import class_of
from together import THREADS, at_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

X = torch.zeros(2)


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "eager"


class Candidate:
    """An artifact's, as far as it is looked at when it answers."""

    entry = types.SimpleNamespace(module="main", bucket="one", hardware="cpu", figures={})
    target = types.SimpleNamespace(levers=types.SimpleNamespace(plain=True))
    size = 1


class Package:
    """Answers, and counts how often it is asked; or fails."""

    runs_the_module = False

    def __init__(self, error: Exception | None = None) -> None:
        self.missed: dict[str, str] = {}
        self.asked = 0
        self._error = error

    def answer(self, *_: object) -> str:
        self.asked += 1
        if self._error is not None:
            raise self._error
        return "package"


class Refusing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        raise IndexError("index 1000 is out of range")


class Torch:
    """`torch` as the hook finds it, in a pod whose revision is not there."""

    def __init__(self, capfd: pytest.CaptureFixture[str], work: Path) -> None:
        self._capfd, self._work = capfd, work
        self.compiled = self.asked = 0
        self.error: Exception | None = None

    def compile(self, model: Any, **arguments: Any) -> Callable[..., str]:
        self.compiled += 1
        if arguments.get("mode") == "unknown":
            raise RuntimeError("no such mode")

        def compiled(*_: object) -> str:
            self.asked += 1
            if self.error is not None:
                raise self.error
            return "torch"

        return compiled

    def faults(self) -> list[str]:
        """What was said of faults; in the file stands the same."""
        said = [json.loads(line) for line in self._capfd.readouterr().err.splitlines()]
        file = self._work / "reports.jsonl"
        assert said == ([json.loads(line) for line in file.read_text().splitlines()] if file.exists() else [])
        return [line["reason"] for line in said if line["event"] == "preheat-error"]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Any:
    for name in ("PREHEAT_SERVING", "PREHEAT_REPORTS_URL", "PREHEAT_LOG", "PREHEAT_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path))
    monkeypatch.setenv("PREHEAT_WORK_DIR", str(tmp_path))
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    monkeypatch.setattr(hook, "_complaints", set())
    made = Torch(capfd, tmp_path)
    hook._install(made)
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()
    yield made
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()


def broken(*_: object, **__: object) -> Any:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


class Wordless(Exception):
    """As a careless class of the user's may be."""

    def __str__(self) -> str:
        return self.args[7]  # type: ignore[no-any-return]


def wordless(*_: object, **__: object) -> Any:
    raise Wordless


def chosen(monkeypatch: pytest.MonkeyPatch, choice: Choice) -> None:
    monkeypatch.setattr(choosing.Chooser, "choose", lambda *_: choice)


WARM = Choice(outcome="warm", reason="compiler caches", candidate=Candidate())  # type: ignore[arg-type]
COLD = Choice(outcome="cold", reason="no artifact")


def hot(package: Package) -> Choice:
    return Choice(outcome="hot", reason="package", candidate=Candidate(), package=package, tensors=[])  # type: ignore[arg-type]


FAULTS: dict[str, tuple[object, str, Choice | None]] = {
    "reading the revision": (revision, "load", None),
    "reading the policy": (policy, "read", None),
    "looking at torch.compile's arguments": (serve, "refused_arguments", None),
    "choosing": (choosing.Chooser, "choose", None),
    "looking for a place to compile in": (room, "find", None),
    "looking for a compiler": (fallback, "compiler_missing", None),
    "reporting": (report.Reporter, "answered", None),
    "counting what caches did not hold": (warm, "HitCounter", WARM),
    "counting it afterwards": (warm.HitCounter, "missed", WARM),
    "the settings of caches": (serve.Server, "_fallback_of", WARM),
    "torch's figures": (warm.HitCounter, "_misses", WARM),
}


@pytest.fixture(params=FAULTS.values(), ids=FAULTS.keys())
def faulty(fake: Torch, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Torch:
    """`fake`, with one thing of ours that fails."""
    owner, name, choice = request.param
    if choice is not None:
        chosen(monkeypatch, choice)
    monkeypatch.setattr(owner, name, broken)
    return fake


def test_a_fault_of_ours_is_said_once_and_torch_answers_once(faulty: Torch) -> None:
    for _ in range(3):  # blocks of a model, each compiled on its own
        compiled = faulty.compile(Net())
        assert [compiled(X), compiled(X)] == ["torch", "torch"]
    assert (faulty.compiled, faulty.asked) == (3, 6)
    (reason,) = faulty.faults()
    assert os.strerror(errno.EMFILE) in reason


@pytest.mark.parametrize(("owner", "name", "choice"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_whose_words_raise_in_turn_is_one_like_any_other(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, choice: Choice | None
) -> None:
    if choice is not None:
        chosen(monkeypatch, choice)
    monkeypatch.setattr(owner, name, wordless)
    compiled = fake.compile(Net())
    assert [compiled(X), compiled(X)] == ["torch", "torch"]
    (reason,) = fake.faults()
    assert reason.endswith(": Wordless: (its __str__ raises IndexError)")


def test_a_module_that_cannot_be_described_is_torchs_and_the_reason_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "ModuleState", wordless)
    candidate = types.SimpleNamespace(target=types.SimpleNamespace(regions=()))
    session: Any = types.SimpleNamespace(revision=types.SimpleNamespace(candidates=(candidate,)))
    choice = choosing.Chooser(Net(), {}, session).choose((X,), {})
    assert choice.outcome == "cold"
    assert choice.reason == "the module cannot be described: Wordless: (its __str__ raises IndexError)"


@pytest.mark.parametrize("choice", [WARM, COLD], ids=lambda choice: choice.outcome)
def test_a_module_that_another_thread_is_importing_is_no_fault(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, choice: Choice
) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", types.ModuleType("torch._dynamo.utils"))
    chosen(monkeypatch, choice)
    assert fake.compile(Net())(X) == "torch"
    assert fake.faults() == []


@pytest.mark.parametrize("error", [KeyError("of the user's forward"), Wordless()], ids=["plain", "wordless"])
def test_what_the_users_code_raises_is_raised_whatever_fails_of_ours(faulty: Torch, error: Exception) -> None:
    faulty.error = error
    compiled = faulty.compile(Net())
    with pytest.raises(type(error)) as raised:
        compiled(X)
    assert raised.value is faulty.error
    assert raised.value.__context__ is None, "nothing of ours is told with it"
    assert faulty.asked == 1


def test_what_torch_compile_raises_is_raised_and_it_is_called_once(fake: Torch) -> None:
    with pytest.raises(RuntimeError, match="no such mode"):
        fake.compile(Net, mode="unknown")  # a class is not a module's own call, so it is torch's at once
    assert fake.compiled == 1
    served = fake.compile(Net(), mode="unknown")
    with pytest.raises(RuntimeError, match="no such mode"):
        served(X)
    assert fake.compiled == 2
    assert fake.faults() == []


@pytest.mark.parametrize(
    ("owner", "name"),
    [(report.Reporter, "answered"), (serve.Server, "_time"), (serve, "_key")],
    ids=["reporting", "timing", "what was said"],
)
def test_an_answer_that_is_there_is_returned_whatever_fails_afterwards(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    package = Package()
    chosen(monkeypatch, hot(package))
    monkeypatch.setattr(owner, name, broken)
    monkeypatch.setattr(choosing.Chooser, "failed", lambda *_: pytest.fail("the library did not fail"))
    compiled = fake.compile(Net())
    assert [compiled(X) for _ in range(5)] == ["package"] * 5
    assert (package.asked, fake.asked) == (5, 0)
    assert len(fake.faults()) == 1


def test_a_call_that_eager_refuses_as_well_says_nothing_against_the_package(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package(error=NativeError("index out of bounds"))
    chosen(monkeypatch, hot(package))
    monkeypatch.setattr(choosing.Chooser, "failed", lambda *_: pytest.fail("the package did not fail"))
    compiled = fake.compile(Refusing())
    for _ in range(5):
        with pytest.raises(IndexError, match="index 1000") as raised:
            compiled(X)
        assert raised.value.__context__ is None, "nothing of ours is told with it"
    assert (package.asked, fake.asked) == (5, 0), "torch does not compile for what cannot be answered"
    assert fake.faults() == []


@pytest.mark.parametrize(
    ("policy_", "outcome", "reason"),
    [
        ("", "eager", "Preheat failed: NativeError: out of luck"),
        ("onMiss=Eager", "eager", "Preheat failed: NativeError: out of luck; onMiss is Eager"),
    ],
)
def test_where_a_package_fails_and_eager_does_not_eager_answers_and_the_package_is_counted(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, policy_: str, outcome: str, reason: str
) -> None:
    monkeypatch.setenv("PREHEAT_SERVING", policy_)
    failed, said = [], []
    chosen(monkeypatch, hot(Package(error=NativeError("out of luck"))))
    monkeypatch.setattr(choosing.Chooser, "failed", lambda _, candidate: failed.append(candidate))
    monkeypatch.setattr(report.Reporter, "answered", lambda _, answer: said.append((answer.outcome, answer.reason)))
    compiled = fake.compile(Net())
    assert [compiled(X) for _ in range(3)] == ["eager"] * 3
    assert (len(failed), fake.asked) == (3, 0)
    assert said == [(outcome, reason)]
    assert class_of(*said[0]) == "LibraryFailed"
    (fault,) = fake.faults()
    assert fault.endswith("NativeError: out of luck")


def test_where_a_package_fails_and_nothing_else_may_answer_the_call_fails(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREHEAT_SERVING", "onMiss=Fail")
    chosen(monkeypatch, hot(Package(error=NativeError("out of luck"))))
    monkeypatch.setattr(choosing.Chooser, "failed", lambda *_: None)
    with pytest.raises(NotServed, match="out of luck"):
        fake.compile(Net())(X)
    with pytest.raises(IndexError):
        fake.compile(Refusing())(X)


def test_a_look_at_the_times_that_fails_is_not_repeated_at_each_call(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = []
    monkeypatch.setattr("preheat_runtime.steady.steady_of", lambda _: looked.append(1) or broken())
    chosen(monkeypatch, hot(Package()))
    compiled = fake.compile(Net())
    assert [compiled(X) for _ in range(5)] == ["package"] * 5
    assert len(looked) == 1


def test_a_call_is_refused_also_where_that_cannot_be_reported(fake: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREHEAT_SERVING", "onMiss=Fail")
    monkeypatch.setattr(report.Reporter, "answered", broken)
    with pytest.raises(NotServed):
        fake.compile(Net())(X)
    assert fake.asked == 0


def test_where_no_fault_can_be_reported_a_plain_line_says_it_once(
    fake: Torch, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report.Reporter, "answered", broken)
    monkeypatch.setattr(report.Reporter, "failed", broken)
    compiled = [fake.compile(Net()) for _ in range(3)]
    assert [each(X) for each in compiled] == ["torch"] * 3
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("preheat: an answer was not reported: OSError: ")


def test_a_revision_that_cannot_be_read_is_the_reason_and_is_not_read_again(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revision, "load", broken)
    session = fake.compile(Net())._preheat_server._session  # type: ignore[attr-defined]
    assert session.revision.reason.startswith("Preheat failed: OSError: ")
    assert session.revision.candidates == ()
    assert session.reporter.manifest is None
    assert serve.session() is session


def test_a_policy_that_cannot_be_read_is_the_default(fake: Torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "read", broken)
    session = fake.compile(Net())._preheat_server._session  # type: ignore[attr-defined]
    assert session.serving == policy.Serving()
    assert serve.session() is session


def test_threads_that_compile_at_once_share_one_session_and_one_reporter(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, wait, load = [], threading.Event(), revision.load

    def slow(environ: Any) -> revision.Revision:
        loaded.append(1)
        wait.wait(0.2)
        return load(environ)

    monkeypatch.setattr(revision, "load", slow)
    servers = at_once(lambda: fake.compile(Net())._preheat_server)  # type: ignore[attr-defined]
    sessions = {id(server._session) for server in servers}  # type: ignore[union-attr]
    assert (len(servers), len(sessions), len(loaded)) == (THREADS, 1, 1)


def test_threads_that_first_need_compiler_caches_at_once_set_the_process_up_once(
    fake: Torch, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, wait = [], threading.Event()

    def slow(*_: object) -> None:
        prepared.append(1)
        wait.wait(0.2)

    monkeypatch.setattr(warm, "prepare", slow)
    session = serve.session()
    assert at_once(lambda: session.warm_reason) == [None] * THREADS
    assert len(prepared) == 1
