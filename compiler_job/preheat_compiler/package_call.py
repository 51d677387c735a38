"""From an example call to the contract of the calls a package answers, and to what torch.export wants to hear.

Why it exists: `f(x, mask=m)` and `f(x, True, m)` can be one call or two. The compile Job and the pod both put the
arguments into the order of the signature first; this is the Job's half.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from preheat_runtime.calls import is_wrapped
from preheat_runtime.package import CallForm, CallSpec, ConstSpec, DimRange, TensorSpec, TreeSpec, const_spec, tree_type
from preheat_runtime.strides import seems_channels_last, stride_of

from .package_errors import InputsRefused, NotPackageable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_runtime.package import ArgumentSpec

    #: Where a tensor is among the arguments: position or keyword, then indices and keys.
    Place = tuple[int | str, ...]
    #: Of the sizes that vary: where the tensor is (a position or keyword alone may go without its tuple), and for each
    #: index of a dimension its range.
    Ranges = (
        Mapping[int, Mapping[int, DimRange]]
        | Mapping[str, Mapping[int, DimRange]]
        | Mapping[Place, Mapping[int, DimRange]]
    )


@dataclass(frozen=True, kw_only=True)
class ExampleCall:
    """One call of the module: each argument is a tensor, a constant (None, bool, int, float, str), or a list, tuple
    or dict of such."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlannedCall:
    """The contract, the arguments in canonical order, and `dynamic_shapes` for torch.export (None when all is fixed)."""

    spec: CallSpec
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    export_shapes: dict[str, Any] | None
    tensors: tuple[torch.Tensor, ...]


