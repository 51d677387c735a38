"""No search for garbage while a first call is prepared.

Why it exists: Python looks for cycles after so many new objects, and now and then through all there are. A process that has
imported torch and made a model has a million, which takes 0.15 s, and what we import and describe then is enough to set it off:
resnet18's first answer had it each time. Nothing of ours is garbage; what the user's code leaves is found a moment later.

It is the number of new objects that is changed, not whether collections are on: a server may switch those off in another
thread meanwhile, and off they stay.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

#: More new objects than a process can hold; nobody else sets this very number.
_NEVER: Final = 2_000_000_011


@contextmanager
def not_collected() -> Iterator[None]:
    """Inside, no collection begins by itself. What others set meanwhile, holds."""
    usual = gc.get_threshold()[0]
    if usual == _NEVER or not gc.isenabled():
        yield
        return
    thread = threading.get_ident()
    try:
        _inside[thread] = usual
        gc.set_threshold(_NEVER)
        yield
    finally:
        # A signal's handler may raise after each call.
        ours = True
        try:
            ours = gc.get_threshold()[0] == _NEVER
        finally:
            if ours:
                gc.set_threshold(usual)
        _inside.pop(thread, None)


def _enter_child() -> None:
    """Whoever set it is not in this process, unless it is the one that forked."""
    thread = threading.get_ident()
    others = [_inside.pop(each) for each in list(_inside) if each != thread]
    if others and gc.get_threshold()[0] == _NEVER:
        gc.set_threshold(others[0])


#: The threads that have set it, and will set it back, with what it was before.
_inside: dict[int, int] = {}
os.register_at_fork(after_in_child=_enter_child)
