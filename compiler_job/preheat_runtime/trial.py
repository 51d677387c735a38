"""Runs a module eagerly once more, without leaving a trace: no weight, input or random number of the user's is touched.

Why it exists: to know whether a package's answer is right, eager has to answer the same call, in a process that serves.
But `forward` may count its calls, write to buffers, or draw random numbers. So it runs on a twin of the module (its own
attributes, the same weights), and every operator passes a guard that stops the run before anything else is touched.
"""

from __future__ import annotations

import copy
import copyreg
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .outside import let_through

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

#: Operators that write to their running statistics when they train, which their schema does not say.
_TRAIN_QUIETLY = ("batch_norm", "instance_norm")
#: What a copy takes as it is, whatever it refers to.
_TAKEN_AS_IT_IS = frozenset({
    type(None), bool, int, float, complex, str, bytes, range, property, weakref.ref, torch.dtype, torch.device,
    types.FunctionType, types.BuiltinFunctionType, types.CodeType,
})  # fmt: skip
_OF_C = types.WrapperDescriptorType
#: Where torch has operators that other processes must call as well, in the same order as all others of theirs.
_OF_MANY_PROCESSES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd", "_dtensor", "symm_mem"})


class NotRepeatable(BaseException):
    """The module cannot run again without a trace; the message says why. No Exception: the user's code must not catch it."""


class Stopped(BaseException):
    """The run was asked to end."""


def twin(module: torch.nn.Module, tensors: Iterable[torch.Tensor]) -> torch.nn.Module:
    """A copy with attributes of its own and these very tensors. Raises NotRepeatable for what cannot be copied."""
    shared = {id(tensor): tensor for tensor in tensors}
    try:
        kind = with_a_finaliser(module, shared)
        if kind is not None:
            raise NotRepeatable(f"the module cannot be copied (the copy would run {kind.__name__}.__del__ once more)")
        made = copy.deepcopy(module, shared)
    except Exception as error:  # whatever the user's classes raise
        let_through(error)
        raise NotRepeatable(f"the module cannot be copied ({type(error).__name__})") from error
    own = {id(part) for part in module.modules()}
    if any(id(part) in own for part in made.modules()):
        raise NotRepeatable("the module cannot be copied (a __deepcopy__ of its own gives the same object)")
    return made


def with_a_finaliser(module: torch.nn.Module, shared: Iterable[int] = ()) -> type | None:
    """The class of something that a copy of `module` would hold and that has a `__del__`; None where there is nothing.

    It mostly gives something back: a slot, a file descriptor, what a C library holds. The copy's would give back the original's.
    What is in `shared` by its id is not copied. Raises what the user's classes raise when they are copied.
    """
    seen, rest = set(shared), [module]
    kept: list[Sequence[Any]] = []  # an id is only valid while its object lives
    while rest:
        value: Any = rest.pop()
        kind = type(value)
        # What a class copies in its own way is as it wants it.
        if kind in _TAKEN_AS_IT_IS or id(value) in seen or issubclass(kind, type) or hasattr(kind, "__deepcopy__"):
            continue
        seen.add(id(value))
        parts: Sequence[Any]
        if kind in (list, tuple):
            parts = value
        elif kind is dict:
            parts = [*value, *value.values()]
        else:
            reduce = copyreg.dispatch_table.get(kind)
            usual = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
            # Those in C, of generators and files, are of what no copy is made of, or close only themselves.
            if usual and reduce is None and not isinstance(getattr(kind, "__del__", None), _OF_C | None):
                return kind
            made = value.__reduce_ex__(4) if reduce is None else reduce(value)  # as copying does
            items = [] if isinstance(made, str) else [list(each) for each in made[3:5] if each is not None]
            parts = [*made[:3], *items]
            kept.append(parts)
        if not _TAKEN_AS_IT_IS.issuperset(map(type, parts)):
            rest += parts
    return None


def run(module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], stop: Callable[[], bool]) -> Any:
    """The module's own answer. Raises NotRepeatable, or Stopped soon after `stop` says so."""
    guard = _Guard(stop)
    try:
        return _guarded(guard, module, args, kwargs)
    finally:
        guard.refused = (
            None  # its traceback holds the guard, and all that the run made: for ever, where nobody looks for cycles
        )


def _guarded(guard: _Guard, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    # Not as a context: entering it, torch tells the whole process that a mode is on.
    torch._C._push_on_torch_dispatch_stack(guard)
    try:
        answer = module(*args, **kwargs)
    except Exception as error:
        let_through(error)
        if guard.refused is None:
            raise NotRepeatable(f"eager raised {type(error).__name__}") from error
    finally:
        torch._C._pop_torch_dispatch_stack(None)
    if guard.refused is not None:
        raise guard.refused  # the module's code caught it
    return answer


class _Guard(TorchDispatchMode):  # type: ignore[misc]
    """Sees every operator of one thread before it runs, and stops those that would be noticed."""

    def __init__(self, stop: Callable[[], bool]) -> None:
        super().__init__()
        self._stop = stop
        self._own: set[int] = set()
        self.refused: BaseException | None = None

    def before(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise for an operator that must not run."""
        if self.refused is None:
            draws = draws_random_numbers(func, args, kwargs)
            why = f"it draws random numbers ({func})" if draws else self._writes(func, args, kwargs)
            if func.namespace in _OF_MANY_PROCESSES:
                why = f"it talks to other processes ({func})"
            if why is not None:
                self.refused = NotRepeatable(why)
            elif self._stop():
                self.refused = Stopped()
        if self.refused is not None:
            raise self.refused

    def made(self, result: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Note what was made here, which may be written to: not a view of something else."""
        given = {_storage(leaf) for leaf in pytree.tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)}
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self._own.update(place for leaf in leaves if (place := _storage(leaf)) not in given)

    def _writes(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
        for entry, value in _given(func, args, kwargs):
            trains = entry.name in ("training", "use_input_stats") and value is True
            hidden = trains and any(name in func.__name__ for name in _TRAIN_QUIETLY)
            if hidden and _keeps_statistics(func, args, kwargs):
                return f"it writes to statistics ({func})"
            if entry.alias_info is None or not entry.alias_info.is_write:
                continue
            written = (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))
            if any(_storage(tensor) not in self._own for tensor in written):
                return f"it writes to a tensor that it did not make ({func})"
        return None


def _dispatch(
    self: _Guard, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
) -> Any:
    kwargs = kwargs or {}
    self.before(func, args, kwargs)
    result = func(*args, **kwargs)
    self.made(result, args, kwargs)
    return result


# Not in the class body: torch would wrap it there in something that imports its compiler, which takes seconds.
_Guard.__torch_dispatch__ = _dispatch


def draws_random_numbers(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of an operator draws random numbers; `args` may be nodes of a graph."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    # An operator that could: without dropout, and while it does not train, it does not.
    return not any(
        (entry.name.startswith("dropout") and value == 0) or (entry.name in ("train", "training") and not value)
        for entry, value in _given(func, args, kwargs)
    )


def _given(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The arguments of the operator's schema with their values."""
    for position, entry in enumerate(func._schema.arguments):
        yield entry, args[position] if position < len(args) else kwargs.get(entry.name, entry.default_value)


def _keeps_statistics(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator that normalises a batch is given statistics to write to; InstanceNorm has none by default."""
    return any(entry.name.startswith("running_") and value is not None for entry, value in _given(func, args, kwargs))


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
