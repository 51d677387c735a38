"""Notices what a call does beside answering, which a package would not do.

Why it exists: torch.export runs the module's Python once and keeps only what happens to tensors. A `print` in `forward` is
then gone without a word, where torch.compile goes on printing. So is what it puts into the caller's dict or list, and what
it makes of the caller's own tensors: answers are compared, and these are in none.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from preheat_runtime import questions

from .package_errors import NotPackageable, OutputAliases, SideEffect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .package_call import PlannedCall

_TORCH = str(Path(torch.__file__).parent)


@contextmanager
def prints() -> Iterator[list[str]]:
    """Collect `file:line` of every `print` outside torch that runs inside; they print as ever."""
    seen: list[str] = []
    real = builtins.print

    def noting(*args: Any, **kwargs: Any) -> None:
        caller = sys._getframe(1)
        if not caller.f_code.co_filename.startswith(_TORCH):
            seen.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
        real(*args, **kwargs)

    builtins.print = noting
    try:
        yield seen
    finally:
        builtins.print = real


def answer_alone(module: torch.nn.Module, call: PlannedCall) -> Any:
    """The module's own answer to a call that it does nothing else for.

    Raises SideEffect when what the caller passed is not as it was, OutputAliases when a dict or list of the caller's is
    part of the answer, NotPackageable when it asks for other processes or for threads.
    """
    given = _Given(module, call)
    with _questions() as asked:
        answer = module(*call.args, **call.kwargs)
    if asked:
        raise asks(*asked[0])
    given.require_unchanged()
    given.require_not_in(answer)
    return answer


def asks(question: str, where: str) -> NotPackageable:
    """Why there is no package of code that asks this, as an error."""
    if question in questions.THREADS:
        return NotPackageable(
            f"the code asks for {question}(), and a package would keep the number that the compile Job has; ask when the "
            "module is made, or leave it to torch's operators",
            where=where or None, name=question,
        )  # fmt: skip
    return NotPackageable(
        f"the code uses {question}, and in the compile Job there are no other processes; let the code around the module "
        "talk to them, or compile the parts that do not",
        where=where or None, name=question,
    )  # fmt: skip


@contextmanager
def _questions() -> Iterator[list[tuple[str, str]]]:
    """Collect what code outside torch asks while it runs inside, also that of installed packages, which nobody reads."""
    found: list[tuple[str, str]] = []

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "c_call":
            caller, name = frame, questions.full_name(arg)
            if name not in questions.THREADS:
                return
        elif event == "call" and questions.is_distributed(frame.f_globals.get("__name__") or ""):
            caller, name = frame.f_back, f"{frame.f_globals['__name__']}.{frame.f_code.co_name}"
        else:
            return
        if caller is not None and not caller.f_code.co_filename.startswith((_TORCH, "<frozen ")):
            found.append((name, f"{caller.f_code.co_filename}:{caller.f_lineno}"))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


class _Tensor(NamedTuple):
    """What a caller can see of a tensor beside its values; `version` counts the writes to those."""

    requires_grad: bool
    attributes: dict[str, Any]
    place: tuple[Any, ...]
    version: int


class _Given:
    """The arguments of a call, as they are before it: lists and dicts with what is in them, and tensors."""

    def __init__(self, module: torch.nn.Module, call: PlannedCall) -> None:
        self._containers: list[tuple[str, Any, list[tuple[Any, Any]]]] = []
        self._tensors: list[tuple[str, torch.Tensor, _Tensor]] = []
        bound = inspect.signature(module.forward).bind(*call.args, **call.kwargs)
        for name, value in bound.arguments.items():
            self._note(name, value)

    def _note(self, place: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensors.append((place, value, _seen(value)))
        elif isinstance(value, (dict, list, tuple)):
            items = _items(value)
            if not isinstance(value, tuple):
                self._containers.append((place, value, items))
            for key, item in items:
                self._note(f"{place}[{key!r}]", item)

    def require_unchanged(self) -> None:
        """Raise SideEffect for the first that is not as it was."""
        for place, value, before in self._containers:
            if what := _other_items(before, _items(value)):
                raise SideEffect(
                    f"forward {what} the caller's {place}, which a package would not do; return it instead, and let "
                    "the caller keep it",
                    name=place,
                )
        for place, tensor, held in self._tensors:
            if what := _otherwise(held, _seen(tensor)):
                raise SideEffect(
                    f"forward {what} the caller's {place}, which a package would not do; leave it to the caller, or "
                    f"work on {place}.clone()",
                    name=place,
                )

    def require_not_in(self, answer: Any) -> None:
        """Raise OutputAliases for an answer that holds a list or dict of the caller's own."""
        known = {id(value): place for place, value, _ in self._containers}
        rest = [answer]
        while rest:
            value = rest.pop()
            if id(value) in known:
                place = known[id(value)]
                raise OutputAliases(
                    f"the answer holds the caller's own {place}; a package would return another one: return a new dict "
                    "or list",
                    name=place,
                )
            if isinstance(value, (dict, list, tuple)):
                rest += [item for _, item in _items(value)]


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items() if isinstance(value, dict) else enumerate(value))


def _other_items(before: list[tuple[Any, Any]], after: list[tuple[Any, Any]]) -> str | None:
    """What was done to a list or dict, in words that go on with what it is; None when nothing was."""
    held, has = dict(before), dict(after)
    if added := [key for key in has if key not in held]:
        return f"puts [{added[0]!r}] into"
    if gone := [key for key in held if key not in has]:
        return f"takes [{gone[0]!r}] out of"
    if other := [key for key in held if held[key] is not has[key]]:
        return f"puts another [{other[0]!r}] into"
    return "changes the order of" if list(held) != list(has) else None


def _seen(tensor: torch.Tensor) -> _Tensor:
    strided = tensor.layout is torch.strided
    return _Tensor(
        requires_grad=tensor.requires_grad,
        attributes=dict(vars(tensor)),
        place=(
            tensor.dtype,
            tensor.device,
            tuple(tensor.shape),
            *((tensor.stride(), tensor.storage_offset(), tensor.data_ptr()) if strided else ()),
        ),
        version=-1 if tensor.is_inference() else tensor._version,
    )


def _otherwise(before: _Tensor, after: _Tensor) -> str | None:
    if before.requires_grad != after.requires_grad:
        return "sets requires_grad of"
    names = before.attributes.keys() | after.attributes.keys()
    nothing = object()
    if other := [n for n in names if before.attributes.get(n, nothing) is not after.attributes.get(n, nothing)]:
        return f"sets the attribute {min(other)} of"
    if before.place != after.place:
        return "changes the shape or memory of"
    return "writes to" if before.version != after.version else None
