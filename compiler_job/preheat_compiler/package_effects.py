"""Notices what a call does beside answering, which a package would not do.

Why it exists: torch.export runs the module's Python once and keeps only what happens to tensors. A `print` in `forward` is
then gone without a word, where torch.compile goes on printing.
"""

from __future__ import annotations

import builtins
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCH = str(Path(torch.__file__).parent)


@contextmanager
def prints() -> Iterator[list[str]]:
    """Collect `file:line` of every `print` outside torch that runs inside; they print as ever."""
    seen: list[str] = []
    real = builtins.print

    def noting(*args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1)
        if not caller.f_code.co_filename.startswith(_TORCH):
            seen.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
        real(*args, **kwargs)

    builtins.print = noting
    try:
        yield seen
    finally:
        builtins.print = real
