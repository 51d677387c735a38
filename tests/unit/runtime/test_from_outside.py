"""What strikes a call from outside is not caught as a fault of ours: a signal's handler that raises, another thread's exception."""

from __future__ import annotations

import ctypes
import functools
import gc
import signal
import sys
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from preheat_runtime import choosing, fallback, native, outside, policy, report, revision, serve, trial
from preheat_runtime.choosing import Choice
from preheat_runtime.lanes import Lanes
from preheat_runtime.levers import Levers
from preheat_runtime.native import NativeError
from preheat_runtime.regions import _Region
from preheat_runtime.verify import Call, Check, Verifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

X = torch.zeros(2)


class SoftTimeLimitExceeded(Exception):
    """As celery's."""


def handler(*_: object) -> None:
    raise SoftTimeLimitExceeded("time is up")


class Handler:
    def method(self, number: int, frame: object) -> None:
        raise TimeoutError("time is up")

    def __call__(self, number: int, frame: object) -> None:
        self.method(number, None)


def wrapped(number: int, *more: object) -> None:
    functools.partial(handler, 7)(number, *more)


HANDLERS: dict[str, Callable[..., None]] = {
    "a function": handler,
    "a method": Handler().method,
    "an object": Handler(),
    "wrapped": wrapped,
    "partial": functools.partial(handler, None),
}


