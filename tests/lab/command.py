"""Runs programs: always with a deadline, and with an error that shows what the program said.

Why it exists: every part of the lab is another program, and a lab that hangs, or fails with nothing but an exit code,
cannot be repaired by the person in front of it.
"""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

_TAIL = 4000  # characters of a failed program's output that an error repeats


class LabError(Exception):
    """The lab could not do what it was asked to; the message says what to do."""


class EndedError(LabError):
    """A part of the lab has ended by itself: waiting for it is of no use."""


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> str:
    """Runs a program to its end and returns its standard output.

    ``timeout`` is in seconds. Raises :class:`LabError` when it does not exist, does not end in time, or (with
    ``check``) exits other than 0; standard error is part of the message then.
    """
    shown = " ".join(argv[:6]) + (" ..." if len(argv) > 6 else "")
    try:
        done = subprocess.run(
            list(argv), input=stdin, env=env, cwd=cwd, capture_output=True, text=True, timeout=timeout, check=False,
            errors="replace",
        )  # fmt: skip
    except FileNotFoundError as error:
        raise LabError(f"{argv[0]} is not installed; run `make cluster-up`, which installs what is missing") from error
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{shown}` did not end within {timeout:.0f} s") from error
    if check and done.returncode != 0:
        said = (done.stderr.strip() + "\n" + done.stdout.strip())[-_TAIL:]
        raise LabError(f"`{shown}` exited with {done.returncode}:\n{said}")
    return done.stdout


def wait_for(what: str, probe: Callable[[], T | None], *, seconds: float, every: float = 0.2, hint: str = "") -> T:
    """Calls ``probe`` until it returns something true, and returns that.

    Raises :class:`LabError` after ``seconds``; a :class:`LabError` of the probe counts as "not yet" and its words end
    up in the message; an :class:`EndedError` is final.
    """
    deadline = time.monotonic() + seconds
    last = ""
    while True:
        try:
            found = probe()
        except EndedError:
            raise
        except LabError as error:
            found, last = None, str(error)
        if found:
            return found
        if time.monotonic() >= deadline:
            raise LabError(f"{what}: not within {seconds:.0f} s. {hint} {last}".strip())
        time.sleep(every)
