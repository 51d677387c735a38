"""Holds a target's module for as long as it is needed, and lets go of it before other processes load it as well.

Why it exists: a GPU's memory that two processes ask for at once is not there twice, and a model may need more than half of
it. A module is freed only when no frame has a name for it any more, so the functions that need it one after the other pass
on this instead, and the one that is done with it lets go for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_compiler.devices import give_back

if TYPE_CHECKING:
    import torch


class Loaded:
    """A module that can be let go of. Nobody keeps `module` under a name of its own beyond a call that needs it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module: torch.nn.Module | None = module

    @property
    def module(self) -> torch.nn.Module:
        """The module; ValueError when it was let go of."""
        if self._module is None:
            raise ValueError("the module was let go of")
        return self._module

    def let_go(self) -> None:
        """Free the module and the memory of its devices; any number of times."""
        self._module = None
        give_back()