@pytest.fixture(params=HANDLERS.values(), ids=HANDLERS.keys())
def strike(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """What has the process struck by a signal whose handler raises."""
    before = signal.signal(signal.SIGUSR1, request.param)
    yield struck
    signal.signal(signal.SIGUSR1, before)


def struck(*_: object, **__: object) -> Any:
    """As code of ours that takes its time."""
    signal.raise_signal(signal.SIGUSR1)
    for _each in range(100):
        time.sleep(0.001)
    pytest.fail("nothing struck")


def ours(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the name of a module of ours: where a call is nearly always struck."""
    scope = {**function.__globals__, "__name__": "preheat_runtime.native"}
    return type(function)(function.__code__, scope, function.__name__)  # type: ignore[call-overload,no-any-return]


def put_in(kind: type[BaseException]) -> None:
    """Have another thread raise `kind` here."""
    here = threading.get_ident()
    thread = threading.Thread(
        target=lambda: ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(here), ctypes.py_object(kind))
    )
    thread.start()
    thread.join()
    for _each in range(100):
        time.sleep(0.001)


def test_a_handlers_exception_is_let_through(strike: Callable[..., Any]) -> None:
    with pytest.raises((SoftTimeLimitExceeded, TimeoutError), match="time is up") as raised:  # noqa: PT012
        try:
            ours(strike)()
        except Exception as error:
            outside.let_through(error)
    assert raised.value.__context__ is None


def test_it_is_also_where_something_of_ours_made_another_of_it(strike: Callable[..., Any]) -> None:
    with pytest.raises((SoftTimeLimitExceeded, TimeoutError), match="time is up"):  # noqa: PT012
        try:
            try:
                strike()
            except Exception as error:
                raise NativeError("cannot be used") from error
        except Exception as error:
            outside.let_through(error)


def test_what_another_thread_has_raised_is_let_through() -> None:
    with pytest.raises(SoftTimeLimitExceeded):  # noqa: PT012
        try:
            ours(put_in)(SoftTimeLimitExceeded)
        except SoftTimeLimitExceeded as error:
            # As it is where nothing but our code runs.
            error.__traceback__ = error.__traceback__.tb_next if error.__traceback__ else None
            outside.let_through(error)


class Odd:
    def __repr__(self) -> str:
        raise SoftTimeLimitExceeded("of the user's own code, which we asked for its words")


def loop() -> None:
    error = ValueError("it came from itself")
    raise error from error


@pytest.mark.parametrize(
    "fault", [lambda: repr(Odd()), lambda: X @ torch.zeros(3, 3), lambda: {}["key"], lambda: int("x"), loop]
)
def test_a_fault_is_not(fault: Callable[[], object]) -> None:
    try:
        handler()
    except SoftTimeLimitExceeded:  # as somebody does who answers in another way when the time is up
        try:
            fault()
        except Exception as error:
            outside.let_through(error)
        else:
            pytest.fail("there was none")


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> str:
        return "eager"


class Candidate:
    entry = SimpleNamespace(module="main", bucket="one", hardware="cpu", figures={})
    target = SimpleNamespace(levers=SimpleNamespace(plain=True))
    size = 1


class Package:
    runs_the_module = False

    def __init__(self) -> None:
        self.missed: dict[str, str] = {}
        self.strikes = True

    def answer(self, *_: object) -> str:
        return ours(struck)() if self.strikes else "package"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """What compiles a Net as in a pod; torch's own compile gives what answers "torch"."""
    for name in ("PREHEAT_SERVING", "PREHEAT_REPORTS_URL", "PREHEAT_LOG", "PREHEAT_DISABLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREHEAT_DIR", str(tmp_path))
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    monkeypatch.setattr(report.Reporter, "failed", lambda *words: pytest.fail(f"said as a fault: {words}"))
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()
    yield lambda: serve.serve(lambda *_, **__: lambda *_: "torch", Net(), {})
    for kept in (serve.session, report.of_this_process):
        kept.cache_clear()


def chosen(monkeypatch: pytest.MonkeyPatch, **choice: Any) -> None:
    made = Choice(candidate=Candidate(), **choice)  # type: ignore[arg-type]
    monkeypatch.setattr(choosing.Chooser, "choose", lambda *_: made)


def test_a_packages_call_that_is_struck_raises_and_says_nothing_against_the_package(
    compiled: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, strike: object
) -> None:
    package = Package()
    chosen(monkeypatch, outcome="hot", reason="package", package=package, tensors=[])
    monkeypatch.setattr(choosing.Chooser, "failed", lambda *_: pytest.fail("counted as a failure"))
    model = compiled()
    for _ in range(4):
        with pytest.raises((SoftTimeLimitExceeded, TimeoutError), match="time is up"):
            model(X)
    package.strikes = False
    assert model(X) == "package"


WHERE = {
    "reading the policy": (policy, "read"),
    "reading the revision": (revision, "load"),
    "torch.compile's arguments": (serve, "refused_arguments"),
    "choosing": (choosing.Chooser, "choose"),
    "whether torch can compile": (fallback.room, "find"),
    "what caches are for": (serve.Server, "_fallback_of"),
    "reporting": (report.Reporter, "answered"),
}


@pytest.mark.parametrize(("owner", "name"), WHERE.values(), ids=WHERE.keys())
def test_it_is_raised_wherever_a_call_is_struck_and_the_next_is_answered(
    compiled: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, strike: Callable[..., Any], owner: Any, name: str
) -> None:
    if name == "_fallback_of":
        chosen(monkeypatch, outcome="warm", reason="compiler caches")
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, strike)
        with pytest.raises((SoftTimeLimitExceeded, TimeoutError), match="time is up"):
            compiled()(X)
    assert compiled()(X) == "torch"


def test_a_region_that_is_struck_is_not_broken(strike: Callable[..., Any]) -> None:
    class Block(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> str:
            return pytest.fail("it ran as it is")

    code = SimpleNamespace(match=lambda *_: [X], run=strike)
    package: Any = SimpleNamespace(state=SimpleNamespace(requires_grad=False), levers=Levers(), missed={})
    region = _Region(code, Block(), "part", package)  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises((SoftTimeLimitExceeded, TimeoutError), match="time is up"):
            region((X,), {})
    assert (package.missed, region.check((X,), {})) == ({}, [X])


class Said:
    """As a Reporter."""

    def __getattr__(self, name: str) -> Any:
        return lambda *words: pytest.fail(f"{name}: {words}")


def checking(mode: str) -> Check:
    state: Any = SimpleNamespace(tensors={})
    return Check(Verifier(mode, Said()), Candidate(), Package(), Net(), state)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["kept", "Call", "versions", "answer"])
def test_the_place_on_the_side_is_free_after_a_call_that_was_struck(
    monkeypatch: pytest.MonkeyPatch, strike: Callable[..., Any], part: str
) -> None:
    monkeypatch.setattr("atexit.register", lambda function: None)
    monkeypatch.setattr("os.register_at_fork", lambda **_: None)
    check = checking("After")
    with monkeypatch.context() as patched, pytest.raises((SoftTimeLimitExceeded, TimeoutError)):  # noqa: PT012
        if part != "answer":
            patched.setattr(f"preheat_runtime.verify.{part}", strike)
        call = check.begin([X], (X,), {})
        patched.setattr("preheat_runtime.verify.kept", strike)
        assert call is not None
        call.compared(X)
    assert not sys.exc_info()[0]
    call = None
    gc.collect()  # pytest keeps the traceback in cycles of its own
    assert isinstance(check.begin([X], (X,), {}), Call)


def test_a_check_before_the_answer_is_struck_and_is_due_again(
    monkeypatch: pytest.MonkeyPatch, strike: Callable[..., Any]
) -> None:
    check = checking("Before")
    monkeypatch.setattr("preheat_runtime.examine.settle", strike)
    for _ in range(40):
        call = check.begin([X], (X,), {})
        assert call is not None
        with pytest.raises((SoftTimeLimitExceeded, TimeoutError)):
            call.compared(X)
    assert check.due


def test_a_module_that_is_struck_while_it_runs_for_a_check_is_not_taken_for_one_that_fails(
    strike: Callable[..., Any],
) -> None:
    class Struck(torch.nn.Module):
        def forward(self) -> None:
            strike()

        def __deepcopy__(self, memo: object) -> None:
            strike()

    for do in (lambda: trial.run(Struck(), (), {}, lambda: False), lambda: trial.twin(Struck(), [])):
        with pytest.raises((SoftTimeLimitExceeded, TimeoutError)):
            do()


def test_the_answer_of_code_that_was_struck_does_not_stay(strike: Callable[..., Any]) -> None:
    answer = torch.zeros(2)

    def run(_container: object, _given: object, _inputs: int, results: Any, *_: object) -> None:
        (results[0],) = native._handles([answer])
        strike()

    library = native.Library.__new__(native.Library)
    library._container, library._code, library._run, library._seconds = None, None, run, 0.0  # type: ignore[assignment]
    library._lanes = Lanes(1)
    library.inputs, library.outputs = 0, 1
    library._input_array, library._output_array = ctypes.c_void_p * 0, ctypes.c_void_p * 1
    held = answer._use_count()  # type: ignore[attr-defined]
    with pytest.raises((SoftTimeLimitExceeded, TimeoutError)):
        library.run([])
    assert answer._use_count() == held  # type: ignore[attr-defined]
