"""What torch does without a package: compile, or run eagerly where it cannot.

Why it exists: an image that only ever serves from packages may have no C++ compiler. There `torch.compile` raises at the
first call, so a package that does not fit would turn a slow start into a crash.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

from .locks import ForkLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

NO_COMPILER = "there is no C++ compiler in the image, so the model runs eagerly"
_NO_COMPILER_ERRORS = frozenset({"InvalidCxxCompiler", "InvalidVecISA"})


def compiler_missing() -> bool:
    """Whether Inductor would find no C++ compiler."""
    return shutil.which(os.environ.get("CXX", "g++")) is None


class Fallback:
    """The real `torch.compile`, made at the first call that needs it; eager when there is no compiler."""

    def __init__(self, make: Callable[[], Callable[..., Any]], eager: Callable[..., Any]) -> None:
        self._make = make
        self.eager = eager
        self._lock = ForkLock()
        self._compiled: Callable[..., Any] | None = None
        self._no_compiler: bool | None = None

    @property
    def no_compiler(self) -> bool:
        """Whether calls go to eager for want of a compiler."""
        if self._no_compiler is None:
            self._no_compiler = compiler_missing()
        return self._no_compiler

    @property
    def compiled(self) -> Callable[..., Any]:
        """The object that the real torch.compile returned."""
        with self._lock:
            if self._compiled is None:
                self._compiled = self._make()
            return self._compiled

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Answer in torch's own way; errors of the user's code are the user's."""
        if self.no_compiler:
            return self.eager(*args, **kwargs)
        try:
            return self.compiled(*args, **kwargs)
        except Exception as error:
            if not _for_want_of_a_compiler(error):
                raise
        self._no_compiler = True
        return self.eager(*args, **kwargs)


def _for_want_of_a_compiler(error: BaseException | None) -> bool:
    while error is not None:
        inner = getattr(error, "inner_exception", None)
        if type(error).__name__ in _NO_COMPILER_ERRORS or type(inner).__name__ in _NO_COMPILER_ERRORS:
            return True
        error = error.__cause__ or error.__context__
    return False
