"""No search for garbage while a first call is prepared.

Why it exists: Python looks for cycles after so many new objects, and now and then through all there are. A process that has
imported torch and made a model has a million, which takes 0.15 s, and what we import and describe then is enough to set it off:
resnet18's first answer had it each time. Nothing of ours is garbage; what the user's code leaves is found a moment later.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def not_collected() -> Iterator[None]:
    """Inside, no collection begins by itself; where somebody has switched them off, they stay off."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
