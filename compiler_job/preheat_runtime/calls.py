"""Decides whether a call is one the code was compiled for, and takes the tensors out of it.

Why it exists: compiled code believes its inputs. Another batch, a transposed view or a different constant gives an
answer of the right shape and the wrong content. Every argument is therefore compared with what was compiled.

Most calls are like one before: for those torch's own check of tensors, one call in C, says the same as all comparing here.
"""

from __future__ import annotations

import inspect
import operator
from typing import TYPE_CHECKING, Any

import torch

from .modes import plain_keys, usual_keys
from .package import ArgumentSpec, CallForm, CallSpec, ConstSpec, DimRange, TensorSpec, TreeSpec, tree_type
from .strides import as_compiled, strides_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    # Compares a value, notes the sizes it settles, the tensors it holds, and the same as the code takes them; the reason
    # why it is another, in words.
    Check = Callable[[Any, dict[str, int], list[torch.Tensor], list[torch.Tensor]], str | None]

#: By the contract's `subclass`. Code may ask for a Parameter; what is another tensor still, no package takes.
_TENSOR_TYPES = {None: torch.Tensor, "Parameter": torch.nn.Parameter}
_dispatch_keys, _included_keys = torch._C._dispatch_keys, torch._C._dispatch_tls_local_include_set
#: What `torch._dynamo.mark_dynamic` and the like put on a tensor, for a compile that there is none of here.
_TORCHS_MARKS = ("_dynamo", "_specialize_on", "_has_dynamo")
#: `*rest` and `**more`: what no parameter is named for.
_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
#: Tensors made in inference mode and others, with grad and without, in this mode and that: so many kinds of equal calls are known.
MAX_KNOWN = 4


def is_wrapped(forward: Callable[..., Any]) -> bool:
    """Whether the signature of `forward` is that of another function, which it says it wraps (`functools.wraps`)."""
    return getattr(forward, "__wrapped__", None) is not None


