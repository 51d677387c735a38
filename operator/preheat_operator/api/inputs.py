"""What a module is called with: tensors and constants, described well enough to compile and to prove the result.

The rules are written in CEL beside the fields they guard, because the API server is where a person can still
correct a mistake. `crds.py` renders them; nothing checks them a second time in Python, but what would cost an API
server more than it allows.
"""

from typing import Any, Final, Self

from pydantic import ConfigDict, Field, model_validator

from preheat_operator.api.base import ApiModel, atomic_list, list_map, rule, rules, unchecked
from preheat_operator.api.enums import ConstType, Dtype
from preheat_operator.api.fields import DECIMAL, EXPONENT, Callable_, DimName, Identifier, Name, Region, Size
from preheat_operator.api.nested import HELD, NOT_HELD, dims_mistake, nested_mistake

MAX_BUCKETS: Final = 32
MAX_ITEMS: Final = 64


def _held() -> str:
    """CEL that says whether `low` and `high` are within what the dtype can hold."""
    kinds = "".join(
        f"self.dtype == '{dtype.value}' ? self.low >= {low} && self.high <= {high} : "
        for dtype, (low, high) in HELD.items()
    )
    return f"!has(self.low) || !has(self.high) || ({kinds}true)"


class Tensor(ApiModel):
    """An input tensor, described; its values are drawn at random."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.low) == has(self.high)", "low and high: set both, or neither"),
            rule(
                "!has(self.low) || !has(self.high) || self.low < self.high", "low must be below high: high is exclusive"
            ),
            rule("self.dtype != 'bool' || !has(self.low)", "low and high mean nothing for dtype bool: remove them"),
            rule(_held(), NOT_HELD),
        )
    )

    shape: tuple[Size, ...] = Field(
        max_length=8,
        description="Size of each dimension: a number, or the name of a dim of the bucket. Empty: a scalar tensor.",
        json_schema_extra=atomic_list()
        | rules(
            rule(
                "self.all(s, type(s) == string || int(s) >= 1)",
                "a size must be a number of at least 1, or the name of one of the bucket's dims",
            )
        ),
    )
    dtype: Dtype = Field(description="Element type, by its name in torch.")
    low: int | None = Field(
        default=None,
        ge=-(2**31),
        le=2**31 - 1,
        description="Smallest value drawn (inclusive); goes together with `high`. Default: integers are drawn from "
        "0 and 1, floats from the standard normal distribution.",
    )
    high: int | None = Field(
        default=None,
        ge=-(2**31),
        le=2**31 - 1,
        description="Bound of the values drawn (exclusive); goes together with `low`.",
    )


def constant_rules() -> dict[str, Any]:
    """Schema extension of a `type` with its `value` as text."""
    return rules(
        rule("(self.type == 'None') != has(self.value)", "value: required, except for type None which has none"),
        rule(
            "self.type != 'Int' || !has(self.value) || self.value.matches('^-?[0-9]{1,18}$')",
            'value: for type Int a whole number in quotes, such as "224"',
        ),
        rule(
            f"self.type != 'Float' || !has(self.value) || self.value.matches('^-?{DECIMAL}{EXPONENT}$')",
            'value: for type Float a decimal number in quotes, such as "0.5" or "1e-6"',
        ),
        rule(
            "self.type != 'Bool' || !has(self.value) || self.value in ['true', 'false']",
            'value: for type Bool "true" or "false", in quotes',
        ),
    )


class Const(ApiModel):
    """A constant argument; compiled code is only used for calls that pass this very value."""

    model_config = ConfigDict(json_schema_extra=constant_rules())

    type: ConstType = Field(description="Python type of the value: Int, Float, String, Bool or None.")
    value: str | None = Field(
        default=None,
        max_length=256,
        description="The value as text: digits for Int, a decimal number for Float, true or false for Bool, any text "
        "for String. Absent for type None.",
    )


def _one_of_four() -> dict[str, str]:
    return rule(
        "(has(self.tensor) ? 1 : 0) + (has(self.__const__) ? 1 : 0) + (has(self.list) ? 1 : 0) + (has(self.dict) ? 1 : 0) "
        "== 1",
        "set exactly one of tensor, const, list and dict",
    )


class Leaf(ApiModel):
    """A tensor or a constant, in a list or dict."""

    model_config = ConfigDict(
        json_schema_extra=rules(rule("has(self.tensor) != has(self.__const__)", "set exactly one of tensor and const"))
    )

    tensor: Tensor | None = Field(default=None, description="A tensor input.")
    const: Const | None = Field(default=None, description="A constant input.")


class LeafEntry(Leaf):
    """An entry of a dict."""

    key: str = Field(min_length=1, max_length=63, description="Key of the entry.")


class Item(ApiModel):
    """An item of a list or dict: itself a tensor, a constant, or a list or dict of such."""

    model_config = ConfigDict(json_schema_extra=rules(_one_of_four()))

    tensor: Tensor | None = Field(default=None, description="A tensor input.")
    const: Const | None = Field(default=None, description="A constant input.")
    list_items: tuple[Leaf, ...] | None = Field(
        alias="list",
        default=None,
        max_length=MAX_ITEMS,
        json_schema_extra=atomic_list() | unchecked(),
        description="A Python list.",
    )
    dict_items: tuple[LeafEntry, ...] | None = Field(
        alias="dict",
        default=None,
        max_length=MAX_ITEMS,
        json_schema_extra=list_map("key") | unchecked(),
        description="A Python dict; its order counts.",
    )


class ItemEntry(Item):
    """An entry of a dict."""

    key: str = Field(min_length=1, max_length=63, description="Key of the entry.")


class Arg(ApiModel):
    """One positional argument of the module's forward."""

    model_config = ConfigDict(json_schema_extra=rules(_one_of_four()))

    tensor: Tensor | None = Field(default=None, description="A tensor input.")
    const: Const | None = Field(default=None, description="A constant input.")
    list_items: tuple[Item, ...] | None = Field(
        alias="list",
        default=None,
        max_length=MAX_ITEMS,
        json_schema_extra=atomic_list() | unchecked(),
        description="A Python list of inputs, which may hold lists and dicts once more.",
    )
    dict_items: tuple[ItemEntry, ...] | None = Field(
        alias="dict",
        default=None,
        max_length=MAX_ITEMS,
        json_schema_extra=list_map("key") | unchecked(),
        description="A Python dict of inputs, which may hold lists and dicts once more; its order counts.",
    )


