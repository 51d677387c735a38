"""Changes Inductor just before torch's compiler is first given a graph.

Why it exists: importing Inductor takes seconds, which a process whose answers all come from packages never spends. So what is
changed there is changed when torch itself is about to import it, once, by whichever thread comes first.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from typing import TYPE_CHECKING, Any

import torch

from .locks import ForkLock

if TYPE_CHECKING:
    from collections.abc import Callable

_ONE_AT_A_TIME = ForkLock()


def before_first_graph(change: Callable[[], object]) -> bool:
    """Have `change` called when torch.compile next gives Inductor a graph, before that; whether torch has such a place.

    What it raises is lost: torch fails then in its own words, or goes on as it is. Later graphs pay the look at a list.
    """
    backend: Any = getattr(torch, "_TorchCompileInductorWrapper", None)
    real = getattr(backend, "__dict__", {}).get("__call__")
    if real is None or not inspect.isfunction(real):
        return False
    begun: list[bool] = []

    @functools.wraps(real)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not begun:
            with contextlib.suppress(Exception), _ONE_AT_A_TIME:
                if not begun:
                    try:
                        change()
                    finally:
                        begun.append(True)
        return real(self, *args, **kwargs)

    backend.__call__ = call
    return True
