"""Tells what struck a call from outside, a time limit mostly, from a fault of ours, and lets it through.

Why it exists: whatever fails of ours, torch answers. But a signal's handler that raises (celery's soft time limit, an alarm), or
an exception that another thread has raised here, strikes wherever this thread happens to be; nearly always that is in our code,
since compiled code is one call of it. Taken for a fault of ours, the limit was lost, and three of them put a package out of use.
"""

from __future__ import annotations

import sys
from typing import Any


def let_through(error: BaseException) -> None:
    """Raise `error`, or what it was raised from, where that is no fault of what ran: it struck from outside.

    To be asked wherever faults of ours are caught.
    """
    each: BaseException | None = error
    for _ in range(_CAUSES):
        if each is None:
            return
        if _from_outside(each):
            raise each
        each = each.__cause__


#: So many causes of an error are looked at: what is raised from itself has no end of them.
_CAUSES = 8
#: With the standard library, whose code runs between a call and its answer, and raises errors of its own.
_KNOWN = ("preheat_runtime", "torch", "numpy")
#: `inspect.CO_VARARGS`, without importing that.
_VARARGS = 4


def _from_outside(error: BaseException) -> bool:
    trace = error.__traceback__
    outer, foreign = None, False
    while trace is not None:
        frame = trace.tb_frame
        if outer is not None and _handles_a_signal(frame, outer):
            return True
        foreign = foreign or not _is_known(frame.f_globals.get("__name__"))
        outer, trace = frame, trace.tb_next
    # Another thread gives a class, which is raised without a frame: then nobody raised it who could have.
    return not foreign and not _is_known(type(error).__module__)


def _handles_a_signal(frame: Any, outer: Any) -> bool:
    """Whether Python called it for a signal: with the signal's number, and the frame that was running."""
    code = frame.f_code
    own, more = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names = [*code.co_varnames[:own], *code.co_varnames[more : more + bool(code.co_flags & _VARARGS)]]
    found = frame.f_locals
    values = [found.get(name) for name in names]
    return any(value is outer or (type(value) is tuple and any(each is outer for each in value)) for value in values)


def _is_known(module: object) -> bool:
    top = module.partition(".")[0] if isinstance(module, str) else ""
    return top in _KNOWN or top in sys.stdlib_module_names
