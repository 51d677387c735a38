"""What is wrong with inputs that lie in lists and dicts. Pure.

Why it exists: the API server would have to multiply every rule by the number of items at each depth, and refuses to. So
these few rules are repeated here in Python, where the controller and the command line read a CompiledModel.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias

from preheat_operator.api.enums import ConstType, Dtype
from preheat_operator.api.fields import DECIMAL, EXPONENT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from preheat_operator.api.inputs import Arg, Const, Item, ItemEntry, Leaf, LeafEntry, Tensor

    Input: TypeAlias = Arg | Item | Leaf

_VALUES = {
    ConstType.INT: ("-?[0-9]{1,18}", 'a whole number in quotes, such as "224"'),
    ConstType.FLOAT: (f"-?{DECIMAL}{EXPONENT}", 'a decimal number in quotes, such as "0.5" or "1e-6"'),
    ConstType.BOOL: ("true|false", '"true" or "false", in quotes'),
    ConstType.STRING: (r"(?s:.*)", "text"),
}

HELD = {Dtype.UINT8: (0, 256), Dtype.INT8: (-128, 128), Dtype.INT16: (-32768, 32768), Dtype.FLOAT16: (-65504, 65504)}
"""The widest `low` and `high` of a dtype that cannot hold all that the fields can: what is drawn would come out as another
number. Of integers `high` is exclusive."""
NOT_HELD = "low and high must be within what the dtype can hold: " + ", ".join(
    f"{dtype.value} {low} to {high}" for dtype, (low, high) in HELD.items()
)


def tensors_of(value: Input) -> Iterator[Tensor]:
    """Every tensor of an argument, in order."""
    if value.tensor is not None:
        yield value.tensor
    for _, item in _items(value):
        yield from tensors_of(item)


def nested_mistake(value: Input) -> str | None:
    """The first thing that is wrong below an argument, with its place and the remedy; None when all is right.

    The argument itself is the API server's to check.
    """
    for place, item in _items(value):
        kinds = [item.tensor, item.const, *_containers(item)]
        if sum(kind is not None for kind in kinds) != 1:
            return (
                f"[{place!r}]: set exactly one of tensor, const, list and dict (two levels of lists and dicts at most)"
            )
        if item.tensor is not None and (wrong := _tensor(item.tensor)):
            return f"[{place!r}].tensor: {wrong}"
        if item.const is not None and (wrong := _const(item.const)):
            return f"[{place!r}].const: {wrong}"
        if wrong := nested_mistake(item):
            return f"[{place!r}]{wrong}"
    return None


def dims_mistake(arguments: Sequence[Input], *, declared: set[str]) -> str | None:
    """The dim that a list or dict names without its being declared, or that is declared and nowhere named.

    None when there is none, and where there are no lists and dicts: the API server looks at all else.
    """
    nested = [argument for argument in arguments if argument.tensor is None and argument.const is None]
    if not nested:
        return None
    if missing := sorted(_dims_of(nested) - declared):
        return f"a shape names the dim {missing[0]}, which is not declared: add it to dims, or write a number"
    if unused := sorted(declared - _dims_of(arguments)):
        return f"the dim {unused[0]} is in no shape: use it, or remove it from dims"
    return None


def _dims_of(arguments: Sequence[Input]) -> set[str]:
    sizes = {size for argument in arguments for tensor in tensors_of(argument) for size in tensor.shape}
    return {size for size in sizes if isinstance(size, str) and not size.isdecimal()}


def _items(value: Input) -> list[tuple[int | str, Item | Leaf]]:
    in_list, in_dict = _containers(value)
    return [*enumerate(in_list or ()), *((entry.key, entry) for entry in in_dict or ())]


def _containers(value: Input) -> tuple[Sequence[Item | Leaf] | None, Sequence[ItemEntry | LeafEntry] | None]:
    # A leaf has neither: lists and dicts end at the second level.
    return getattr(value, "list_items", None), getattr(value, "dict_items", None)


def _tensor(tensor: Tensor) -> str | None:
    if any((str(size).isdecimal() and int(size) < 1) or str(size).startswith("-") for size in tensor.shape):
        return "a size must be a number of at least 1, or the name of one of the bucket's dims"
    if (tensor.low is None) != (tensor.high is None):
        return "low and high: set both, or neither"
    if tensor.low is not None and tensor.high is not None and tensor.low >= tensor.high:
        return "low must be below high: high is exclusive"
    if tensor.dtype == Dtype.BOOL and tensor.low is not None:
        return "low and high mean nothing for dtype bool: remove them"
    if tensor.low is not None and tensor.high is not None and tensor.dtype in HELD:
        least, most = HELD[tensor.dtype]
        if tensor.low < least or tensor.high > most:
            return NOT_HELD
    return None


def _const(const: Const) -> str | None:
    if (const.type == ConstType.NONE) != (const.value is None):
        return "value: required, except for type None which has none"
    if const.value is None:
        return None
    pattern, wanted = _VALUES[const.type]
    return None if re.fullmatch(pattern, const.value) else f"value: for type {const.type.value} {wanted}"
