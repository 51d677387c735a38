"""The architectures: what each is called with, and what the compile driver must make of it on any CPU.

Why it exists: speed is a matter of the machine, all else is not: whether there is a package, why there is none, which
tensors a pod binds, how a fresh process answers. `keepIf.minSpeedup` is 0 but where said, so that everything is proved.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KEPT = frozenset({("Kept", "GatesMet")})
#: With a gate on speed, each is right.
BY_SPEED = frozenset(
    {("Kept", "Faster"), ("Kept", "NoDifference"), ("Rejected", "NoDifference"), ("Rejected", "SpeedupBelowMinimum")}
)


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """One model with its bucket.

    `tier` is what it is kept as; `says` are words of the message (why not a package, why Failed); `constants` is how
    many tensors a pod binds; `kind` is the type of an answer; `gates` puts it into the part that `make test` runs.
    """

    name: str
    factory: str
    says: tuple[str, ...] = ()
    tier: str | None = "package"
    verdicts: frozenset[tuple[str, str]] = KEPT
    constants: int | None = None
    kind: str = "Tensor"
    about: str = ""
    real_size: bool = False
    gates: bool = False
    path: str = ""
    dims: tuple[dict[str, Any], ...] = ()
    args: tuple[dict[str, Any], ...] = ()
    kwargs: tuple[dict[str, Any], ...] = ()
    min_speedup: str = "0"
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def bucket(self) -> dict[str, Any]:
        """The bucket as in a CompiledModel."""
        return {"name": "one", "dims": list(self.dims), "args": list(self.args), "kwargs": list(self.kwargs)}

    @property
    def sizes(self) -> list[dict[str, int]]:
        """Sizes that are asked for in a served process: both ends of every range, and a middle."""
        if not self.dims:
            return [{}]
        ends = [{dim["name"]: dim[end] for dim in self.dims} for end in ("min", "max")]
        return [*ends, {dim["name"]: (dim["min"] + dim["max"]) // 2 for dim in self.dims}]


def tensor(*shape: int | str, dtype: str = "float32", **bounds: str) -> dict[str, Any]:
    return {"tensor": {"shape": list(shape), "dtype": dtype, **bounds}}


def tokens(*shape: int | str, high: int = 2000) -> dict[str, Any]:
    return tensor(*shape, dtype="int64", low="0", high=str(high))


def named(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, **value}


NONE = {"const": {"type": "None"}}
IMAGE = (tensor(1, 3, 224, 224),)
ROW = (tensor(8, 256),)

ARCHITECTURES = (
    Architecture(name="resnet18", factory="vision:resnet18", args=IMAGE, constants=102, real_size=True),
    Architecture(
        name="mobilenet_v3_large", factory="vision:mobilenet_v3_large", args=IMAGE, constants=266, real_size=True,
        min_speedup="1.05", verdicts=BY_SPEED,
    ),
    Architecture(name="convnext_tiny", factory="vision:convnext_tiny", args=IMAGE, constants=182, real_size=True),
    Architecture(name="vit_b_16", factory="vision:vit_b_16", args=IMAGE, constants=152, real_size=True),
    Architecture(name="swin_t", factory="vision:swin_t", args=IMAGE, constants=185, real_size=True),
    Architecture(
        name="bert", factory="language:bert", dims=({"name": "length", "min": 8, "max": 128, "multipleOf": 1},),
        args=(tokens(1, "length", high=4000),),
        kwargs=(named("attention_mask", tokens(1, "length", high=2)), named("token_type_ids", NONE)),
        kind="BaseModelOutputWithPoolingAndCrossAttentions", constants=73,
    ),
    Architecture(name="llama", factory="language:llama", args=(tokens(1, 64),), kind="CausalLMOutputWithPast", constants=40),
    Architecture(
        name="llama_static_cache", factory="language:llama_static_cache", args=(tokens(1, 1),),
        kwargs=(named("cache_position", tensor(1, dtype="int64", low="0", high="64")),),
        tier="caches", says=("GraphMutates", "writes to the buffer cumulative_length_0", "executorch.py:"),
    ),
    Architecture(
        name="t5", factory="language:t5", args=(tokens(1, 32),),
        kwargs=(
            named("attention_mask", tokens(1, 32, high=2)), named("decoder_input_ids", tokens(1, 8)),
        ),
        kind="Seq2SeqModelOutput", constants=47, gates=True,
    ),
    Architecture(
        name="t5_without_decoder_inputs", factory="language:t5", args=(tokens(1, 32),), tier=None,
        verdicts=frozenset({("Failed", "InputsRefused")}), says=("exactly one of input_ids", "modeling_t5.py:"),
    ),
    Architecture(
        name="unet", factory="diffusion:unet",
        args=(tensor(1, 4, 16, 16), tensor(1, dtype="int64", low="0", high="1000"), tensor(1, 8, 64)),
        kind="UNet2DConditionOutput", constants=208,
    ),
    Architecture(name="vae_decoder", factory="diffusion:autoencoder", path="decoder", args=(tensor(1, 4, 16, 16),), constants=68),
    Architecture(name="crepe", factory="audio:crepe", args=(tensor(1, 1024),), constants=38, real_size=True, min_speedup="1.05", verdicts=BY_SPEED),
    # Eager is quicker on most CPUs, so without this row nothing would be shown of its package but that.
    Architecture(name="crepe_at_any_speed", factory="audio:crepe", args=(tensor(1, 1024),), constants=38, real_size=True),
    Architecture(name="lstm_gru", factory="audio:recurrent", args=(tensor(1, 50, 40),), kind="tuple", constants=22, gates=True),
    Architecture(
        name="small_weights", factory="awkward:small_weights", dims=({"name": "batch", "min": 2, "max": 8, "multipleOf": 1},),
        args=(tensor("batch", 3, 32, 32),), kwargs=(named("twice", {"const": {"type": "Bool", "value": "true"}}),),
        constants=9, kind="dict",
    ),
    Architecture(name="printing", factory="awkward:printing", args=ROW, tier="caches", says=("SideEffect", "awkward.py:")),
    Architecture(
        name="branching", factory="awkward:branching", args=ROW, kind="dict", tier="caches", says=("ExportFailed", "awkward.py:"),
        gates=True,
    ),
    Architecture(name="counting", factory="awkward:counting", args=ROW, constants=2),
    Architecture(name="custom_op", factory="awkward:custom", args=ROW, tier="caches", says=("CustomOperator", "architectures.clamp_sum")),
    Architecture(
        name="sampling", factory="awkward:sampling", args=ROW, tier=None, verdicts=frozenset({("Failed", "Nondeterministic")}),
        says=("random sampling",), gates=True,
    ),
)  # fmt: skip
BY_NAME = {each.name: each for each in ARCHITECTURES}
