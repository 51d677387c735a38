"""What a bucket says a module is called with: its specs, read strictly from request.json.

Why it exists: a bucket is the widest part of the request, and the only one that the code which makes inputs, traces
and proves has to understand.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_compiler.fields import Fields, RequestError

if TYPE_CHECKING:
    from decimal import Decimal

CONSTANT_TYPES = ("Int", "Float", "String", "Bool", "None")
_CALLABLE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True, kw_only=True)
class Dim:
    """A named size that may vary between calls: `minimum..maximum`, a multiple of `multiple_of`."""

    name: str
    minimum: int
    maximum: int
    multiple_of: int


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor argument: `shape` of sizes and dim names, torch's dtype name, bounds of its values (`high` excluded)."""

    shape: tuple[int | str, ...]
    dtype: str
    low: Decimal | None
    high: Decimal | None


@dataclass(frozen=True, kw_only=True)
class ConstSpec:
    """A constant argument: None, bool, int, float or str."""

    value: bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class ListSpec:
    """A list of arguments."""

    items: tuple[ArgumentSpec, ...]


@dataclass(frozen=True, kw_only=True)
class DictSpec:
    """A dict of arguments; `items` are (key, spec) in order."""

    items: tuple[tuple[str, ArgumentSpec], ...]


ArgumentSpec = TensorSpec | ConstSpec | ListSpec | DictSpec


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One set of inputs; `kwargs` are (name, spec) in the order of the request.

    `example_inputs` names a callable that makes the inputs; there are no specs then.
    """

    name: str
    dims: tuple[Dim, ...] = ()
    args: tuple[ArgumentSpec, ...] = ()
    kwargs: tuple[tuple[str, ArgumentSpec], ...] = ()
    example_inputs: str | None = None

    def tensors(self) -> list[TensorSpec]:
        """Every tensor of the inputs, in order."""
        return [leaf for spec in (*self.args, *(spec for _, spec in self.kwargs)) for leaf in _tensors(spec)]


def check_callable(where: str, value: str) -> None:
    """Raise RequestError when `value` is not `package.module:callable`."""
    if not _CALLABLE.fullmatch(value):
        raise RequestError(f"{where}: {value!r} is not of the form package.module:callable")


def read_bucket(raw: object, where: str) -> Bucket:
    """Raises RequestError naming the field."""
    fields = Fields(raw, where)
    bucket = Bucket(
        name=fields.segment("name"),
        dims=fields.list("dims", _dim, required=False),
        args=fields.list("args", _argument, required=False),
        kwargs=fields.list("kwargs", _keyword, required=False),
        example_inputs=fields.take("exampleInputs", required=False),
    )
    fields.end()
    if bucket.example_inputs is not None:
        check_callable(f"{where}.exampleInputs", bucket.example_inputs)
        if bucket.args or bucket.kwargs or bucket.dims:
            raise RequestError(f"{where}: has exampleInputs, so args, kwargs and dims must be absent")
    return bucket


def _dim(raw: object, where: str) -> Dim:
    fields = Fields(raw, where)
    dim = Dim(
        name=fields.text("name"),
        minimum=fields.integer("min", minimum=1),
        maximum=fields.integer("max", minimum=1),
        multiple_of=fields.integer("multipleOf", minimum=1, default=1),
    )
    fields.end()
    first = -(-dim.minimum // dim.multiple_of) * dim.multiple_of
    if first > dim.maximum:
        raise RequestError(
            f"{where}: no multiple of {dim.multiple_of} lies between min {dim.minimum} and max {dim.maximum}"
        )
    return dim


def _keyword(raw: object, where: str) -> tuple[str, ArgumentSpec]:
    fields = Fields(raw, where)
    name = fields.text("name")
    return name, _argument(fields.rest(), where)


def _entry(raw: object, where: str) -> tuple[str, ArgumentSpec]:
    fields = Fields(raw, where)
    key = fields.text("key")
    return key, _argument(fields.rest(), where)


def _argument(raw: object, where: str) -> ArgumentSpec:
    fields = Fields(raw, where)
    given = {kind: fields.take(kind, required=False) for kind in ("tensor", "const")}
    items = {
        "list": fields.list("list", _argument) if "list" in fields.rest() else None,
        "dict": fields.list("dict", _entry) if "dict" in fields.rest() else None,
    }
    fields.end()
    if sum(value is not None for value in (*given.values(), *items.values())) != 1:
        raise RequestError(f"{where}: must have exactly one of tensor, const, list and dict")
    if items["list"] is not None:
        return ListSpec(items=items["list"])
    if items["dict"] is not None:
        return DictSpec(items=items["dict"])
    if given["tensor"] is not None:
        return _tensor(given["tensor"], f"{where}.tensor")
    return read_const(given["const"], f"{where}.const")


def _tensors(spec: ArgumentSpec) -> list[TensorSpec]:
    if isinstance(spec, ListSpec):
        return [leaf for item in spec.items for leaf in _tensors(item)]
    if isinstance(spec, DictSpec):
        return [leaf for _, item in spec.items for leaf in _tensors(item)]
    return [spec] if isinstance(spec, TensorSpec) else []


def _tensor(raw: object, where: str) -> TensorSpec:
    fields = Fields(raw, where)
    spec = TensorSpec(
        shape=fields.list("shape", _size, required=False),
        dtype=fields.segment("dtype"),
        low=fields.decimal("low", required=False),
        high=fields.decimal("high", required=False),
    )
    fields.end()
    if spec.low is not None and spec.high is not None and spec.low >= spec.high:
        raise RequestError(f"{where}: low {spec.low} must be less than high {spec.high}")
    return spec


def _size(raw: object, where: str) -> int | str:
    if isinstance(raw, bool) or not isinstance(raw, (int, str)) or raw == "":
        raise RequestError(f"{where}: {raw!r} is neither a size nor the name of a dim")
    if isinstance(raw, str) and raw.isdecimal():
        raw = int(raw)
    if isinstance(raw, int) and raw < 0:
        raise RequestError(f"{where}: a size cannot be negative")
    return raw


def read_const(raw: object, where: str) -> ConstSpec:
    """A constant with its type. Raises RequestError naming the field."""
    fields = Fields(raw, where)
    kind = fields.one_of("type", CONSTANT_TYPES)
    text = "" if kind == "None" else fields.text("value", empty=True)
    if kind == "None":
        fields.take("value", required=False)
    fields.end()
    try:
        return ConstSpec(value=_constant(kind, text))
    except ValueError as error:
        raise RequestError(f"{where}.value: {text!r} is no {kind}") from error


def _constant(kind: str, text: str) -> bool | int | float | str | None:
    if kind == "Int":
        return int(text)
    if kind == "Float":
        return float(text)
    if kind == "Bool":
        if text.lower() not in {"true", "false"}:
            raise ValueError(text)
        return text.lower() == "true"
    return text if kind == "String" else None
