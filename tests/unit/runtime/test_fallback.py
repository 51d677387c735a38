"""Where torch cannot compile in this pod the model runs eagerly, and says why; what the user's code raises is the user's."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from cuda_tensors import needs_a_cuda_build, on_cuda
from preheat_runtime import fallback, parallel, room
from preheat_runtime.fallback import NO_C_COMPILER, NO_COMPILER, Fallback, is_on_gpu


class BackendCompilerFailed(Exception):
    """As torch's of that name: it says what its compiler raised."""

    def __init__(self, inner: Exception | None = None) -> None:
        super().__init__("backend='inductor' raised")
        self.inner_exception = inner


class InductorError(BackendCompilerFailed):
    """torch's newer name, of the same kind."""


class SubprocException(Exception):
    """What torch raises for an error in a process that compiles for this one, with its traceback as words."""


class CppCompileError(RuntimeError):
    """What torch raises with a compiler's own words."""


class InvalidCxxCompiler(RuntimeError):
    """What torch raises where there is no compiler."""


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number), "/tmp/torchinductor_me/kernel.cpp")


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that looks as if torch could compile in it."""
    monkeypatch.setattr(fallback, "compiler_missing", lambda: False)
    monkeypatch.setattr(room, "find", lambda _, **__: None)


class Torch:
    """The real torch.compile and the module; `error` is what calls of the compiled raise."""

    def __init__(self, error: Exception | None = None, *, on_gpu: bool = False) -> None:
        self.error = error
        self.on_gpu = on_gpu
        self.compiled = self.called = 0
        self.faults: list[tuple[str, str]] = []

    def make(self) -> Any:
        self.compiled += 1
        return self._call

    def _call(self, x: int) -> str:
        self.called += 1
        if self.error is not None:
            raise self.error
        return f"compiled {x}"

    def fallback(self) -> Fallback:
        return Fallback(self.make, lambda x: f"eager {x}", self._failed, lambda: self.on_gpu)

    def _failed(self, what: str, error: Exception) -> None:
        self.faults.append((what, type(error).__name__))


@pytest.mark.usefixtures("able")
def test_torch_answers_and_is_made_once() -> None:
    torch = Torch()
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["compiled 1", "compiled 2"]
    assert torch.compiled == 1
    assert answers.unable is None


@pytest.mark.parametrize("fault", [None, OSError("gone")])
@pytest.mark.usefixtures("able")
def test_what_it_compiles_ends_no_process_or_it_is_said_and_torch_is_asked_all_the_same(
    fault: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def hold() -> None:
        held.append(True)
        if fault is not None:
            raise fault

    monkeypatch.setattr(parallel, "hold", hold)
    torch = Torch()
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["compiled 1", "compiled 2"]
    assert held == [True]
    assert [kind for _, kind in torch.faults] == ([] if fault is None else ["OSError"])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM])
@pytest.mark.parametrize("kind", [BackendCompilerFailed, InductorError])
@pytest.mark.usefixtures("able")
def test_a_disk_that_takes_no_more_ends_in_eager_and_torch_is_not_asked_again(number: int, kind: type) -> None:
    torch = Torch(kind(os_error(number)))
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["eager 1", "eager 2"]
    assert torch.called == 1, "each call would compile for minutes, and fail"
    assert answers.unable == f"{room.NO_ROOM}: {os.strerror(number)}: /tmp/torchinductor_me/kernel.cpp"


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (CppCompileError("g++: fatal error: cannot write: No space left on device"), "No space left on device"),
        (CppCompileError("as: can't create x.o: Read-only file system"), "Read-only file system"),
        (
            ImportError("/tmp/k.so: failed to map segment from shared object"),
            "failed to map segment from shared object",
        ),
        (OSError("/tmp/k.so: failed to map segment from shared object"), "failed to map segment from shared object"),
    ],
)
@pytest.mark.usefixtures("able")
def test_so_does_what_a_compiler_or_the_loader_says_of_it(inner: Exception, said: str) -> None:
    answers = Torch(BackendCompilerFailed(inner)).fallback()
    assert answers((1,), {}) == "eager 1"
    assert answers.unable == f"{room.NO_ROOM}: {said}"


@pytest.mark.usefixtures("able")
def test_the_disk_is_found_wherever_in_the_chain_it_is() -> None:
    full = os_error(errno.ENOSPC)
    middle, outer = RuntimeError("while compiling"), BackendCompilerFailed()
    middle.__context__, outer.__cause__ = full, middle
    answers = Torch(outer).fallback()
    assert answers((1,), {}) == "eager 1"
    assert "No space left on device" in str(answers.unable)


@pytest.mark.usefixtures("able")
def test_a_compiler_that_torch_finds_to_be_none_is_no_compiler() -> None:
    answers = Torch(BackendCompilerFailed(InvalidCxxCompiler("no C++ compiler"))).fallback()
    assert answers((1,), {}) == "eager 1"
    assert answers.unable == NO_COMPILER


@pytest.mark.parametrize(
    "error",
    [
        ValueError("of the user's forward"),
        # The user's own file: torch was not compiling.
        os_error(errno.ENOSPC),
        # A graph that torch cannot compile anywhere: told, as torch tells it.
        BackendCompilerFailed(RuntimeError("an operator is not known")),
        BackendCompilerFailed(CppCompileError("error: expected ';' before 'return'")),
        BackendCompilerFailed(os_error(errno.ENOENT)),
        # Words alone, from neither a file, a compiler nor the loader, are the user's.
        BackendCompilerFailed(ValueError("No space left on device")),
    ],
    ids=repr,
)
@pytest.mark.usefixtures("able")
def test_everything_else_is_raised_and_torch_is_asked_again(error: Exception) -> None:
    torch = Torch(error)
    answers = torch.fallback()
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            answers((1,), {})
        assert raised.value is error
    assert torch.called == 2
    assert answers.unable is None


@pytest.mark.parametrize(
    ("missing", "found", "why"),
    [(True, None, NO_COMPILER), (False, "nowhere to write", "nowhere to write"), (True, "nowhere", NO_COMPILER)],
)
def test_what_is_known_before_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, missing: bool, found: str | None, why: str
) -> None:
    monkeypatch.setattr(fallback, "compiler_missing", lambda: missing)
    monkeypatch.setattr(room, "find", lambda _, **__: found)
    torch = Torch()
    answers = torch.fallback()
    assert answers((1,), {}) == "eager 1"
    assert answers.unable == why
    assert torch.compiled == 0


def test_on_a_gpu_no_cpp_compiler_is_looked_for_before_torch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton needs a C compiler, and code for a GPU alone no other."""
    asked: list[bool] = []
    monkeypatch.setattr(fallback, "compiler_missing", lambda: True)
    monkeypatch.setattr(room, "find", lambda _, triton: asked.append(triton))
    torch = Torch(on_gpu=True)
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["compiled 1", "compiled 2"]
    assert (answers.unable, asked) == (None, [True])
    # Where some of the code is for the CPU after all, torch finds that there is no compiler.
    answers = Torch(BackendCompilerFailed(InvalidCxxCompiler("no C++ compiler")), on_gpu=True).fallback()
    assert answers((1,), {}) == "eager 1"
    assert answers.unable == NO_COMPILER


