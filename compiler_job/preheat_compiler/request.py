"""Reads request.json, strictly.

Why it exists: the request crosses from the operator (one image) to the compile driver (the user's image), perhaps of
different versions. Whatever is not understood exactly is refused with the name of the field, before anything runs: a
field ignored here would be an artifact compiled for something else than what was asked.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from preheat_compiler.fields import Fields, RequestError
from preheat_runtime.manifest import canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT_VERSION = 1
CPU_ISAS = ("X86_64_V3", "X86_64_V4", "Native")
CONSTANT_TYPES = ("Int", "Float", "String", "Bool", "None")
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


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
class Bucket:
    """One set of inputs; `kwargs` are (name, spec) in the order of the request."""

    name: str
    dims: tuple[Dim, ...]
    args: tuple[TensorSpec | ConstSpec, ...]
    kwargs: tuple[tuple[str, TensorSpec | ConstSpec], ...]


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module of what the factory returns; `path` is dotted, empty for the object itself."""

    name: str
    path: str
    buckets: tuple[Bucket, ...]


@dataclass(frozen=True, kw_only=True)
class KeepIf:
    """Gates an artifact must meet; `max_error` None means the default for its dtype."""

    min_speedup: Decimal
    max_error: Decimal | None


@dataclass(frozen=True, kw_only=True)
class Request:
    """The whole request; `raw` is the JSON it was read from."""

    namespace: str
    name: str
    uid: str
    revision: str
    image: str
    hardware: str
    cpu_isa: str
    factory: str
    modules: tuple[Module, ...]
    keep_if: KeepIf
    targets: tuple[tuple[str, str], ...]
    timeout_seconds: int
    raw: Mapping[str, Any]

    def target(self, module: str, bucket: str) -> tuple[Module, Bucket]:
        """The module and bucket of one target; KeyError when the request has none of that name."""
        for candidate in self.modules:
            for each in candidate.buckets:
                if (candidate.name, each.name) == (module, bucket):
                    return candidate, each
        raise KeyError(f"{module}/{bucket}")


def read_request(path: Path) -> Request:
    """The request in `path`; raises RequestError with the name of the field that is wrong."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise RequestError(f"{path}: not JSON: {error}") from error
    return parse_request(raw)


def parse_request(raw: object) -> Request:
    """`raw` as a Request; raises RequestError naming the field."""
    top = Fields(raw, "request")
    version = top.integer("formatVersion")
    if version != FORMAT_VERSION:
        raise RequestError(
            f"request.formatVersion: {version} is not known here (only {FORMAT_VERSION}); "
            "the operator and the toolkit image must be of the same version"
        )
    torch = Fields(top.take("torch"), "request.torch")
    factory = torch.text("factory")
    if not _FACTORY.fullmatch(factory):
        raise RequestError(f"request.torch.factory: {factory!r} is not of the form package.module:callable")
    modules = torch.list("modules", _module)
    torch.end()
    gates = Fields(top.take("keepIf"), "request.keepIf")
    keep_if = KeepIf(
        min_speedup=gates.decimal("minSpeedup") or Decimal(0), max_error=gates.decimal("maxError", required=False)
    )
    gates.end()
    request = Request(
        namespace=top.text("namespace"),
        name=top.text("name"),
        uid=top.text("uid"),
        revision=top.text("revision"),
        image=top.text("image"),
        hardware=top.segment("hardware"),
        cpu_isa=top.one_of("cpuIsa", CPU_ISAS),
        factory=factory,
        modules=modules,
        keep_if=keep_if,
        targets=top.list("targets", _target),
        timeout_seconds=top.integer("timeoutSeconds", minimum=1),
        raw=raw if isinstance(raw, dict) else {},
    )
    top.end()
    _check_names(request)
    return request


def request_key(asked: Mapping[str, Any]) -> str:
    """What names a target's answer in the store's index: 64 hex digits over `asked_for`."""
    return hashlib.sha256(canonical_json(dict(asked))).hexdigest()


def asked_for(request: Request, module: str, bucket: str, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """Everything this target's answer depends on, as JSON: what the request asks for and where it is compiled."""
    spec = next(each for each in request.raw["torch"]["modules"] if each["name"] == module)
    return {
        "formatVersion": FORMAT_VERSION,
        "image": request.image,
        "factory": request.factory,
        "module": {"name": spec["name"], "path": spec["path"]},
        "bucket": next(each for each in spec["buckets"] if each["name"] == bucket),
        "keepIf": request.raw["keepIf"],
        "fingerprint": dict(fingerprint),
    }


def _check_names(request: Request) -> None:
    known = [(module.name, bucket.name) for module in request.modules for bucket in module.buckets]
    if len(set(known)) != len(known):
        raise RequestError("request.torch.modules: two targets have the same module and bucket name")
    for target in request.targets:
        if target not in known:
            raise RequestError(f"request.targets: {'/'.join(target)} is not among the modules and buckets")
    for module in request.modules:
        for bucket in module.buckets:
            names = {dim.name for dim in bucket.dims}
            specs = [*bucket.args, *(spec for _, spec in bucket.kwargs)]
            for spec in specs:
                for size in spec.shape if isinstance(spec, TensorSpec) else ():
                    if isinstance(size, str) and size not in names:
                        raise RequestError(
                            f"request.torch.modules: bucket {module.name}/{bucket.name} uses dim {size!r}, "
                            "which it does not define"
                        )


def _module(raw: object, where: str) -> Module:
    fields = Fields(raw, where)
    module = Module(
        name=fields.segment("name"), path=fields.text("path", empty=True), buckets=fields.list("buckets", _bucket)
    )
    fields.end()
    return module


def _bucket(raw: object, where: str) -> Bucket:
    fields = Fields(raw, where)
    bucket = Bucket(
        name=fields.segment("name"),
        dims=fields.list("dims", _dim, required=False),
        args=fields.list("args", _argument, required=False),
        kwargs=fields.list("kwargs", _keyword, required=False),
    )
    fields.end()
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


def _keyword(raw: object, where: str) -> tuple[str, TensorSpec | ConstSpec]:
    fields = Fields(raw, where)
    name = fields.text("name")
    return name, _argument(fields.rest(), where)


def _argument(raw: object, where: str) -> TensorSpec | ConstSpec:
    fields = Fields(raw, where)
    tensor, const = fields.take("tensor", required=False), fields.take("const", required=False)
    fields.end()
    if (tensor is None) == (const is None):
        raise RequestError(f"{where}: must have exactly one of tensor and const")
    return _tensor(tensor, f"{where}.tensor") if tensor is not None else _const(const, f"{where}.const")


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


def _const(raw: object, where: str) -> ConstSpec:
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


def _target(raw: object, where: str) -> tuple[str, str]:
    fields = Fields(raw, where)
    target = fields.segment("module"), fields.segment("bucket")
    fields.end()
    return target
