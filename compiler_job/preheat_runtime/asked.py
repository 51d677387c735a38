"""What a call of `torch.compile` asks for: of which module it is, and whether an artifact may answer its other arguments.

Why it exists: people compile modules, `model.forward`, functions and what was compiled before. Only a module's own call has
an artifact; a function has none, whatever it closes over, and a method that somebody put in a module's place is another
computation. And who asks for another backend, a mode or an option gets that, or torch itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch

from .levers import Levers
from .package import TargetUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .revision import Candidate

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


def refused_arguments(arguments: Mapping[str, Any]) -> str | None:
    """Which argument of torch.compile asks for something no artifact was made for, in words.

    `dynamic`, `fullgraph` and the limits of recompiling change how torch compiles, not what the model computes: a
    package is one whole graph, and is not compiled again.
    `mode` and `options` are a matter between the call and each artifact: see `Levers`.
    """
    allowed = {
        "backend": (None, "inductor"),
        "disable": (False,),
        "name": (None,),
        "dynamic": (None, False, True),
        "fullgraph": (False, True),
        "dynamic_shapes": (None,),
    }
    if arguments.get("mode") is not None and arguments.get("options") is not None:
        return "torch.compile was called with mode and options, which torch itself refuses"
    for name, value in arguments.items():
        if name in ("mode", "options", "recompile_limit", "isolate_recompiles"):
            continue
        if not any(value is each or (isinstance(each, str) and value == each) for each in allowed.get(name, ())):
            return f"torch.compile was called with {name}={value!r}"[:200] + ", which no artifact was made for"
    return None


def refused_levers(arguments: Mapping[str, Any], candidates: Sequence[Candidate]) -> str | None:
    """Why no artifact was made with the mode and options of this call, in words; None when one may have been."""
    if not candidates or Levers().refusal(arguments) is None:
        return None  # it asks for nothing of its own
    reasons = []
    for candidate in candidates:
        try:
            reason = candidate.target.levers.refusal(arguments)
        except TargetUnreadable as error:
            reason = str(error)
        if reason is None:
            return None
        reasons.append(reason)
    return reasons[0]