class Kwarg(Arg):
    """One keyword argument of the module's forward."""

    name: Identifier = Field(description="Name of the keyword argument.")


class Dim(ApiModel):
    """A dimension that may vary within bounds; inputs that name the same dim always have the same size there."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("self.min <= self.max", "min must not be above max"),
            rule(
                "self.min % self.multipleOf == 0 && self.max % self.multipleOf == 0",
                "min and max must be multiples of multipleOf",
            ),
        )
    )

    name: DimName = Field(description="Name used in shapes.")
    min: int = Field(ge=1, le=2**31 - 1, description="Smallest size (inclusive).")
    max: int = Field(ge=1, le=2**31 - 1, description="Largest size (inclusive).")
    multiple_of: int = Field(default=1, ge=1, le=65536, description="Every size is a multiple of this. Default: 1.")


def _declared(arguments: str) -> dict[str, str]:
    """The rule that every dim a shape of `arguments` names is declared.

    Its message cannot name the dim: an expression that could costs more than an API server allows a rule.
    """
    return rule(
        f"self.{arguments}.all(i, !has(i.tensor) || i.tensor.shape.all(s, type(s) == int || "
        "self.dims.exists(d, d.name == s)))",
        f"{arguments}: a shape names a dim that is not declared: add it to the dims of the bucket, or write a number",
    )


def _used(arguments: str) -> str:
    """CEL that says whether a shape of `arguments` names the dim `d`, as far as CEL looks: not into lists and dicts."""
    return (
        f"self.{arguments}.exists(i, has(i.list) || has(i.dict) || "
        "has(i.tensor) && i.tensor.shape.exists(s, type(s) == string && s == d.name))"
    )


class Bucket(ApiModel):
    """One named set of input shapes and dtypes a module is compiled for."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.exampleInputs) || size(self.args) + size(self.kwargs) >= 1",
                "args and kwargs: give at least one, or exampleInputs; a forward without inputs cannot be compiled",
            ),
            rule(
                "!has(self.exampleInputs) || size(self.args) + size(self.kwargs) + size(self.dims) == 0",
                "exampleInputs: goes without args, kwargs and dims; remove one or the other",
            ),
            _declared("args"),
            _declared("kwargs"),
            rule(
                f"self.dims.all(d, {_used('args')} || {_used('kwargs')})",
                "dims: every declared dim must be used in a shape: use it, or remove it",
            ),
        )
    )

    name: Name = Field(description="Name of the bucket; unique in its module.")
    dims: tuple[Dim, ...] = Field(
        default=(),
        max_length=6,
        json_schema_extra=list_map("name"),
        description="Dimensions that may vary. Default: none, every size is fixed.",
    )
    args: tuple[Arg, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra=atomic_list(),
        description="Positional arguments of forward, in order. Default: none.",
    )
    kwargs: tuple[Kwarg, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra=list_map("name"),
        description="Keyword arguments of forward. Default: none.",
    )
    example_inputs: Callable_ | None = Field(
        default=None,
        description="Callable without arguments, importable in the image, that returns (args, kwargs), a tuple and a "
        "dict, for inputs that shapes cannot describe; written 'package.module:callable'. All sizes are fixed then. "
        "Default: inputs are drawn at random, as args and kwargs describe them.",
    )

    @model_validator(mode="after")
    def _lists_and_dicts(self) -> Self:
        for place, argument in (*enumerate(self.args), *((f"{a.name!r}", a) for a in self.kwargs)):
            if mistake := nested_mistake(argument):
                raise ValueError(f"bucket {self.name}, argument {place}: {mistake}")
        if mistake := dims_mistake((*self.args, *self.kwargs), declared={dim.name for dim in self.dims}):
            raise ValueError(f"bucket {self.name}: {mistake}")
        return self


class Module(ApiModel):
    """A part of the factory's result that is compiled."""

    name: Name = Field(description="Name of the module in artifacts, status and logs.")
    path: str = Field(
        default="",
        max_length=253,
        json_schema_extra=rules(
            rule(
                "self.matches('^([A-Za-z0-9_]+([.][A-Za-z0-9_]+)*)?$')",
                "must be a dotted attribute path such as 'vae.decoder' or 'layers.0', or empty: the result itself",
            )
        ),
        description="Where the module is in the factory's result, as a dotted attribute path. Default: empty, the "
        "result itself.",
    )
    regions: tuple[Region, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra=atomic_list(),
        description="Submodules that are compiled on their own, equal ones once: dotted paths below the module, with '*' "
        "for any name at one level, such as 'blocks.*'. Compiles a model of many equal blocks in a fraction of the time; "
        "what lies between them runs as it is. Default: none, the module is compiled as a whole.",
    )
    buckets: tuple[Bucket, ...] = Field(
        min_length=1,
        max_length=MAX_BUCKETS,
        json_schema_extra=list_map("name"),
        description="What the module is compiled for; 1 to 32.",
    )
