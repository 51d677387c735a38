"""What torch does without a package: compile, or run eagerly where it cannot.

Why it exists: an image that only ever serves from packages may have no C++ compiler, and a strict pod no place where torch's
compiler can work. There `torch.compile` raises at the first call, so a package that does not fit would turn a slow start
into a crash.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from typing import TYPE_CHECKING, Any, Final

from . import room
from .locks import ForkLock
from .outside import let_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

#: What every reason for answering eagerly here ends with.
EAGERLY: Final = ", so the model runs eagerly"
NO_COMPILER: Final = "there is no C++ compiler in the image"
NO_C_COMPILER: Final = "there is no C compiler in the image"

_NO_COMPILER_ERRORS = frozenset({"InvalidCxxCompiler", "InvalidVecISA"})
#: What Triton says of it, here or in a process that compiles for this one; it builds what launches its kernels, in C.
_SAID_BY_TRITON = "Failed to find C compiler"
#: Of torch's errors, those that say that it was compiling; what the user's code raises is the user's.
_COMPILING = frozenset({"BackendCompilerFailed"})
#: A disk that is full or cannot be written to: what files raise, and what a compiler prints.
_OF_FILES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
_SAID = re.compile("|".join([*(re.escape(os.strerror(number)) for number in _OF_FILES), "failed to map segment.*"]))


def compiler_missing() -> bool:
    """Whether Inductor would find no C++ compiler."""
    return shutil.which(os.environ.get("CXX", "g++")) is None


def is_on_gpu(module: torch.nn.Module) -> bool:
    """Whether some of its parameters and buffers are."""
    return any(tensor.is_cuda for of_kind in (module.parameters(), module.buffers()) for tensor in of_kind)


class Fallback:
    """The real `torch.compile`, made at the first call that needs it; eager where torch cannot compile."""

    def __init__(
        self,
        make: Callable[[], Callable[..., Any]],
        eager: Callable[..., Any],
        failed: Callable[[str, Exception], None],
        on_gpu: Callable[[], bool],
    ) -> None:
        """`failed` is told what fails of ours; torch is then asked as if nothing were known.

        `on_gpu` says whether torch compiles for a GPU: its code there is Triton's, which takes a C compiler. That some of it is for
        the CPU after all, torch finds out.
        """
        self._make = make
        self.eager = eager
        self._failed = failed
        self._on_gpu = on_gpu
        self._lock = ForkLock()
        self._compiled: Callable[..., Any] | None = None
        self._looked = False
        self._held = False
        self._unable: str | None = None

    @property
    def unable(self) -> str | None:
        """Why torch cannot compile in this pod, in words, so that calls go to eager; None as long as it can."""
        if not self._looked:
            try:
                on_gpu = self._on_gpu()
                missing = not on_gpu and compiler_missing()
                self._unable = NO_COMPILER if missing else room.find(os.environ, triton=on_gpu)
            except Exception as error:
                let_through(error)
                self._failed("whether torch can compile here was not found out", error)
            self._looked = True
        return self._unable

    @property
    def compiled(self) -> Callable[..., Any]:
        """The object that the real torch.compile returned."""
        with self._lock:
            if self._compiled is None:
                self._compiled = self._make()
            return self._compiled

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Answer in torch's own way; errors of the user's code are the user's."""
        if self.unable is not None:
            return self.eager(*args, **kwargs)
        if not self._held:
            self._hold()
        try:
            return self.compiled(*args, **kwargs)
        except Exception as error:
            let_through(error)
            why = self._why_not_here(error)
            if why is None:
                raise
            self._unable = why
        return self.eager(*args, **kwargs)

    def _hold(self) -> None:
        """A package may have refused this very call for what would end the process in torch's code, as a bad index."""
        self._held = True
        try:
            # Not with a package's answer, which imports nothing that it does not need.
            from . import parallel

            parallel.hold()
        except Exception as error:
            let_through(error)
            self._failed("torch's kernels are compiled as torch has them", error)

    def _why_not_here(self, raised: Exception) -> str | None:
        try:
            return _why_not_here(raised)
        except Exception as error:  # what was raised may be of the user's making, down to its words
            let_through(error)
            self._failed("what torch raised was not understood", error)
            return None


def _why_not_here(error: BaseException) -> str | None:
    """What of this pod keeps torch from compiling, in words; None when the error is of another kind."""
    chain = list(_chain(error))
    if any(type(each).__name__ in _NO_COMPILER_ERRORS for each in chain):
        return NO_COMPILER
    if any(
        type(each).__name__ in ("RuntimeError", "SubprocException") and _SAID_BY_TRITON in str(each) for each in chain
    ):
        return NO_C_COMPILER
    if not any(kind.__name__ in _COMPILING for each in chain for kind in type(each).__mro__):
        return None
    for each in chain:
        if isinstance(each, OSError) and each.errno in _OF_FILES:
            return f"{room.NO_ROOM}: {each.strerror}: {each.filename}"
        # Of a compiler, or of the loader.
        if isinstance(each, (ImportError, OSError)) or type(each).__name__ == "CppCompileError":
            found = _SAID.search(str(each))
            if found is not None:
                return f"{room.NO_ROOM}: {found.group()}"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it came from; `raise error from error` makes it come from itself."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        inner = getattr(error, "inner_exception", None)
        if isinstance(inner, BaseException):
            yield inner
        error = error.__context__ if error.__cause__ is None else error.__cause__
