"""Notes which attributes of a module are read while it is traced.

Why it exists: the blocks of a transformer are one block many times, but for a number that tells each its place
(`layer_idx`), which most never read. What tracing did not read cannot have got into the code, so blocks that differ in
nothing else share it.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_TORCH = str(Path(torch.__file__).parent)
#: torch's own machinery looks through every attribute of every module, whatever they are; its layers are as the user's code.
_LAYERS = (str(Path(_TORCH, "nn", "modules")), str(Path(_TORCH, "ao", "nn")))
_MACHINERY = str(Path(_TORCH, "nn", "modules", "module.py"))
_OURS = str(Path(__file__).parent.parent)
#: Who reads one of these has all attributes at once.
_ALL = frozenset({"__dict__", "__getstate__", "__reduce__", "__reduce_ex__", "__dir__"})


class Reads:
    """What was read so far of the parts of one module."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._parts = dict(module.named_modules(remove_duplicate=False))
        self._names: dict[int, set[str]] = {id(part): set() for part in self._parts.values()}
        # A class that looks attributes up in its own way may get at them past us.
        plain = torch.nn.Module.__getattribute__
        self._wholly = {id(part) for part in self._parts.values() if type(part).__getattribute__ is not plain}

    def note(self, part: object, name: str) -> None:
        """`name` of `part` is read by the caller's caller."""
        names = self._names.get(id(part))
        if names is None:
            return
        if name not in _ALL:
            names.add(name)
        elif _is_code_of_the_model(sys._getframe(2).f_code.co_filename):
            self._wholly.add(id(part))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Inside, what is read is noted, also by the classes' own code. The code of modules is not as usual meanwhile."""
        before = torch.nn.Module.__getattribute__

        def noting(part: Any, name: str) -> Any:
            self.note(part, name)
            return before(part, name)

        torch.nn.Module.__getattribute__ = noting
        try:
            yield
        finally:
            # It has none of its own; `object`'s is found again.
            del torch.nn.Module.__getattribute__

    def unread(self) -> frozenset[tuple[str, str]]:
        """Pairs of a part's path and the name of an attribute that nobody read."""
        return frozenset(
            (path, name)
            for path, part in self._parts.items()
            if id(part) not in self._wholly
            for name in part.__dict__
            if name not in self._names[id(part)]
        )


def _is_code_of_the_model(file: str) -> bool:
    if file.startswith(_TORCH):
        return file.startswith(_LAYERS) and file != _MACHINERY
    return not file.startswith(_OURS)
