"""No search for garbage while a first call is prepared.

Why it exists: Python looks for cycles after so many new objects, and now and then through all there are. A process that has
imported torch and made a model has a million, which takes 0.15 s, and what we import and describe then is enough to set it off:
resnet18's first answer had it each time. Nothing of ours is garbage; what the user's code leaves is found a moment later.
"""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def not_collected() -> Iterator[None]:
    """Inside, no collection begins by itself; where somebody has switched them off, they stay off."""
    if not gc.isenabled():
        yield
        return
    thread = threading.get_ident()
    _inside.add(thread)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _inside.discard(thread)


def _enter_child() -> None:
    """Whoever switched them off is not in this process, unless it is the one that forked."""
    others = _inside - {threading.get_ident()}
    if others:
        _inside.difference_update(others)
        gc.enable()


#: The threads that have switched them off, and will switch them on.
_inside: set[int] = set()
os.register_at_fork(after_in_child=_enter_child)