class Matcher:
    """One CallSpec, made ready for the module's `forward`. `match` returns tensors, or the reason in words."""

    def __init__(self, spec: CallSpec, forward: Callable[..., Any], *, any_form: bool = False) -> None:
        """`any_form`: what answers runs `forward` itself, wrappers included, so that all forms of a call are one."""
        self._form = None if any_form else spec.form
        self._signature = inspect.signature(forward)
        dims = spec.dim
        parameters = list(self._signature.parameters.values())
        if [entry.parameter for entry in spec.arguments] != [entry.name for entry in parameters]:
            raise ValueError("the module's forward takes other parameters than the compiled one")
        self._specs = spec.arguments
        self._arguments = [
            (entry.parameter, _check(entry, dims, parameter.default))
            for entry, parameter in zip(spec.arguments, parameters, strict=True)
        ]
        self._positional = self._plain_positional(parameters)
        if self._form is not None and self._form != CallForm(positional=self._positional, named=()):
            self._positional = -1
        #: How many may be given by position, and the name and default of each; nothing where only `bind` knows what goes where.
        self._by_position = sum(entry.kind is entry.POSITIONAL_OR_KEYWORD for entry in parameters)
        named = [(None if entry.kind in _REST else entry.name, entry.default) for entry in parameters]
        self._named = named if all(entry.kind is not entry.POSITIONAL_ONLY for entry in parameters) else []
        self._known: tuple[Callable[..., bool], ...] = ()
        self._places = [entry.parameter for entry in spec.tensors]
        #: Tensors that are given again, with the first place of each; and how many objects all tensors are.
        self._again = [
            (index, self._places.index(entry.same_as))
            for index, entry in enumerate(spec.tensors)
            if entry.same_as is not None
        ]
        self._objects = len(self._places) - len(self._again)

    def _plain_positional(self, parameters: list[inspect.Parameter]) -> int:
        """How many leading tensors make a whole call when given by position alone; -1 when there is no such call."""
        count = 0
        for entry, parameter in zip(self._specs, parameters, strict=True):
            by_position = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            if not isinstance(entry, TensorSpec) or not by_position:
                break
            count += 1
        rest = zip(self._specs[count:], self._arguments[count:], parameters[count:], strict=True)
        omitted_fits = all(
            isinstance(entry, ConstSpec) and check(parameter.default, {}, [], []) is None
            for entry, (_, check), parameter in rest
        )
        return count if omitted_fits else -1

    def match(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor] | str:
        """The tensors of a call in order, or why it is not one that was compiled."""
        plain = not kwargs and len(args) == self._positional
        if plain:
            for is_known in self._known:
                if is_known(*args):
                    for value in args:
                        if value.__dict__:  # nearly never; what it is, the long way tells
                            break
                    else:
                        return list(args)
                    plain = False  # nothing new to remember
                    break
            values: list[Any] | tuple[Any, ...] = args
        else:
            if self._form is not None and (
                len(args) != self._form.positional or kwargs.keys() != set(self._form.named)
            ):
                form = CallForm(positional=len(args), named=tuple(kwargs))
                return (
                    f"the arguments do not fit forward's wrapper, which may tell {form} from {self._form}, as compiled"
                )
            bound = self._bound(args, kwargs)
            if isinstance(bound, str):
                return bound
            values = bound
        sizes: dict[str, int] = {}
        given: list[torch.Tensor] = []
        tensors: list[torch.Tensor] = []
        # By position alone the rest of the arguments are defaults, which were compared when this was made.
        for (name, check), value in zip(self._arguments, values, strict=False):
            reason = check(value, sizes, given, tensors)
            if reason is not None:
                return f"argument {name}: {reason}"
        if len(given) > 1 and (self._again or len(set(map(id, given))) != self._objects):
            reason = self._other_objects(given)
            if reason is not None:
                return reason
        # Where sizes vary, there would be no end of kinds.
        if plain and not sizes and not self._again and len(self._known) < MAX_KNOWN:
            self._remember(args, tensors)
        return tensors

    def _bound(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any] | str:
        """The value of each parameter in order, or why the call does not fit `forward`.

        As `Signature.bind` says, which takes five times as long: with many buckets that would be most of a call's checks.
        """
        if len(args) <= self._by_position:
            values, given = list(args), 0
            for name, default in self._named[len(args) :]:
                if name is not None and name in kwargs:
                    given += 1
                    values.append(kwargs[name])
                elif name is None or default is not inspect.Parameter.empty:
                    values.append(default)
            if given == len(kwargs) and len(values) == len(self._named) > 0:
                return values
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            return f"the arguments do not fit forward: {error}"
        return [arguments.get(name, parameter.default) for name, parameter in self._signature.parameters.items()]

    def _other_objects(self, given: list[torch.Tensor]) -> str | None:
        """Why some of the tensors are the same object, or are not, otherwise than as compiled: `x is y` was decided then."""
        if len(set(map(id, given))) == self._objects and all(given[at] is given[first] for at, first in self._again):
            return None
        firsts, known = dict(self._again), list(map(id, given))
        for at, name in enumerate(self._places):
            first = known.index(known[at])
            if first != firsts.get(at, at):
                if first < at:
                    return f"argument {name}: is the same tensor as {self._places[first]}, compiled for another one"
                return f"argument {name}: is another tensor than {self._places[firsts[at]]}, compiled for the same one"
        return None

    def _remember(self, args: tuple[torch.Tensor, ...], tensors: list[torch.Tensor]) -> None:
        """Know calls like this one by torch's check of type, dtype, device, sizes, strides and dispatch keys.

        It compares what the thread includes and a tensor's own keys as one, so that an odd tensor in an ordinary thread would
        pass for an ordinary one in an odd thread: it is made in no such thread. It holds for no tensor that is passed twice.
        """
        as_given = all(map(operator.is_, args, tensors))
        if args and as_given and not (_included_keys() - usual_keys()).raw_repr():
            check = torch._C._dynamo.guards.TensorGuards(
                *args, dynamic_dims_sizes=None, dynamic_dims_strides=None
            ).check
            self._known = (*self._known, check)


def _check(entry: ArgumentSpec, dims: Mapping[str, DimRange], default: object = None) -> Check:
    if isinstance(entry, TensorSpec):
        return _tensor_check(entry, dims)
    return _tree_check(entry, dims) if isinstance(entry, TreeSpec) else _const_check(entry, default)


def _tree_check(entry: TreeSpec, dims: Mapping[str, DimRange]) -> Check:
    inner = [_check(item, dims) for item in entry.items]
    names = [f"[{key!r}]" for key in entry.keys] or [f"[{index}]" for index in range(len(inner))]
    kind = tree_type(entry)

    def check(value: Any, sizes: dict[str, int], given: list[torch.Tensor], tensors: list[torch.Tensor]) -> str | None:
        if type(value) is not kind:
            return f"is a {type(value).__name__}, compiled for a {entry.type}"
        # The module may go through a dict in its order.
        if kind is dict and tuple(value) != entry.keys:
            return _other_keys(entry.keys, value)
        if len(value) != len(inner):
            return f"has {len(value)} items, compiled for {len(inner)}"
        for name, each, item in zip(names, inner, value.values() if kind is dict else value, strict=True):
            reason = each(item, sizes, given, tensors)
            if reason is not None:
                return f"{name} {reason}"
        return None

    return check


