"""Asks one served model and its eager twin the same things, and says how far apart they are. Run as a pod would be:

    python -m architectures.answer FACTORY PATH CALL SIZES

Why it exists: the driver's own figures rest on the driver's own inputs and comparison, so what a pod answers is computed
once more without them: other inputs, another instance of the model, another way through the output. Prints one JSON line.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


COMPILER = ("torch._dynamo", "torch._inductor", "torch._inductor.compile_fx")


def main(factory: str, path: str, call: str, sizes: str) -> None:
    """`call` and each of `sizes` are JSON: a bucket's args and kwargs, and sizes by dim."""
    bucket = json.loads(call)
    twin, other = module(factory, path), module(factory, path)
    # Users' libraries may import parts of the compiler themselves (torchvision does); that is not the answer's doing.
    before = {name for name in COMPILER if name in sys.modules}
    served = torch.compile(other)
    errors, kinds = [], set()
    with torch.inference_mode():
        for number, by_dim in enumerate(json.loads(sizes)):
            # Built twice from one seed: some models write to their inputs.
            answers = []
            for model in (twin, served):
                torch.manual_seed(1000 + number)
                args = [value(entry, by_dim) for entry in bucket["args"]]
                kwargs = {entry["name"]: value(entry, by_dim) for entry in bucket["kwargs"]}
                answers.append(model(*args, **kwargs))
            eager, answer = (dict(leaves(each, "answer")) for each in answers)
            if eager.keys() != answer.keys():
                raise SystemExit(f"eager answers {sorted(eager)}, served {sorted(answer)}")
            kinds |= {type(each).__qualname__ for each in answers}
            errors.append(max(error(answer[name], eager[name], name) for name in eager))
    tensors = {id(each): each for each in [*twin.parameters(), *twin.buffers()]}
    print(
        json.dumps(
            {
                "errors": errors,
                "kinds": sorted(kinds),
                "parameters": sum(each.numel() for each in twin.parameters()),
                "tensors": len(tensors),
                "imported": [name for name in COMPILER if name in sys.modules and name not in before],
            }
        )
    )


def module(factory: str, path: str) -> torch.nn.Module:
    name, _, function = factory.partition(":")
    found = getattr(importlib.import_module(name), function)()
    return found.get_submodule(path).eval() if path else found.eval()


def value(entry: dict[str, Any], by_dim: dict[str, int]) -> Any:
    """What one entry of a bucket's args or kwargs stands for."""
    if "const" in entry:
        kind, text = entry["const"]["type"], entry["const"].get("value", "")
        return {"None": lambda _: None, "Bool": lambda v: v == "true", "Int": int, "Float": float, "String": str}[kind](
            text
        )
    spec = entry["tensor"]
    shape = [by_dim[size] if isinstance(size, str) else size for size in spec["shape"]]
    dtype = getattr(torch, spec["dtype"])
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(int(spec.get("low", 0)), int(spec.get("high", 2)), shape, dtype=dtype)


def leaves(answer: Any, where: str) -> Iterator[tuple[str, Any]]:
    """What an answer is made of, by place; None is a place that is empty."""
    if hasattr(answer, "items"):
        for name, item in answer.items():
            yield from leaves(item, f"{where}[{name!r}]")
    elif isinstance(answer, (list, tuple)):
        for index, item in enumerate(answer):
            yield from leaves(item, f"{where}[{index}]")
    elif dataclasses.is_dataclass(answer):
        for entry in dataclasses.fields(answer):
            yield from leaves(getattr(answer, entry.name), f"{where}.{entry.name}")
    else:
        yield where, answer


def error(answer: Any, eager: Any, where: str) -> float:
    """The largest difference over the largest magnitude; for whole numbers 1 or 0."""
    if not isinstance(eager, torch.Tensor):
        if type(answer) is not type(eager) or answer != eager:
            raise SystemExit(f"{where} is {answer!r}, eager's is {eager!r}")
        return 0.0
    if (answer.shape, answer.dtype) != (eager.shape, eager.dtype):
        raise SystemExit(f"{where} is {answer.shape} {answer.dtype}, eager's is {eager.shape} {eager.dtype}")
    if not eager.dtype.is_floating_point:
        return float(not torch.equal(answer, eager))
    wide = eager.double()
    if not torch.isfinite(wide).all():
        raise SystemExit(f"{where}: eager's own answer is not finite")
    return float((answer.double() - wide).abs().max() / wide.abs().max().clamp_min(1e-30))


if __name__ == "__main__":
    main(*sys.argv[1:])
