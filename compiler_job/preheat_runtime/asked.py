"""Of which module a call of `torch.compile` is about: given as itself, or as one of its own methods.

Why it exists: people compile modules, `model.forward`, functions and what was compiled before. Only a module's own call has
an artifact; a function has none, whatever it closes over, and a method that somebody put in a module's place is another
computation.
"""

from __future__ import annotations

import os
from typing import Any

import torch

_SWITCHES = ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE")
_Module = torch.nn.Module


def module_of(model: Any) -> torch.nn.Module | None:
    """The module that computes what `model` does; None for a function or a method that is not the module's own call."""
    if isinstance(model, _Module):
        return None if isinstance(model, torch.jit.ScriptModule) else model
    module, function = getattr(model, "__self__", None), getattr(model, "__func__", None)
    if not isinstance(module, _Module) or isinstance(module, torch.jit.ScriptModule):
        return None
    kind = type(module)
    if "__call__" in kind.__dict__ or kind.__call__ is not _Module.__call__:
        return None  # a package is of the whole call, and that is more than these methods
    # module.compile() compiles _call_impl, and keeps the result.
    if function in (_Module._call_impl, _Module._wrapped_call_impl):
        return module
    return module if function is kind.forward and "forward" not in module.__dict__ else None


def off_reason() -> str | None:
    """The variable with which the user switched compiling off for the whole process, in words."""
    names = [name for name in _SWITCHES if os.environ.get(name) == "1"]
    return f"{names[0]}=1 is set" if names else None
