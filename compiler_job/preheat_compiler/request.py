"""Reads request.json, strictly.

Why it exists: the request crosses from the operator (one image) to the compile driver (the user's image), perhaps of
different versions. Whatever is not understood exactly is refused with the name of the field, before anything runs: a
field ignored here would be an artifact compiled for something else than what was asked.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from preheat_compiler.bucket import Bucket, check_callable, read_bucket, read_const
from preheat_compiler.fields import Fields, RequestError
from preheat_runtime.manifest import canonical_json, is_digest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT_VERSION = 1
CPU_ISAS = ("X86_64_V3", "X86_64_V4", "Native")
MODES = ("Default", "ReduceOverhead", "MaxAutotune", "MaxAutotuneNoCudagraphs")


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module of what the factory returns; `path` is dotted, empty for the object itself.

    `regions` are patterns of dotted paths below it.
    """

    name: str
    path: str
    buckets: tuple[Bucket, ...]
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TorchSettings:
    """How torch compiles, in the API's words; `arguments` of the factory by name, `options` as text by name.

    `autotune_seconds` bounds when the last kernel may begin to be tuned.
    """

    mode: str = "Default"
    fullgraph: str = "Auto"
    autocast: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    arguments: tuple[tuple[str, bool | int | float | str | None], ...] = ()
    autotune_seconds: int = 1200


@dataclass(frozen=True, kw_only=True)
class KeepIf:
    """Gates an artifact must meet; `max_error` None means the default for its dtype, of the others: no such gate."""

    min_speedup: Decimal
    max_error: Decimal | None = None
    max_graph_breaks: int | None = None
    max_recompiles: int | None = None
    max_memory_growth: Decimal | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """The whole request; `raw` is the JSON it was read from.

    `base` is the manifest of a ready revision of the same code, None where there is none.
    """

    namespace: str
    name: str
    uid: str
    revision: str
    image: str
    hardware: str
    cpu_isa: str
    factory: str
    settings: TorchSettings
    modules: tuple[Module, ...]
    keep_if: KeepIf
    targets: tuple[tuple[str, str], ...]
    timeout_seconds: int
    raw: Mapping[str, Any]
    base: str | None = None

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
    check_callable("request.torch.factory", factory)
    modules = torch.list("modules", _module)
    settings = _settings(torch)
    torch.end()
    gates = Fields(top.take("keepIf"), "request.keepIf")
    keep_if = KeepIf(
        min_speedup=gates.decimal("minSpeedup") or Decimal(0),
        max_error=gates.decimal("maxError", required=False),
        max_graph_breaks=gates.optional_integer("maxGraphBreaks", minimum=0),
        max_recompiles=gates.optional_integer("maxRecompiles", minimum=0),
        max_memory_growth=gates.decimal("maxMemoryGrowth", required=False),
    )
    if keep_if.max_memory_growth is not None and keep_if.max_memory_growth <= 0:
        raise RequestError("request.keepIf.maxMemoryGrowth: must be greater than 0; leave it out for no such gate")
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
        settings=settings,
        modules=modules,
        keep_if=keep_if,
        targets=top.list("targets", _target),
        timeout_seconds=top.integer("timeoutSeconds", minimum=1),
        raw=raw if isinstance(raw, dict) else {},
        base=_base(top.take("base", required=False)),
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
        "torch": {name: value for name, value in request.raw["torch"].items() if name != "modules"},
        "module": {name: value for name, value in spec.items() if name != "buckets"},
        "bucket": next(each for each in spec["buckets"] if each["name"] == bucket),
        "keepIf": request.raw["keepIf"],
        "fingerprint": dict(fingerprint),
    }


def _base(raw: object) -> str | None:
    if raw is not None and not (isinstance(raw, str) and is_digest(raw)):
        raise RequestError("request.base: must be the digest of a manifest, sha256:<64 hex digits>")
    return raw


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
            for spec in bucket.tensors():
                for size in spec.shape:
                    if isinstance(size, str) and size not in names:
                        raise RequestError(
                            f"request.torch.modules: bucket {module.name}/{bucket.name} uses dim {size!r}, "
                            "which it does not define"
                        )


def _settings(torch: Fields) -> TorchSettings:
    """The settings of `torch`, each with its default: a request written by hand need not have them."""
    return TorchSettings(
        mode=torch.one_of("mode", MODES, default="Default"),
        fullgraph=torch.one_of("fullgraph", ("Auto", "Required"), default="Auto"),
        autocast=torch.one_of("autocast", ("bfloat16", "float16"), default="") or None,
        options=torch.list("options", _option, required=False),
        arguments=torch.list("arguments", _factory_argument, required=False),
        autotune_seconds=torch.integer("autotuneTimeoutSeconds", minimum=1, default=1200),
    )


def _option(raw: object, where: str) -> tuple[str, str]:
    fields = Fields(raw, where)
    option = fields.text("name"), fields.text("value", empty=True)
    fields.end()
    return option


def _factory_argument(raw: object, where: str) -> tuple[str, bool | int | float | str | None]:
    fields = Fields(raw, where)
    return fields.text("name"), read_const({"type": "String", **fields.rest()}, where).value


def _module(raw: object, where: str) -> Module:
    fields = Fields(raw, where)
    module = Module(
        name=fields.segment("name"),
        path=fields.text("path", empty=True),
        buckets=fields.list("buckets", read_bucket),
        regions=fields.list("regions", _pattern, required=False),
    )
    fields.end()
    return module


def _pattern(raw: object, where: str) -> str:
    if not isinstance(raw, str) or not raw:
        raise RequestError(f"{where}: must be text")
    return raw


def _target(raw: object, where: str) -> tuple[str, str]:
    fields = Fields(raw, where)
    target = fields.segment("module"), fields.segment("bucket")
    fields.end()
    return target
