"""Mistakes people make in a CompiledModel, and words of the answer: the field, and what to do about it.

One table for the API server and for `preheat compile`, which must not come to answer differently.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MODULE = "spec.torch.modules.0"
BUCKET = f"{MODULE}.buckets.0"
TENSOR = f"{BUCKET}.args.0.tensor"
REMOVED = object()
TEMPLATE = {"spec": {"containers": [{"name": "server", "image": "r/x:1"}]}}


@dataclass(frozen=True)
class Mistake:
    """`change`: values by dotted path in a right object; `says`: words of the answer, the field and the remedy."""

    name: str
    change: dict[str, Any]
    says: tuple[str, ...] = field(default=())


MISTAKES = (
    Mistake("no workload", {"spec.workloadRef": REMOVED}, ("exactly one of workloadRef", "template")),
    Mistake("workload and template", {"spec.template": TEMPLATE}, ("exactly one of workloadRef", "template")),
    Mistake(
        "kind of workload",
        {"spec.workloadRef.kind": "Deploymnt"},
        ("spec.workloadRef", "Deployment", "StatefulSet"),
    ),
    Mistake("version of workload", {"spec.workloadRef.apiVersion": "v1"}, ("spec.workloadRef", "apps/v1")),
    Mistake("workload without name", {"spec.workloadRef.name": REMOVED}, ("spec.workloadRef.name", "Required")),
    Mistake(
        "template without containers",
        {"spec.workloadRef": REMOVED, "spec.template": {"spec": {}}},
        ("spec.template.spec.containers", "Required"),
    ),
    Mistake(
        "an image that YAML reads as a boolean",
        {"spec.workloadRef": REMOVED, "spec.template": {"spec": {"containers": [{"name": "x", "image": True}]}}},
        ("spec.template.spec.containers[0].image", "string"),
    ),
    Mistake(
        "weights twice", {"spec.weights": {"revision": "7", "s3": {"bucket": "abc"}}}, ("spec.weights", "exactly one")
    ),
    Mistake("no weights", {"spec.weights": {}}, ("spec.weights", "exactly one of revision, s3 and huggingFace")),
    Mistake("weights with a blank", {"spec.weights": {"revision": "a b"}}, ("spec.weights", "without blanks")),
    Mistake("weights by a number", {"spec.weights": {"revision": 7}}, ("spec.weights.revision", "string")),
    Mistake(
        "an endpoint without a scheme",
        {"spec.weights": {"s3": {"bucket": "abc", "endpoint": "s3.example.org"}}},
        ("spec.weights", "s3.endpoint", "https://"),
    ),
    Mistake(
        "a repository by its URL",
        {"spec.weights": {"huggingFace": {"repository": "https://huggingface.co/a/b"}}},
        ("spec.weights", "huggingFace.repository", "owner/name"),
    ),
    Mistake(
        "looking every second",
        {"spec.weights": {"s3": {"bucket": "abc"}, "checkIntervalSeconds": 1}},
        ("spec.weights.checkIntervalSeconds", "60"),
    ),
    Mistake("no torch", {"spec.torch": REMOVED}, ("spec.torch", "Required")),
    Mistake(
        "factory with a dot", {"spec.torch.factory": "vision.load"}, ("spec.torch.factory", "package.module:callable")
    ),
    Mistake(
        "factory called", {"spec.torch.factory": "vision:load()"}, ("spec.torch.factory", "package.module:callable")
    ),
    Mistake(
        "a wait by a word of serving",
        {"spec.rollout": {"whenMissing": "Compile"}},
        ("spec.rollout.whenMissing", "Auto", "Cold", "Wait", "Fail"),
    ),
    Mistake(
        "a wait in minutes",
        {"spec.rollout": {"waitTimeoutSeconds": "8m"}},
        ("spec.rollout.waitTimeoutSeconds", "integer"),
    ),
    Mistake(
        "a wait without an end", {"spec.rollout": {"waitTimeoutSeconds": 0}}, ("spec.rollout.waitTimeoutSeconds", "1")
    ),
    Mistake(
        "a wait of two days",
        {"spec.rollout": {"waitTimeoutSeconds": 172800}},
        ("spec.rollout.waitTimeoutSeconds", "86400"),
    ),
    Mistake("a restart as a boolean", {"spec.rollout": {"restart": True}}, ("spec.rollout.restart", "string")),
    Mistake(
        "a restart that is always",
        {"spec.rollout": {"restart": "Always"}},
        ("spec.rollout.restart", "Never", "Rollout"),
    ),
    Mistake(
        "a restart without a workload",
        {"spec.workloadRef": REMOVED, "spec.template": TEMPLATE, "spec.rollout": {"restart": "Rollout"}},
        ("restart: Rollout needs a workloadRef", "Never"),
    ),
    Mistake(
        "serving with a word of another field",
        {"spec.serving": {"onMiss": "Cold"}},
        ("spec.serving.onMiss", "Compile", "Eager", "Fail"),
    ),
    Mistake(
        "a package that is rejected fails",
        {"spec.serving": {"onReject": "Fail"}},
        ("spec.serving.onReject", "Eager", "Compile"),
    ),
    Mistake(
        "verify that YAML reads as a boolean", {"spec.serving": {"verify": True}}, ("spec.serving.verify", "string")
    ),
    Mistake("no modules", {"spec.torch.modules": []}, ("spec.torch.modules", "at least 1")),
    Mistake("module path", {f"{MODULE}.path": "vae..decoder"}, ("modules[0].path", "vae.decoder", "dotted")),
    Mistake("module name", {f"{MODULE}.name": "Main Model"}, ("modules[0].name", "lower-case")),
    Mistake("module without buckets", {f"{MODULE}.buckets": []}, ("modules[0].buckets", "at least 1")),
    Mistake(
        "duplicate module",
        {"spec.torch.modules": [{"name": "a", "buckets": [{"name": "b", "args": [{"const": {"type": "None"}}]}]}] * 2},
        ("spec.torch.modules[1]", "Duplicate"),
    ),
    Mistake(
        "two modules of one path",
        {
            "spec.torch.modules": [
                {"name": n, "path": "unet", "buckets": [{"name": "b", "args": [{"const": {"type": "None"}}]}]}
                for n in "ab"
            ]
        },
        ("spec.torch.modules", "same path", "merge"),
    ),
    Mistake(
        "duplicate bucket",
        {f"{MODULE}.buckets": [{"name": "b", "args": [{"const": {"type": "None"}}]}] * 2},
        ("buckets[1]", "Duplicate"),
    ),
    Mistake(
        "bucket without inputs",
        {f"{BUCKET}.args": REMOVED, f"{BUCKET}.kwargs": REMOVED, f"{BUCKET}.dims": REMOVED},
        ("buckets[0]", "args and kwargs", "at least one"),
    ),
    Mistake(
        "dim not declared",
        {f"{TENSOR}.shape": ["bach", 3]},
        ("buckets[0]", "args", "not declared", "add it to the dims"),
    ),
    Mistake(
        "dim not declared in kwargs",
        {f"{BUCKET}.kwargs.0.tensor.shape": ["n", 3]},
        ("buckets[0]", "kwargs", "not declared", "add it to the dims"),
    ),
    Mistake(
        "dim not used",
        {f"{BUCKET}.dims": [{"name": "batch", "min": 2, "max": 4}, {"name": "seq", "min": 2, "max": 4}]},
        ("buckets[0]", "dims", "use it, or remove it"),
    ),
    Mistake("dim range", {f"{BUCKET}.dims.0.min": 64}, ("dims[0]", "min must not be above max")),
    Mistake("dim multiple", {f"{BUCKET}.dims.0.multipleOf": 3}, ("dims[0]", "multiples of multipleOf")),
    Mistake("dim of zero", {f"{BUCKET}.dims.0.min": 0}, ("dims[0].min", "greater than or equal to 1")),
    Mistake("dim name", {f"{BUCKET}.dims.0.name": "batch-size"}, ("dims[0].name", "Python identifier")),
    Mistake(
        "duplicate dim",
        {f"{BUCKET}.dims": [{"name": "batch", "min": 2, "max": 4}] * 2},
        ("dims[1]", "Duplicate"),
    ),
    Mistake("size of zero", {f"{TENSOR}.shape": ["batch", 0]}, ("tensor.shape", "at least 1")),
    Mistake("shape too long", {f"{TENSOR}.shape": [1] * 9}, ("tensor.shape", "at most 8")),
    Mistake("dtype", {f"{TENSOR}.dtype": "float"}, ("tensor.dtype", "float32")),
    Mistake("low without high", {f"{TENSOR}.low": 1}, ("args[0].tensor", "set both")),
    Mistake("low above high", {f"{TENSOR}.low": 2, f"{TENSOR}.high": 2}, ("args[0].tensor", "low must be below high")),
    *(
        Mistake(
            f"bounds that {dtype} cannot hold: {low} to {high}",
            {f"{TENSOR}.dtype": dtype, f"{TENSOR}.low": low, f"{TENSOR}.high": high},
            ("args[0].tensor", "low and high must be within what the dtype can hold", f"{dtype} {least} to {most}"),
        )
        for dtype, low, high, least, most in (
            ("uint8", -5, 300, 0, 256),
            ("uint8", 0, 257, 0, 256),
            ("int8", -129, 0, -128, 128),
            ("int16", 0, 32769, -32768, 32768),
            ("float16", 0, 65505, -65504, 65504),
        )
    ),
    Mistake(
        "bool with bounds",
        {f"{TENSOR}.dtype": "bool", f"{TENSOR}.low": 0, f"{TENSOR}.high": 2},
        ("args[0].tensor", "dtype bool", "remove"),
    ),
    Mistake(
        "tensor and const",
        {f"{BUCKET}.args.0.const": {"type": "Int", "value": "1"}},
        ("args[0]", "exactly one of tensor, const, list and dict"),
    ),
    Mistake(
        "neither tensor nor const", {f"{BUCKET}.args.1": {}}, ("args[1]", "exactly one of tensor, const, list and dict")
    ),
    Mistake(
        "whole number", {f"{BUCKET}.args.1": {"const": {"type": "Int", "value": "1.5"}}}, ("const", "whole number")
    ),
    Mistake("decimal", {f"{BUCKET}.args.1": {"const": {"type": "Float", "value": "1,5"}}}, ("const", "decimal", "0.5")),
    Mistake("bool", {f"{BUCKET}.args.1": {"const": {"type": "Bool", "value": "yes"}}}, ("const", '"true" or "false"')),
    Mistake("const without value", {f"{BUCKET}.args.1": {"const": {"type": "String"}}}, ("const", "value: required")),
    Mistake(
        "None with value",
        {f"{BUCKET}.args.1": {"const": {"type": "None", "value": "0"}}},
        ("const", "None which has none"),
    ),
    Mistake(
        "number for a string", {f"{BUCKET}.args.1": {"const": {"type": "Int", "value": 3}}}, ("const.value", "string")
    ),
    Mistake("keyword name", {f"{BUCKET}.kwargs.0.name": "my-mask"}, ("kwargs[0].name", "Python identifier")),
    Mistake("no hardware", {"spec.hardware": []}, ("spec.hardware", "at least 1")),
    Mistake(
        "duplicate hardware", {"spec.hardware": [{"name": "cpu"}, {"name": "cpu"}]}, ("spec.hardware[1]", "Duplicate")
    ),
    Mistake("list and tensor", {f"{BUCKET}.args.0.list": []}, ("args[0]", "exactly one of")),
    Mistake("region", {"spec.torch.modules.0.regions": ["blocks/*"]}, ("regions[0]", "blocks.*")),
    Mistake("mode", {"spec.torch.mode": "max-autotune"}, ("spec.torch.mode", "MaxAutotune")),
    Mistake("fullgraph as a boolean", {"spec.torch.fullgraph": True}, ("spec.torch.fullgraph", "Required")),
    Mistake("autocast", {"spec.torch.autocast": "int8"}, ("spec.torch.autocast", "bfloat16")),
    Mistake(
        "option's name",
        {"spec.torch.options": [{"name": "Epilogue-Fusion", "value": "true"}]},
        ("spec.torch.options[0].name", "torch._inductor.config"),
    ),
    Mistake("option without value", {"spec.torch.options": [{"name": "debug"}]}, ("options[0].value", "Required")),
    Mistake(
        "option twice",
        {"spec.torch.options": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]},
        ("spec.torch.options[1]", "Duplicate"),
    ),
    Mistake(
        "factory argument",
        {"spec.torch.arguments": [{"name": "size", "type": "Int", "value": "large"}]},
        ("spec.torch.arguments[0]", "whole number"),
    ),
    Mistake("example inputs", {f"{BUCKET}.exampleInputs": "inputs"}, ("exampleInputs", "package.module:callable")),
    Mistake(
        "example inputs and args",
        {f"{BUCKET}.exampleInputs": "model:inputs"},
        ("exampleInputs", "remove one or the other"),
    ),
    Mistake("graph breaks", {"spec.keepIf": {"maxGraphBreaks": -1}}, ("spec.keepIf.maxGraphBreaks", "greater than")),
    Mistake("recompiles", {"spec.keepIf": {"maxRecompiles": "0"}}, ("spec.keepIf.maxRecompiles", "integer")),
    Mistake("cpuIsa", {"spec.hardware.0.cpuIsa": "avx512"}, ("spec.hardware[0].cpuIsa", "X86_64_V4")),
    Mistake("speedup as a number", {"spec.keepIf": {"minSpeedup": 1.05}}, ("spec.keepIf.minSpeedup", "string")),
    Mistake(
        "speedup in per cent", {"spec.keepIf": {"minSpeedup": "5%"}}, ("spec.keepIf.minSpeedup", "decimal", "1.05")
    ),
    Mistake("negative error", {"spec.keepIf": {"maxError": "-1"}}, ("spec.keepIf.maxError", "decimal", "1e-3")),
    Mistake("memory as a number", {"spec.keepIf": {"maxMemoryGrowth": 1.2}}, ("spec.keepIf.maxMemoryGrowth", "string")),
    Mistake(
        "memory in per cent",
        {"spec.keepIf": {"maxMemoryGrowth": "120%"}},
        ("spec.keepIf.maxMemoryGrowth", "decimal", "1.2"),
    ),
    Mistake(
        "no memory at all",
        {"spec.keepIf": {"maxMemoryGrowth": "0.0"}},
        ("spec.keepIf.maxMemoryGrowth", "greater than 0", "leave it out"),
    ),
    Mistake(
        "timeout as a duration", {"spec.compile": {"timeoutSeconds": "1h"}}, ("spec.compile.timeoutSeconds", "integer")
    ),
    Mistake("timeout too short", {"spec.compile": {"timeoutSeconds": 5}}, ("spec.compile.timeoutSeconds", "60")),
    Mistake("suspend as a boolean", {"spec.suspend": True}, ("spec.suspend", "string")),
    Mistake("history of none", {"spec.revisionHistoryLimit": 0}, ("spec.revisionHistoryLimit", "1")),
    Mistake(
        "too many targets",
        {
            f"{MODULE}.buckets": [{"name": f"b{n}", "args": [{"const": {"type": "None"}}]} for n in range(32)],
            "spec.hardware": [{"name": f"h{n}"} for n in range(5)],
        },
        ("buckets", "hardware", "128", "remove some"),
    ),
    Mistake("field of another version", {"spec.mode": "MaxAutotune"}, ("unknown field", "spec.mode")),
    Mistake("long name", {"metadata.name": "v" * 53}, ("metadata.name", "52 characters")),
)


def changed(document: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    for path, value in change.items():
        *parents, last = path.split(".")
        node: Any = document
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node[part]
        if value is REMOVED:
            del node[last]
        elif isinstance(node, list):
            node[int(last) : int(last) + 1] = [value]
        else:
            node[last] = value
    return document
