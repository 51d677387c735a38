"""Counts the calls that no bucket is for, by the shapes and dtypes of their tensors.

Why it exists: the first call that misses is said once in the log; which bucket is worth adding is told by how often
each shape comes. Never more than shapes and dtypes: not names, not values. Bounded in what it holds, cheap to add to.

A serving process is mostly killed in the end, so the counts cannot wait for that: they are worth telling each time that a
shape's has doubled. What was told last is then more than half of each shape's calls, in few lines however many came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from .locks import ForkLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Distinct shapes that are told apart; later ones are counted together.
MAX_SHAPES: Final = 32
OTHERS: Final = "other"
#: Times that counts are worth telling while the process runs.
MAX_TOLD: Final = 128
_MAX_TENSORS: Final = 8
_MAX_DEPTH: Final = 4
_MAX_ITEMS: Final = 64


class Uncovered:
    """Counts by shape. Thread-safe."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._total: dict[str, int] = {}
        self._untaken: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._times_told = 0
        #: Whose calls each shape's are: of several modules the first.
        self.modules: dict[str, str] = {}

    def add(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], module: str | None = None) -> bool:
        """Count a call of a module; whether the counts are worth telling again, which whoever asked then does."""
        shape = shape_of(args, kwargs)
        with self._lock:
            if shape not in self._total and len(self._total) >= MAX_SHAPES:
                shape = OTHERS
            elif module is not None:
                self.modules.setdefault(shape, module)
            self._total[shape] = self._total.get(shape, 0) + 1
            self._untaken[shape] = self._untaken.get(shape, 0) + 1
            # A single call is worth no bucket, and its words are in the log.
            if self._total[shape] < 2 * self._told.get(shape, 1) or self._times_told >= MAX_TOLD:
                return False
            self._told = dict(self._total)
            self._times_told += 1
            return True

    def take(self) -> dict[str, int]:
        """The counts since the last time, which are then nothing."""
        with self._lock:
            taken, self._untaken = self._untaken, {}
        return taken

    def total(self) -> dict[str, int]:
        """The counts since the process began, most frequent first."""
        with self._lock:
            return dict(sorted(self._total.items(), key=lambda item: -item[1]))


def shape_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The tensors of a call as `float32[8,3,224,224] int64[8]`, in order; `none` where there are no tensors."""
    found: list[str] = []
    for tensor in _tensors((*args, *kwargs.values()), 0):
        if len(found) == _MAX_TENSORS:
            found.append("more")
            break
        dtype = str(tensor.dtype).removeprefix("torch.")
        found.append(f"{dtype}[{','.join(str(int(size)) for size in tensor.shape)}]")
    return " ".join(found) or "none"


def _tensors(values: Iterable[Any], depth: int) -> Iterator[torch.Tensor]:
    for number, value in enumerate(values):
        if number == _MAX_ITEMS:
            return
        if isinstance(value, torch.Tensor):
            yield value
        elif depth < _MAX_DEPTH and type(value) in (list, tuple, dict):
            yield from _tensors(value.values() if type(value) is dict else value, depth + 1)