def _other_keys(compiled: tuple[str | int, ...], given: Mapping[Any, object]) -> str:
    """How the keys of a dict differ; those that are given alone may be what a user wrote, and are counted only."""
    lacking = [key for key in compiled if key not in given]
    more = len(given) - len(compiled) + len(lacking)
    differences = [f"lacks the keys {lacking!r}"[:200]] if lacking else []
    differences += [f"has {more} key{'s' * (more > 1)} that it was not compiled for"] if more else []
    return " and ".join(differences) or f"has its keys in another order, compiled for {list(compiled)!r}"[:200]


def _const_check(entry: ConstSpec, default: object) -> Check:
    if entry.type == "default":
        # The default is part of the code's identity, so being the same object here means having the compiled content.
        return lambda value, _sizes, _given, _tensors: (
            None if value is default else "is not the default, which was compiled in"
        )

    def check(
        value: Any, _sizes: dict[str, int], _given: list[torch.Tensor], _tensors: list[torch.Tensor]
    ) -> str | None:
        if type(value).__name__ == entry.type and repr(value) == entry.value:
            return None
        # These words go to the pod's log: a number may be told, but a text may be what a user wrote.
        if isinstance(value, str):
            shown = "another text" if entry.type == "str" else "a text"
        else:
            shown = repr(value)[:60] if value is None or isinstance(value, bool | int | float) else type(value).__name__
        return f"is {shown}, compiled for {entry.value[:60]}"

    return check


def _tensor_check(entry: TensorSpec, dims: Mapping[str, DimRange]) -> Check:
    dtype = getattr(torch, entry.dtype)
    rank = len(entry.shape)
    fixed = entry.shape if all(isinstance(size, int) for size in entry.shape) else None
    device = entry.device
    ordinary, inference = plain_keys(device.partition(":")[0])
    order = getattr(torch, entry.order)
    strides = strides_of(entry)
    fixed_stride = None if fixed is None else strides(torch.Size(fixed))
    cls = _TENSOR_TYPES.get(entry.subclass)

    def check(value: Any, sizes: dict[str, int], given: list[torch.Tensor], tensors: list[torch.Tensor]) -> str | None:
        if type(value) is not cls:
            return f"is a {type(value).__name__}, compiled for a {entry.subclass or 'tensor'}"
        if value.dtype is not dtype:
            return f"has dtype {str(value.dtype).removeprefix('torch.')}, compiled for {entry.dtype}"
        # Before its shape, which a nested tensor does not have.
        kind = _dispatch_keys(value)
        if not (kind == ordinary or kind == inference):  # noqa: SIM109 (a tuple of them would be made each time)
            return f"is not an ordinary tensor on {device} ({value.device}, {value.layout})"
        shape = value.shape
        if shape != fixed:
            if fixed is not None or len(shape) != rank:
                return f"has shape {tuple(shape)}, compiled for {entry.shape}"
            for size, wanted in zip(shape, entry.shape, strict=True):
                if isinstance(wanted, int):
                    fits = size == wanted
                else:
                    fits = dims[wanted].allows(size) and sizes.setdefault(wanted, size) == size
                if not fits:
                    return f"has shape {tuple(shape)}, compiled for {_shown(entry.shape, dims)}"
        if value.__dict__ and not all(name.startswith(_TORCHS_MARKS) for name in value.__dict__):
            return f"has attributes of its own ({', '.join(value.__dict__)[:60]}), which the code may ask for"
        given.append(value)
        stride = fixed_stride or strides(shape)
        if value.stride() != stride:
            value = as_compiled(value, stride, order, entry.order)
            if isinstance(value, str):
                return value
        tensors.append(value)
        return None

    if device == "cpu":  # there is one, as its tensors' keys say
        return check

    def check_there(
        value: Any, sizes: dict[str, int], given: list[torch.Tensor], tensors: list[torch.Tensor]
    ) -> str | None:
        if type(value) is cls and str(value.device) != device:
            return f"is on {value.device}, compiled for {device}"
        return check(value, sizes, given, tensors)

    return check_there


def _shown(shape: tuple[int | str, ...], dims: Mapping[str, DimRange]) -> str:
    sizes = []
    for size in shape:
        if isinstance(size, int):
            sizes.append(str(size))
        else:
            entry = dims[size]
            step = f", multiples of {entry.multiple_of}" if entry.multiple_of > 1 else ""
            sizes.append(f"{size} from {entry.minimum} to {entry.maximum}{step}")
    return f"({', '.join(sizes)})"