def plan_call(
    module: torch.nn.Module,
    example: ExampleCall,
    dynamic_shapes: Ranges | None,
) -> PlannedCall:
    """Put the example's arguments in order and describe them. Raises InputsRefused, NotPackageable."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*example.args, **example.kwargs)
    except TypeError as error:
        raise InputsRefused(
            f"the arguments do not fit {type(module).__qualname__}.forward{signature}: {error}"
        ) from None
    plan = _Plan(ranges=_by_parameter(signature, dynamic_shapes or {}))
    arguments: list[ArgumentSpec] = []
    for name, parameter in signature.parameters.items():
        if name not in bound.arguments:
            arguments.append(_omitted(name, parameter))
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise NotPackageable(f"forward takes {parameter}, and the call passes something there", name=name)
        else:
            arguments.append(plan.argument((name,), bound.arguments[name]))
    if plan.ranges:
        shown = ", ".join(_shown(place) for place in plan.ranges)
        raise InputsRefused(f"varying sizes are named for {shown}, where the call passes no tensor")
    args, kwargs, form = bound.args, bound.kwargs, None
    if is_wrapped(module.forward):
        args, kwargs = example.args, {name: value for name, value in bound.arguments.items() if name in example.kwargs}
        form = CallForm(positional=len(args), named=tuple(kwargs))
    spec = CallSpec(arguments=tuple(arguments), dims=tuple(plan.dims.values()), form=form)
    return PlannedCall(
        spec=spec,
        args=args,
        kwargs=kwargs,
        export_shapes=_export_shapes(spec, tuple(bound.arguments)),
        tensors=tuple(plan.tensors),
    )


@dataclass(kw_only=True)
class _Plan:
    """What is collected while the arguments of a call are gone through; `ranges` are those not met yet."""

    ranges: dict[Place, Mapping[int, DimRange]]
    dims: dict[str, DimRange] = field(default_factory=dict)
    tensors: list[torch.Tensor] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)

    def argument(self, place: Place, value: Any) -> ArgumentSpec:
        """The spec of one argument, or of what lies in it."""
        name = _shown(place)
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
            spec = _tensor(name, value, self.ranges.pop(place, {}), self.dims)
            first = self.places.setdefault(id(value), name)
            return spec if first == name else replace(spec, same_as=first)
        if type(value) in (list, tuple):
            items = tuple(self.argument((*place, index), item) for index, item in enumerate(value))
            return TreeSpec(parameter=name, type=type(value).__name__, keys=(), items=items)
        if type(value) is dict:
            if unfit := [key for key in value if type(key) not in (str, int)]:
                raise InputsRefused(f"argument {name} has the key {unfit[0]!r}; keys must be str or int", name=name)
            items = tuple(self.argument((*place, key), item) for key, item in value.items())
            return TreeSpec(parameter=name, type="dict", keys=tuple(value), items=items)
        const = const_spec(name, value)
        if const is None:
            raise InputsRefused(
                f"argument {name} is a {type(value).__name__}; give a tensor, None, bool, int, float or str, or a list, "
                "tuple or dict of such",
                name=name,
            )
        return const


def _shown(place: Place) -> str:
    """`past[0]['key']` for ("past", 0, "key")."""
    return "".join([str(place[0]), *(f"[{part!r}]" for part in place[1:])])


def _by_parameter(signature: inspect.Signature, dynamic_shapes: Ranges) -> dict[Place, Mapping[int, DimRange]]:
    names = list(signature.parameters)
    found: dict[Place, Mapping[int, DimRange]] = {}
    for place, entry in dynamic_shapes.items():
        key, *rest = place if isinstance(place, tuple) else (place,)
        if isinstance(key, int) and key >= len(names):
            raise InputsRefused(f"varying sizes are named for argument {key}, but forward takes {len(names)}")
        if entry:
            by_name: Place = (names[key] if isinstance(key, int) else key, *rest)
            found[by_name] = entry
    return found


def _omitted(name: str, parameter: inspect.Parameter) -> ConstSpec:
    """A parameter the call leaves out: its simple default by value, any other default as 'the default'."""
    if parameter.default is not parameter.empty:
        const = const_spec(name, parameter.default)
        if const is not None:
            return const
    return ConstSpec(parameter=name, type="default", value="")


def _tensor(name: str, tensor: torch.Tensor, ranges: Mapping[int, DimRange], dims: dict[str, DimRange]) -> TensorSpec:
    order = _order(tensor)
    if order is None:
        raise InputsRefused(f"argument {name} is neither contiguous nor in channels_last order", name=name)
    shape: list[int | str] = list(tensor.shape)
    for position, entry in ranges.items():
        if not 0 <= position < len(shape):
            raise InputsRefused(f"argument {name} has no dimension {position}", name=name)
        if dims.setdefault(entry.name, entry) != entry:
            raise InputsRefused(f"dimension {entry.name} has two different ranges", name=name)
        if not entry.allows(tensor.shape[position]):
            raise InputsRefused(f"argument {name}: size {tensor.shape[position]} is not in {entry}", name=name)
        # A range of one size is that size; torch.export refuses to call it dynamic.
        if entry.minimum != entry.maximum:
            shape[position] = entry.name
    return TensorSpec(
        parameter=name,
        shape=tuple(shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        device=str(tensor.device),
        order=order,
        stride=_odd_stride(tensor, order),
        subclass=None if type(tensor) is torch.Tensor else type(tensor).__name__,
    )


def _order(tensor: torch.Tensor) -> str | None:
    """How the tensor lies in memory, as torch names it; None for an order that no package is made for."""
    if tensor.layout is not torch.strided:
        return None
    last = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    # With one channel it may lie in both orders, and torch goes by the strides.
    if tensor.is_contiguous() and not (last and seems_channels_last(tensor.shape, tensor.stride())):
        return "contiguous_format"
    return "channels_last" if last else None


def _odd_stride(tensor: torch.Tensor, order: str) -> tuple[int | None, ...] | None:
    """The strides of dimensions of size one, where they make torch see another format than the order has."""
    shape, stride = tensor.shape, tensor.stride()
    if seems_channels_last(shape, stride) == seems_channels_last(shape, stride_of(order)(shape)):
        return None
    return tuple(step if size == 1 else None for size, step in zip(shape, stride, strict=True))


def _export_shapes(spec: CallSpec, passed: tuple[str, ...]) -> dict[str, Any] | None:
    ranges = spec.dim
    symbols = {name: _export_dim(entry) for name, entry in ranges.items() if entry.minimum != entry.maximum}
    if not symbols:
        return None

    def shapes_of(entry: ArgumentSpec) -> Any:
        if isinstance(entry, TensorSpec):
            return {position: symbols[size] for position, size in enumerate(entry.shape) if isinstance(size, str)}
        if isinstance(entry, TreeSpec):
            inner = [shapes_of(item) for item in entry.items]
            return dict(zip(entry.keys, inner, strict=True)) if entry.type == "dict" else tree_type(entry)(inner)
        return None

    return {entry.parameter: shapes_of(entry) for entry in spec.arguments if entry.parameter in passed}


def _export_dim(entry: DimRange) -> Any:
    step = entry.multiple_of
    if step == 1:
        return torch.export.Dim(entry.name, min=entry.minimum, max=entry.maximum)
    root = torch.export.Dim(f"{entry.name}_steps", min=-(-entry.minimum // step), max=entry.maximum // step)
    return step * root


def narrowed(spec: CallSpec, program: Any) -> CallSpec:
    """The contract with the ranges torch really compiled for.

    A multiple of m is traced as m times a symbol that is at least 2, so m itself is not among them.
    """
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    inputs = iter(program.graph_signature.user_inputs)
    dims = dict(spec.dim)
    for argument in spec.tensors:
        node = next(placeholders[name] for name in inputs if _is_tensor_input(placeholders, name))
        for size, symbol in zip(argument.shape, node.meta["val"].shape, strict=True):
            if isinstance(size, str):
                dims[size] = _narrow(dims[size], symbol, program.range_constraints)
    return replace(spec, dims=tuple(dims.values()))


def _is_tensor_input(placeholders: Mapping[str, Any], name: object) -> bool:
    return (
        isinstance(name, str) and name in placeholders and isinstance(placeholders[name].meta.get("val"), torch.Tensor)
    )


def _narrow(entry: DimRange, size: Any, constraints: Mapping[Any, Any]) -> DimRange:
    if isinstance(size, int):
        raise NotPackageable(f"dimension {entry.name} does not vary: the code fixes it to {size}", name=entry.name)
    symbols = list(size.node.expr.free_symbols)
    if len(symbols) != 1 or symbols[0] not in constraints:
        raise NotPackageable(f"dimension {entry.name} became {size}, whose range is not known", name=entry.name)
    bounds = constraints[symbols[0]]
    return DimRange(
        name=entry.name,
        minimum=max(entry.minimum, int(bounds.lower) * entry.multiple_of),
        maximum=min(entry.maximum, int(bounds.upper) * entry.multiple_of),
        multiple_of=entry.multiple_of,
    )
