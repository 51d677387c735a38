"""The contract of one target, `target.json`: which module it is for, which calls it answers, and how to run it.

Why it exists: the compile Job writes it and the pod reads it, perhaps months apart and from different releases; both do
it with this module and nothing else parses the file. It holds names, shapes and hashes, never a weight.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

from .levers import Levers
from .records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

FORMAT_VERSION = 1
TARGET_FILE = "target.json"
LIBRARY_FILE = "model.so"
#: Fields that are not written where they are None.
_SELDOM = frozenset({"stride", "same_as", "subclass", "asked"})


class TargetUnreadable(Exception):
    """`target.json` is not one this version can read; the message says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class DimRange:
    """A named size that may vary: `minimum <= size <= maximum`, a multiple of `multiple_of`."""

    name: str
    minimum: int
    maximum: int
    multiple_of: int = 1

    def allows(self, size: int) -> bool:
        """Whether a tensor may have this size there."""
        return self.minimum <= size <= self.maximum and size % self.multiple_of == 0


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """A tensor a call passes, of this dtype and device; a size is a number or the name of a dimension.

    `order` is how it lies in memory: torch's name of a memory format, contiguous_format or channels_last. `stride` has,
    for each dimension of size one, the stride it was compiled with, where that makes torch see another format than
    `order`; None for the other dimensions, and where none does. `same_as` is the first place of the same tensor, given
    again here. `subclass` is its class where that is not torch.Tensor.
    """

    parameter: str
    shape: tuple[int | str, ...]
    dtype: str
    device: str
    order: str = "contiguous_format"
    stride: tuple[int | None, ...] | None = None
    same_as: str | None = None
    subclass: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConstSpec:
    """A value baked into the code: only a call that passes the same value of the same type is answered.

    `type` is NoneType, bool, int, float or str, and `value` its repr; or `default`: the parameter's own default.
    """

    parameter: str
    type: str
    value: str


@dataclass(frozen=True, kw_only=True)
class TreeSpec:
    """A list, tuple or dict of arguments: of this very type, with as many items, or these keys in this order."""

    parameter: str
    type: str
    keys: tuple[str | int, ...]
    items: tuple[ArgumentSpec, ...]


ArgumentSpec = TensorSpec | ConstSpec | TreeSpec


@dataclass(frozen=True, kw_only=True)
class CallForm:
    """How many arguments are given by position, and which by name."""

    positional: int
    named: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.positional} by position" + "".join(f", {name} by name" for name in self.named)


@dataclass(frozen=True, kw_only=True)
class CallSpec:
    """The calls a target answers. `arguments` are in the order of the module's signature.

    `form` is of a module whose `forward` is wrapped, else None: the wrapper gets the arguments before the signature's
    order makes all forms one, and may look at what is given by name, or at all.
    """

    arguments: tuple[ArgumentSpec, ...]
    dims: tuple[DimRange, ...] = ()
    form: CallForm | None = None

    @property
    def tensors(self) -> list[TensorSpec]:
        """All tensors, in the order in which the code takes them."""
        return [leaf for entry in self.arguments for leaf in leaves(entry) if isinstance(leaf, TensorSpec)]

    @property
    def dim(self) -> dict[str, DimRange]:
        """Ranges by name."""
        return {entry.name: entry for entry in self.dims}


@dataclass(frozen=True, kw_only=True)
class TensorIdentity:
    """A parameter or buffer: everything about it but its content. `tied_to` is the first path of the same tensor."""

    kind: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    tied_to: str | None = None


