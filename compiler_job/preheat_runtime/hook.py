"""The entry point that torch calls at the end of `import torch` (group `torch.backends`).

Why it exists: it is the one official place where a library can act in a process whose code knows nothing of it. An
exception here would end the user's `import torch`, and every process of the container pays for what happens here; so it
only puts a thin function in front of `torch.compile`, and everything else waits until somebody calls that.

It also says, once in the life of a container, that it is there. What is never loaded (`python -I`, a start script that sets
PYTHONPATH anew) cannot say so itself; a log without that line is how it is seen.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# `variables` has these names too, as a unit test holds; to import it would be one file more to read in every process.
ENV_DIR, ENV_WORK_DIR, ENV_LOG, ENV_DISABLE = "PREHEAT_DIR", "PREHEAT_WORK_DIR", "PREHEAT_LOG", "PREHEAT_DISABLE"

#: What is said where torch.compile has to do alone.
WITHOUT = "torch.compile goes on without Preheat"


def autoload() -> None:
    """Put Preheat in front of `torch.compile`. Does nothing without PREHEAT_DIR or with PREHEAT_DISABLE; never raises."""
    try:
        if os.environ.get(ENV_DIR) and os.environ.get(ENV_DISABLE, "0") in ("", "0"):
            _install(sys.modules["torch"])
            _say_that_it_is_there(os.environ)
    except Exception as error:
        _let_through(error)
        complain("the hook failed", error)


def _install(torch: Any) -> None:
    real = torch.compile
    if getattr(real, "_preheat", False):
        return

    # The wrapper keeps the name `torch.compile`, so that what refers to it by name, pickles included, finds it.
    @functools.wraps(real)
    def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:  # noqa: A001
        if model is None or args:
            return real(model, *args, **kwargs)
        try:
            serve = _serve().serve
        except Exception as error:
            _let_through(error)
            complain(WITHOUT, error)
            serve = None
        return real(model, **kwargs) if serve is None else serve(real, model, kwargs)

    compile._preheat = True  # type: ignore[attr-defined]
    torch.compile = compile


def _serve() -> Any:
    """The rest of the runtime, read when it is first needed."""
    from .garbage import not_collected

    with not_collected():
        from . import serve
    return serve


def _say_that_it_is_there(environ: Mapping[str, str]) -> None:
    work = environ.get(ENV_WORK_DIR)
    if not work or environ.get(ENV_LOG, "json") == "off" or sys.stderr is None:
        return
    # The volume outlives the container, whose restart begins a new log: with the process that the container began with.
    with contextlib.suppress(OSError, ValueError, IndexError):  # also where another process has said it
        with open("/proc/1/stat", "rb") as file:  # noqa: PTH123 (pathlib may not be imported yet)
            began = file.read().rpartition(b") ")[2].split()[19].decode()
        os.close(os.open(f"{work}/.loaded-{began}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        sys.stderr.write(f'{{"logger": "preheat", "event": "preheat-loaded", "pid": {os.getpid()}}}\n')


def complain(what: str, error: Exception, reporter: Any = None) -> None:
    """Report a fault of Preheat's own as everything is reported; `reporter` is the process's unless given.

    Raises nothing of its own: see `outside`. Says nothing of what fails since the interpreter shuts down: no module can be
    imported then, and torch answers.
    """
    if sys.is_finalizing():
        return
    try:
        if reporter is None:
            from .report import of_this_process

            reporter = of_this_process()
        reporter.failed(what, error)
    except Exception as another:
        _let_through(another)
        try:
            _complain_plainly(what, error)
        except Exception as another:  # a closed stream: nobody is there to be told
            _let_through(another)


def _complain_plainly(what: str, error: Exception) -> None:
    """The reporter may be what failed; a plain line must do, once for each kind in a process."""
    kind = os.getpid(), what, type(error).__name__
    if kind not in _complaints and os.environ.get(ENV_LOG, "json") != "off" and sys.stderr is not None:
        _complaints.add(kind)
        sys.stderr.write(f"preheat: {what}: {in_words(error)}\n")


_complaints: set[tuple[int, str, str]] = set()


def in_words(error: BaseException) -> str:
    """`ValueError: no such mode`, without secrets; also of an exception whose `__str__` raises in turn. Never raises."""
    name = type(error).__name__
    try:
        # Not with an answer, which imports nothing that it does not need.
        from .redaction import redact

        return redact(f"{name}: {words_of(error)}")
    except Exception as another:
        _let_through(another)
        return name


def words_of(error: BaseException) -> str:
    """As `str`, and never raises."""
    try:
        return str(error)
    except Exception as another:
        return f"(its __str__ raises {type(another).__name__})"


def _let_through(error: BaseException) -> None:
    """As `outside.let_through`, which `import torch` alone does not read."""
    try:
        from .outside import let_through
    except Exception:  # the files of ours are gone, say, and that is what failed
        return
    let_through(error)
