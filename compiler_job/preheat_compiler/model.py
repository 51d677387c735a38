"""Loads the user's model: imports the factory, calls it, finds the module.

Why it exists: this is where a compile Job most often fails, for reasons that only the user can mend. Each of them gets
its own reason and a message with the user's file and line.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any

from preheat_compiler.faults import failed
from preheat_compiler.verdict import TargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

_WHERE = "it must be importable from the container's working directory, PYTHONPATH or site-packages"


def load_factory(factory: str, arguments: Iterable[tuple[str, Any]] = ()) -> Any:
    """What `package.module:callable` returns; raises TargetError(FactoryFailed) with the user's file and line."""
    make = find_callable(factory, "torch.factory", "FactoryFailed")
    given = dict(arguments)
    try:
        return make(**given)
    except (Exception, SystemExit) as error:
        with_ = f"the torch.arguments {', '.join(given)}" if given else "no arguments"
        raise failed(
            "FactoryFailed", f"calling {factory}() with {with_}", error,
            remedy="It must return the model when called so, as in a serving pod, without network.",
        ) from error  # fmt: skip


def find_callable(name: str, field: str, reason: str) -> Callable[..., Any]:
    """The object that `package.module:callable` names; `field` is where the user wrote it.

    Raises TargetError(reason) with the user's file and line.
    """
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise failed(
            reason, f"importing {module_name!r} of {field}", error,
            remedy=f"Check {field} ({_WHERE}) and that importing it needs no network.",
        ) from error  # fmt: skip
    for part in path.split("."):
        if not hasattr(found, part):
            raise TargetError(
                reason, f"{field}: {module_name!r} has no {part!r}{_near(part, dir(found))}. Check {field}."
            )
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(reason, f"{field}: {name!r} is not callable. Name a function.")
    result: Callable[..., Any] = found
    return result


def find_module(root: Any, path: str) -> torch.nn.Module:
    """The module at the dotted `path` below `root`, in evaluation mode.

    Raises TargetError(ModuleNotFound) with the names that are near what was asked for.
    """
    import torch

    found = root
    walked: list[str] = []
    for part in path.split(".") if path else ():
        following = _step(found, part)
        if following is None:
            place = ".".join(walked) or "what the factory returns"
            names = _parts(found)
            raise TargetError(
                "ModuleNotFound",
                f"torch.modules[].path {path!r}: {place} ({type(found).__name__}) has no {part!r}{_near(part, names)}."
                f" It has: {', '.join(names[:20]) or 'no parts'}.",
            )
        walked.append(part)
        found = following
    if not isinstance(found, torch.nn.Module):
        raise TargetError(
            "ModuleNotFound",
            f"torch.modules[].path {path!r} is a {type(found).__name__}, not a torch.nn.Module."
            f" Modules there: {', '.join(_parts(found)[:20]) or 'none'}.",
        )
    return found.eval()


def device_of(module: torch.nn.Module) -> str:
    """The device of the module's first parameter or buffer, `cpu` without any."""
    for tensor in [*module.parameters(), *module.buffers()]:
        return str(tensor.device)
    return "cpu"


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return value.get(part)
    if isinstance(value, (list, tuple)):
        return value[int(part)] if part.isdecimal() and int(part) < len(value) else None
    return getattr(value, part, None)


def _parts(value: Any) -> list[str]:
    """Names below `value` that lead to modules."""
    import torch

    if isinstance(value, torch.nn.Module):
        return [name for name, _ in value.named_children()]
    if isinstance(value, dict):
        members = {str(name): item for name, item in value.items()}
    elif isinstance(value, (list, tuple)):
        members = {str(index): item for index, item in enumerate(value)}
    else:
        members = dict(vars(value)) if hasattr(value, "__dict__") else {}
    return [name for name, item in members.items() if isinstance(item, torch.nn.Module)]


def _near(name: str, names: list[str]) -> str:
    close = difflib.get_close_matches(name, names, n=3)
    return f" (did you mean {' or '.join(close)}?)" if close else ""