@dataclass(frozen=True, kw_only=True)
class ModuleIdentity:
    """Class name, digest of the class's code and of all it refers to, digest of the instance's attributes."""

    class_name: str
    code: str
    attributes: str


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a module is: its tree, code, attributes and tensors, by dotted path; `patches` is what changed torch itself.

    `imports` is what functions import when they run and had been imported, by `imports.key`; more than an artifact has is no
    difference, as running the code in the compile Job did not import it. `order` is that of the weights, where code may go
    through them: what is put around a layer and taken away again leaves another behind.
    `unknown` names what could not be compared: with any of it a package must not be built. `asked` is what torch answered
    to what code asks of the process and its machine (see `questions`), None where it asks nothing.
    """

    modules: Mapping[str, ModuleIdentity]
    tensors: Mapping[str, TensorIdentity]
    patches: str
    imports: Mapping[str, str] = field(default_factory=dict)
    order: str | None = None
    unknown: tuple[str, ...] = ()
    asked: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class PackageSpec:
    """How to run the code: constants to bind by path, and how its flat outputs become the module's output.

    `constants` pairs the name inside the library with the module's path. `outputs` gives, for each leaf of `out_spec`
    (torch's serialised tree), the index of the library's output, or a ConstSpec.
    """

    library: str
    library_outputs: int
    constants: tuple[tuple[str, str], ...]
    out_spec: str
    outputs: tuple[int | ConstSpec, ...]


@dataclass(frozen=True, kw_only=True)
class RegionSpec:
    """Code for submodules: the same for each of `paths`, with the constants of each. `call` is what they are called with."""

    paths: tuple[str, ...]
    call: CallSpec
    package: PackageSpec


@dataclass(frozen=True, kw_only=True)
class Target:
    """The whole of `target.json`. `package` is None for a Rejected target and for the caches tier.

    With `regions` there is code only for these submodules, and the rest of the module runs as it is. `max_error` is the
    error it was proved with, a decimal string; None, as in contracts of before it was written: by default for its dtypes.
    """

    identity: Identity
    call: CallSpec
    package: PackageSpec | None = None
    levers: Levers = field(default_factory=Levers)
    regions: tuple[RegionSpec, ...] = ()
    max_error: str | None = None

    @property
    def allowed_error(self) -> float:
        """How far its answers may be from eager's: see `compare.Difference`."""
        if self.max_error is not None:
            return float(self.max_error)
        from .compare import default_max_error

        weights = (tensor.dtype for tensor in self.identity.tensors.values())
        inputs = (tensor.dtype for tensor in self.call.tensors)
        return float(default_max_error([*weights, *inputs, self.levers.autocast or ""]))

    def write(self, path: Path) -> None:
        """Write canonical JSON: keys sorted, no blanks, one newline at the end."""
        content = asdict(self, dict_factory=_without_absent)
        text = json.dumps({"formatVersion": FORMAT_VERSION, **content}, sort_keys=True, separators=(",", ":"))
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Target:
        """Raises TargetUnreadable."""
        try:
            data = json.loads(path.read_bytes())
            if data["formatVersion"] != FORMAT_VERSION:
                raise TargetUnreadable(f"{path.name} has formatVersion {data['formatVersion']!r}, not {FORMAT_VERSION}")
            package = data["package"]
            return cls(
                identity=_identity(data["identity"]),
                call=_call(data["call"]),
                package=None if package is None else _package(package),
                levers=Levers.from_json(data["levers"]),
                regions=tuple(_region(entry) for entry in data["regions"]),
                max_error=_decimal(data.get("max_error")),
            )
        except TargetUnreadable:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise TargetUnreadable(f"{path.name} cannot be read: {error!r}") from error


def _without_absent(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without what only few contracts have: a release that does not know of it reads all others, and no such one."""
    return {name: value for name, value in fields if value is not None or name not in _SELDOM}


def _identity(data: Mapping[str, Any]) -> Identity:
    return Identity(
        modules={path: ModuleIdentity(**entry) for path, entry in data["modules"].items()},
        tensors={
            path: TensorIdentity(**{**entry, "shape": tuple(entry["shape"]), "stride": tuple(entry["stride"])})
            for path, entry in data["tensors"].items()
        },
        patches=data["patches"],
        imports={str(name): str(digest) for name, digest in data.get("imports", {}).items()},
        order=data.get("order"),
        unknown=tuple(data["unknown"]),
        asked=None if data.get("asked") is None else {str(name): str(words) for name, words in data["asked"].items()},
    )


def _call(data: Mapping[str, Any]) -> CallSpec:
    return CallSpec(
        arguments=tuple(_argument(entry) for entry in data["arguments"]),
        dims=tuple(DimRange(**entry) for entry in data["dims"]),
        form=_form(data.get("form")),
    )


def _form(data: Mapping[str, Any] | None) -> CallForm | None:
    """None also in contracts of before it was written."""
    return None if data is None else CallForm(positional=data["positional"], named=tuple(data["named"]))


def _decimal(text: str | None) -> str | None:
    """The text when it is a number that bounds something; ValueError otherwise."""
    if text is not None and not (isinstance(text, str) and float(text) >= 0):
        raise ValueError(f"max_error is {text!r}")
    return text


def _region(data: Mapping[str, Any]) -> RegionSpec:
    return RegionSpec(paths=tuple(data["paths"]), call=_call(data["call"]), package=_package(data["package"]))


def tree_type(entry: TreeSpec) -> Callable[..., Any]:
    """The Python type of a list, tuple or dict of arguments; KeyError for another word."""
    return {"list": list, "tuple": tuple, "dict": dict}[entry.type]


def leaves(entry: ArgumentSpec) -> list[TensorSpec | ConstSpec]:
    """The tensors and constants of an argument, in order."""
    if isinstance(entry, TreeSpec):
        return [leaf for item in entry.items for leaf in leaves(item)]
    return [entry]


def _argument(data: Mapping[str, Any]) -> ArgumentSpec:
    if "shape" in data:
        stride = data.get("stride")
        return TensorSpec(
            **{**data, "shape": tuple(data["shape"]), "stride": None if stride is None else tuple(stride)}
        )
    if "items" in data:
        items = tuple(_argument(item) for item in data["items"])
        return TreeSpec(**{**data, "keys": tuple(data["keys"]), "items": items})
    return ConstSpec(**data)


def _package(data: Mapping[str, Any]) -> PackageSpec:
    return PackageSpec(
        library=data["library"],
        library_outputs=data["library_outputs"],
        constants=tuple((name, path) for name, path in data["constants"]),
        out_spec=data["out_spec"],
        outputs=tuple(entry if isinstance(entry, int) else ConstSpec(**entry) for entry in data["outputs"]),
    )


def const_spec(parameter: str, value: object) -> ConstSpec | None:
    """The spec of a constant, or None when `value` is not one of the types that can be compared between processes."""
    if value is None or type(value) in (bool, int, float, str):
        return ConstSpec(parameter=parameter, type=type(value).__name__, value=repr(value))
    return None


def const_value(spec: ConstSpec) -> object:
    """The constant itself; only for the five types of `const_spec`."""
    if spec.type == "NoneType":
        return None
    if spec.type == "bool":
        return spec.value == "True"
    if spec.type == "int":
        return int(spec.value)
    if spec.type == "float":
        return float(spec.value)
    if spec.type == "str":
        import ast

        text: object = ast.literal_eval(spec.value)
        return text
    raise TargetUnreadable(f"unknown constant type {spec.type!r}")
