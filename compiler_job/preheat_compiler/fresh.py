"""The program of a fresh process: load the model, answer once, say how long it took and what had to be imported.

Why it exists: only a new process shows what a pod pays for its first answer, and whether the artifact alone is enough.
It does what a user's own script does and knows nothing of artifacts; that `torch.compile` is served by Preheat comes
from the environment it is started in, as in a pod.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preheat_compiler.devices import Gpus, kind_of, tensors_of
from preheat_compiler.memory import PeakMeter
from preheat_compiler.seal import enter

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Imports that a first answer from a package must do without.
_COMPILER = ("torch._dynamo", "torch._inductor", "torch._inductor.compile_fx")


def main(argv: Sequence[str], *, launcher: str) -> int:
    """Write what was seen as JSON to `--answer`.

    `--started` is the starting process's monotonic clock just before it started this one, which is the same clock.
    """
    del launcher
    parser = argparse.ArgumentParser()
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--module", required=True)
    parser.add_argument("--bucket", required=True)
    parser.add_argument("--sizes", required=True, help="JSON list of sizes by dim; the first is the first answer's")
    parser.add_argument("--compile", choices=["no", "yes"], required=True, help="whether to call torch.compile")
    parser.add_argument(
        "--compare", choices=["no", "yes"], required=True, help="whether to compare all sizes with eager"
    )
    parser.add_argument("--started", type=float, required=True)
    parser.add_argument("--answer", type=Path, required=True)
    parser.add_argument("--seal", choices=["no", "yes"], required=True, help="whether to live as in a strict pod")
    parser.add_argument("--writable", type=Path, required=True, help="what can be written to even then")
    parser.add_argument("--noted", type=Path, help="where runs of Triton's assemblers are noted, if they are")
    options = parser.parse_args(argv)
    seal = enter(options.writable) if options.seal == "yes" else None
    left_behind = [name for name in ("HOME", "TMPDIR") if not _is_empty(name)]

    import torch

    imported = time.monotonic()

    from preheat_compiler.inputs import Sizes, build_call
    from preheat_compiler.levers import as_served
    from preheat_compiler.model import device_of, find_module, load_factory
    from preheat_compiler.request import read_request
    from preheat_runtime.levers import Levers
    from preheat_runtime.replaced import replaced

    request = read_request(options.request)
    spec, bucket = request.target(options.module, options.bucket)
    module = find_module(load_factory(request.factory, request.settings.arguments), spec.path)
    # As the user's code has it; options and mode are not in it, and need not be.
    autocast = Levers(autocast=request.settings.autocast)
    # Users' libraries may import parts of the compiler themselves (torchvision does); that is not the answer's doing.
    before = {name for name in _COMPILER if name in sys.modules}
    sizes = [Sizes(name="", by_dim=by_dim) for by_dim in json.loads(options.sizes)]
    device, gpus = device_of(module), Gpus.of(module)
    call, *others = [build_call(bucket, each, seed=1, device=device) for each in sizes]
    meter = PeakMeter(gpus)
    first = 0.0
    served: Any = None
    answer: Any = None

    noted = [0, 0]

    def answer_all() -> None:
        nonlocal first, served, answer
        noted[0] = _size(options.noted)
        served = torch.compile(module) if options.compile == "yes" else module
        answer = served(*call.args, **call.kwargs)
        gpus.wait()
        first = time.monotonic()
        # An answer that CUDA graphs gave is another one after the next call. Also eager, or they would not need the same memory.
        answer = replaced(answer, lambda tensor: tensor.detach().clone())
        for other in others:
            served(*other.args, **other.kwargs)
        gpus.wait()
        noted[1] = _size(options.noted)

    with as_served(autocast, kind_of(tensors_of(module))):
        peak = meter.of(answer_all)
        seen = {
            "seconds": first - options.started,
            "afterImport": first - imported,
            "memory": peak.to_json(),
            "seal": seal.to_json() if seal is not None else None,
            "notEmpty": left_behind,
            # What the model's own code has assembled when it was loaded, or will have to be compared, is not the answers' doing.
            "noted": noted,
            "imported": sorted(name for name in _COMPILER if name in sys.modules and name not in before),
            "maximum": None,
            "why": "",
        }
        # Afterwards, since it takes time that no pod takes.
        from preheat_compiler.layout import answering_compiler

        seen["compiler"] = answering_compiler() if options.compile == "yes" else None
        if options.compare == "yes":
            from preheat_runtime.compare import difference

            # Built anew for each: a module that writes to its inputs must not feed one call's leftovers to the other.
            plain = build_call(bucket, sizes[0], seed=1, device=device)
            worst = difference(answer, module(*plain.args, **plain.kwargs))
            for each in sizes[1:]:
                again, plain = (build_call(bucket, each, seed=1, device=device) for _ in range(2))
                answered = served(*again.args, **again.kwargs)
                worst = worst.worst(difference(answered, module(*plain.args, **plain.kwargs)))
            seen.update(maximum=str(worst.maximum), why=worst.why)
    options.answer.write_text(json.dumps(seen), encoding="utf-8")
    return 0


def _is_empty(variable: str) -> bool:
    with suppress(OSError):
        return not any(Path(os.environ.get(variable) or "/").iterdir())
    return False


def _size(file: Path | None) -> int:
    if file is not None:
        with suppress(OSError):
            return file.stat().st_size
    return 0
