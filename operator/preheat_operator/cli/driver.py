"""Runs the compile driver as a compile Job's container does: a process of the user's Python, in the user's folder.

Its progress goes to standard error. When we are told to stop, or our terminal goes away, the driver is told to stop and waited
for: it ends the compilers it started, which nobody else knows of. When we are killed, Linux tells it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

_TERMINATION: Final = "termination"
_OF_THE_PYTHON: Final = frozenset({"TorchMissing", "TorchUnsupported"})
"""Reasons that another Python may be the remedy for; memory and disk may be wanting too."""
_TOLD: Final = (signal.SIGTERM, signal.SIGHUP)
_END_SECONDS: Final = 20
"""What the driver may take to end its own processes."""


def run(folder: Path, *, python: str | None) -> None:
    """Compile what `request.json` in `folder` asks for; the result lies in its `out/`.

    `python` is a path or a word of PATH; without it the first suitable python3 of PATH, as in a Job. Raises
    CommandError with the driver's own words when it ends without a result.
    """
    command = _command(folder, python)
    (folder / _TERMINATION).unlink(missing_ok=True)
    with _Stop() as stop:
        # Standard output is for the result alone.
        told = subprocess.DEVNULL if sys.stderr is None else sys.stderr
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=told, stderr=told)
        except OSError as error:
            raise CommandError(f"--python: {command[0]} cannot be started: {error.strerror or error}") from None
        stop.process = process
        if stop.told is not None:  # while it was being started
            process.terminate()
        try:
            code = process.wait()
        except KeyboardInterrupt:
            # The terminal told the driver as well.
            _end(process)
            raise CommandError("interrupted", code=exits.SIGNALLED + signal.SIGINT) from None
    if stop.told is not None:
        raise CommandError("told to stop", code=exits.SIGNALLED + stop.told)
    if code != 0:
        raise _failure(folder, code)


class _Stop:
    """Passes a SIGTERM, or the end of the terminal, on to `process` as a SIGTERM, and remembers which."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.told: int | None = None

    def __enter__(self) -> _Stop:
        # Who is started by nohup does not care for the terminal.
        numbers = [each for each in _TOLD if signal.getsignal(each) != signal.SIG_IGN]
        self._before = {each: signal.signal(each, self._pass_on) for each in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        del frame
        self.told = number
        if self.process is not None:
            self.process.terminate()


def _command(folder: Path, python: str | None) -> list[str]:
    toolkit = folder / "toolkit"
    arguments = ["--request", str(folder / "request.json"), "--out", str(folder / "out")]
    arguments += ["--termination-log", str(folder / _TERMINATION), "--attended", "--parent", str(os.getpid())]
    if python is None:
        return ["/bin/sh", str(toolkit / "compile.sh"), *arguments]
    found = shutil.which(python)
    if found is None:
        raise CommandError(f"--python: there is no program {python}")
    return [found, str(toolkit / "compile.py"), *arguments]


def _end(process: subprocess.Popen[bytes]) -> None:
    for insist in (process.terminate, process.kill):
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            process.wait(_END_SECONDS)
            return
        insist()
    process.wait()


def _failure(folder: Path, code: int) -> CommandError:
    try:
        said = json.loads((folder / _TERMINATION).read_bytes())
    except (OSError, ValueError):
        said = {}
    # Of a shell, and of the driver itself where torch's import was killed: 128 and the signal's number.
    signalled = -code if code < 0 else code - exits.SIGNALLED
    if "reason" in said:
        words = f"{said['reason']}: {said['message']}"
    elif signalled > 0:
        running = f" while {said['running']} was compiled" if said.get("running") else ""
        often = "; most often for memory" if signalled == signal.SIGKILL else ""
        words = f"the compile driver was ended by signal {signalled}{running}{often}"
    else:
        words = f"the compile driver ended with {code}"
    if signalled > 0:
        return CommandError(words, code=exits.SIGNALLED + signalled)
    if code == exits.TORCH:
        other = " (--python names another Python)" if said.get("reason") in _OF_THE_PYTHON else ""
        return CommandError(f"{words}{other}", code=exits.TORCH)
    return CommandError(words, code=exits.INTERNAL)
