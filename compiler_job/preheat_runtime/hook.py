"""The entry point that torch calls at the end of `import torch` (group `torch.backends`).

Why it exists: it is the one official place where a library can act in a process whose code knows nothing of it. An
exception here would end the user's `import torch`, and every process of the container pays for what happens here; so it
only puts a thin function in front of `torch.compile`, and everything else waits until somebody calls that.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from .variables import ENV_DIR, ENV_DISABLE, ENV_LOG


def autoload() -> None:
    """Put Preheat in front of `torch.compile`. Does nothing without PREHEAT_DIR or with PREHEAT_DISABLE; never raises."""
    try:
        if os.environ.get(ENV_DIR) and os.environ.get(ENV_DISABLE, "0") in ("", "0"):
            _install(sys.modules["torch"])
    except Exception as error:
        _complain("the hook failed", error)


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
            from . import serve

            served = serve.serve(real, model, kwargs)
        except Exception as error:
            _complain("torch.compile goes on without Preheat", error)
            served = None
        return real(model, **kwargs) if served is None else served

    compile._preheat = True  # type: ignore[attr-defined]
    torch.compile = compile


def _complain(what: str, error: Exception) -> None:
    # The reporter may be what failed; a plain line must do.
    if os.environ.get(ENV_LOG, "json") != "off" and sys.stderr is not None:
        sys.stderr.write(f"preheat: {what}: {type(error).__name__}: {error}\n")
