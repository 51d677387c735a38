"""Says what the lab is doing, how long that usually takes, and that it is still alive.

Why it exists: the first start builds Kubernetes for ten minutes; a person must see that this is expected, and a log
must show which step was running when a run was cut off. Goes to standard error, so that ``lab env`` can be evaluated.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEARTBEAT_SECONDS = 30.0


def say(message: str) -> None:
    """One line for the person who waits."""
    print(message, file=sys.stderr, flush=True)


@contextmanager
def step(what: str, *, usually: str) -> Iterator[None]:
    """Announces ``what``, repeats every half minute that it runs, and says at the end how long it took."""
    started = time.monotonic()
    finished = threading.Event()

    def beat() -> None:
        while not finished.wait(_HEARTBEAT_SECONDS):
            say(f"   ... still {what} ({time.monotonic() - started:.0f} s; usually {usually})")

    say(f"-> {what} (usually {usually})")
    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    try:
        yield
    except BaseException:
        say(f"   failed after {time.monotonic() - started:.1f} s: {what}")
        raise
    finally:
        finished.set()
        heart.join()
    say(f"   done in {time.monotonic() - started:.1f} s")
