"""What is compiled and how: the factory, its modules, and the levers of torch.compile.

The levers' values are torch's own, in the API's spelling; which options torch has is known only where torch is, so the
compile Job checks their names.
"""

from typing import Final

from pydantic import ConfigDict, Field

from preheat_operator.api.base import ApiModel, list_map, rule, rules
from preheat_operator.api.enums import Autocast, ConstType, Fullgraph, Mode
from preheat_operator.api.fields import Callable_, Identifier
from preheat_operator.api.inputs import Module, constant_rules

MAX_MODULES: Final = 8


class FactoryArgument(ApiModel):
    """A keyword argument of the factory."""

    model_config = ConfigDict(json_schema_extra=constant_rules())

    name: Identifier = Field(description="Name of the factory's parameter.")
    type: ConstType = Field(
        default=ConstType.STRING,
        description="Python type of the value: Int, Float, String, Bool or None. Default: String.",
    )
    value: str | None = Field(default=None, max_length=1024, description="The value as text. Absent for type None.")


class Option(ApiModel):
    """An option of torch's Inductor."""

    name: str = Field(
        min_length=1,
        max_length=128,
        json_schema_extra=rules(
            rule(
                "self.matches('^[a-z_][a-z0-9_]*([.][a-z_][a-z0-9_]*)*$')",
                "must be a name in torch._inductor.config, such as 'epilogue_fusion' or 'triton.max_tiles'",
            )
        ),
        description="Name in torch._inductor.config.",
    )
    value: str = Field(max_length=256, description="The value as text; it is read as the type the option has.")


class Torch(ApiModel):
    """What is compiled: modules that a factory in the image makes."""

    factory: Callable_ = Field(
        description="Callable, importable in the image, that returns a torch.nn.Module or an object whose parts are "
        "modules; written 'package.module:callable'. It is called with `arguments`."
    )
    arguments: tuple[FactoryArgument, ...] = Field(
        default=(),
        max_length=32,
        json_schema_extra=list_map("name"),
        description="Keyword arguments of the factory. Default: none.",
    )
    modules: tuple[Module, ...] = Field(
        min_length=1,
        max_length=MAX_MODULES,
        json_schema_extra=list_map("name")
        | rules(
            rule(
                "self.all(a, self.exists_one(b, b.path == a.path))",
                "two modules have the same path: merge their buckets into one module",
            )
        ),
        description="Modules that are compiled; 1 to 8. A plain model is one entry with an empty path.",
    )
    mode: Mode = Field(
        default=Mode.DEFAULT,
        description="Mode of torch.compile: Default, ReduceOverhead (CUDA graphs), MaxAutotune (tries kernels; compiles "
        "longer), MaxAutotuneNoCudagraphs. Pods need not ask for it. Default: Default.",
    )
    fullgraph: Fullgraph = Field(
        default=Fullgraph.AUTO,
        description="Required: a module that does not compile as one graph is Failed, with the line that breaks it. "
        "Auto: it is compiled in pieces. Default: Auto.",
    )
    autocast: Autocast | None = Field(
        default=None,
        description="Dtype of torch.autocast that pods call the model under; artifacts answer no other calls. Default: "
        "none, autocast is off.",
    )
    options: tuple[Option, ...] = Field(
        default=(),
        max_length=32,
        json_schema_extra=list_map("name"),
        description="Options of torch._inductor for all modules. Default: none.",
    )
    autotune_timeout_seconds: int = Field(
        default=1200,
        ge=1,
        le=86400,
        description="Seconds, for each bucket, in which MaxAutotune may begin to tune kernels; what is not tuned by then "
        "has torch's own. Default: 1200.",
    )
