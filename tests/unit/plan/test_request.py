"""What the controller asks for is what the compile driver reads: nothing of the spec is lost or refused on the way."""

from __future__ import annotations

import json
from decimal import Decimal

from preheat_compiler.bucket import ConstSpec, DictSpec, ListSpec, TensorSpec
from preheat_compiler.request import KeepIf, TorchSettings, parse_request
from unit.plan.simulation import Simulation, spec

TENSOR = {"tensor": {"shape": ["n", 4], "dtype": "int64", "low": 0, "high": 9}}
LEVERS = {
    "arguments": [{"name": "width", "type": "Int", "value": "32"}, {"name": "kind", "value": "wide"}],
    "mode": "MaxAutotune",
    "fullgraph": "Required",
    "autocast": "bfloat16",
    "options": [{"name": "epilogue_fusion", "value": "false"}],
    "autotuneTimeoutSeconds": 90,
}
BUCKETS = [
    {
        "name": "nested",
        "dims": [{"name": "n", "min": 2, "max": 8, "multipleOf": 2}],
        "args": [TENSOR, {"list": [{"dict": [{"key": "k", **TENSOR}]}, {"const": {"type": "None"}}]}],
        "kwargs": [{"name": "flag", "const": {"type": "Bool", "value": "true"}}],
    },
    {"name": "made", "exampleInputs": "model:inputs"},
]
KEEP_IF = {"minSpeedup": "1.1", "maxError": "1e-2", "maxGraphBreaks": 0, "maxRecompiles": 2, "maxMemoryGrowth": "1.5"}


def asked(body: dict[str, object]) -> str:
    """The text of PREHEAT_REQUEST in the Job that this spec leads to."""
    world = Simulation(body=body)
    world.settle()
    pod = next(iter(world.jobs.values()))["spec"]["template"]["spec"]
    toolkit = next(c for c in pod["initContainers"] if c["name"] == "toolkit")
    text: str = next(e["value"] for e in toolkit["env"] if e["name"] == "PREHEAT_REQUEST")
    return text


def test_every_lever_and_input_arrives_as_it_was_written() -> None:
    body = spec(keepIf=KEEP_IF)
    body["torch"] = {
        "factory": "model:load",
        "modules": [{"name": "main", "path": "net", "regions": ["blocks.*"], "buckets": BUCKETS}],
        **LEVERS,
    }
    request = parse_request(json.loads(asked(body)))
    assert request.settings == TorchSettings(
        mode="MaxAutotune", fullgraph="Required", autocast="bfloat16", options=(("epilogue_fusion", "false"),),
        arguments=(("width", 32), ("kind", "wide")), autotune_seconds=90,
    )  # fmt: skip
    assert request.keep_if == KeepIf(
        min_speedup=Decimal("1.1"), max_error=Decimal("1e-2"), max_graph_breaks=0, max_recompiles=2,
        max_memory_growth=Decimal("1.5"),
    )  # fmt: skip
    module, nested = request.target("main", "nested")
    assert (module.path, module.regions) == ("net", ("blocks.*",))
    tensor = TensorSpec(shape=("n", 4), dtype="int64", low=Decimal(0), high=Decimal(9))
    inner = ListSpec(items=(DictSpec(items=(("k", tensor),)), ConstSpec(value=None)))
    assert nested.args == (tensor, inner)
    assert nested.kwargs == (("flag", ConstSpec(value=True)),)
    assert request.target("main", "made")[1].example_inputs == "model:inputs"


def test_what_is_left_out_is_as_by_default() -> None:
    request = parse_request(json.loads(asked(spec())))
    assert request.settings == TorchSettings()
    assert request.keep_if == KeepIf(min_speedup=Decimal("1.05"))
    assert all(module.regions == () for module in request.modules)