TRITONS = "Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl."


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(TRITONS),
        BackendCompilerFailed(RuntimeError(TRITONS)),
        InductorError(SubprocException(f"An exception occurred in a subprocess:\n\nRuntimeError: {TRITONS}\n")),
    ],
    ids=["at the first kernel", "while compiling", "in another process"],
)
@pytest.mark.usefixtures("able")
def test_without_a_c_compiler_for_triton_the_model_runs_eagerly(error: Exception) -> None:
    torch = Torch(error, on_gpu=True)
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["eager 1", "eager 2"]
    assert (torch.called, answers.unable) == (1, NO_C_COMPILER)


def test_triton_says_so_in_these_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    build = pytest.importorskip("triton.runtime.build")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    find = getattr(build, "_find_compiler", None)
    if find is None:
        pytest.skip("this Triton looks for it in another place")
    find.cache_clear()
    try:
        with pytest.raises(RuntimeError) as raised:
            find("c")
    finally:
        find.cache_clear()
    assert fallback._why_not_here(raised.value) == NO_C_COMPILER


@needs_a_cuda_build
def test_a_module_is_on_a_gpu_where_a_parameter_or_buffer_is() -> None:
    import torch

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

    for net in (torch.nn.Linear(2, 2), Counting()):
        assert not is_on_gpu(net)
        assert is_on_gpu(on_cuda(net))
        assert is_on_gpu(torch.nn.Sequential(torch.nn.Linear(2, 2), net))
    assert not is_on_gpu(torch.nn.ReLU())


@pytest.mark.usefixtures("able")
def test_whether_torch_can_compile_cannot_be_found_out_so_torch_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object, **__: object) -> None:
        raise os_error(errno.EMFILE)

    monkeypatch.setattr(room, "find", broken)
    torch = Torch()
    answers = torch.fallback()
    assert [answers((x,), {}) for x in (1, 2)] == ["compiled 1", "compiled 2"]
    assert answers.unable is None
    assert torch.faults == [("whether torch can compile here was not found out", "OSError")]


class Wordless(BackendCompilerFailed):
    """Of somebody's making: it has no words, and what is inside cannot be had."""

    @property
    def inner_exception(self) -> Exception:
        raise KeyError("inner")

    @inner_exception.setter
    def inner_exception(self, _: object) -> None:
        pass

    def __str__(self) -> str:
        raise KeyError("words")


@pytest.mark.usefixtures("able")
def test_an_error_that_cannot_be_looked_into_is_raised_as_it_is() -> None:
    raised_by_torch = Wordless()
    torch = Torch(raised_by_torch)
    with pytest.raises(Wordless) as raised:
        torch.fallback()((1,), {})
    assert raised.value is raised_by_torch
    assert raised_by_torch.__context__ is None
    assert torch.called == 1
    assert torch.faults == [("what torch raised was not understood", "KeyError")]


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("able")
def test_an_error_that_comes_from_itself_is_looked_at_once() -> None:
    error = ValueError("of the user's forward")
    error.__cause__ = error  # raise error from error
    with pytest.raises(ValueError, match="of the user") as raised:
        Torch(error).fallback()((1,), {})
    assert raised.value is error


def test_the_compiler_is_looked_for_where_inductor_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert fallback.compiler_missing()
    for name in ("g++", "mine"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    assert not fallback.compiler_missing()
    monkeypatch.setenv("CXX", "mine")
    assert not fallback.compiler_missing()
    monkeypatch.setenv("CXX", "absent")
    assert fallback.compiler_missing()
