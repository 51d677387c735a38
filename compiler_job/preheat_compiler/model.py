"""Loads the user's model: imports the factory, calls it, finds the module.

Why it exists: this is where a compile Job most often fails, for reasons that only the user can mend. Each of them gets
its own reason and a message with the user's file and line.
"""

from __future__ import annotations

import difflib
import importlib
from contextlib import suppress
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
    except BaseException as error:  # also SystemExit, KeyboardInterrupt and what users derive: nobody else raises here
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
    except BaseException as error:  # raised by the user's code, whatever it is
        raise failed(
            reason, f"importing {module_name!r} of {field}", error,
            remedy=f"Check {field} ({_WHERE}) and that importing it needs no network.",
        ) from error  # fmt: skip
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(
                reason, f"{field}: {module_name!r} has no {part!r}{_near(part, dir(found))}. Check {field}."
            ) from None
        except BaseException as error:  # of a module or a class that makes its attributes when they are asked for
            raise failed(
                reason, f"{field}: reading {part!r} of {module_name!r}", error, remedy=f"Check {field}."
            ) from error  # fmt: skip
    if not callable(found):
        raise TargetError(reason, f"{field}: {name!r} is not callable. Name a function.")
    result: Callable[..., Any] = found
    return result


def find_module(root: Any, path: str) -> torch.nn.Module:
    """The module at the dotted `path` below `root`, in evaluation mode.

    Raises TargetError(ModuleNotFound) with the names that are near what was asked for, or with what the user's own code
    raises on the way; TargetError(FactoryFailed) for a module that cannot be put into evaluation mode.
    """
    import torch

    found = root
    walked: list[str] = []
    for part in path.split(".") if path else ():
        place = ".".join(walked) or "what the factory returns"
        try:
            following = _step(found, part)
        except BaseException as error:  # a property's, for example
            raise failed(
                "ModuleNotFound", f"torch.modules[].path {path!r}: reading {part!r} of {place}", error,
                remedy="It must be readable once torch.factory has returned.",
            ) from error  # fmt: skip
        if following is None:
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
    try:
        return found.eval()
    except BaseException as error:  # of an eval() or train() of the user's own
        raise failed(
            "FactoryFailed", f"putting the module at {path!r} into evaluation mode", error,
            remedy="What torch.factory returns must be ready to be served.",
        ) from error  # fmt: skip


def device_of(module: torch.nn.Module) -> str:
    """Where the module's inputs go: the device of its first parameter or buffer, `cpu` without any."""
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
    """Names below `value` that lead to modules; none where the user's own code keeps from looking."""
    import torch

    if isinstance(value, torch.nn.Module):
        with suppress(Exception):
            return [name for name, _ in value.named_children()]
        return []
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
