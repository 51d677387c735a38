"""One start of a service in one way: import torch, make the model, answer once; then some more answers.

A process of its own for each measurement; prints one JSON line. What `BENCH_WAY` names is done with the fewest lines that
its documentation asks for; Preheat's way is that of a plain `torch.compile`, and what serves it is decided by the
environment, as in a pod.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path

began = time.perf_counter()

import torch  # noqa: E402

imported = time.perf_counter()

from peer_ways import B10, EAGER, MEGA, PREPARE, PREPARE_TRACED  # noqa: E402

from architectures.answer import COMPILER, error, leaves, module, value  # noqa: E402

#: More answers after the first, for the steady median; of a slow model fewer.
CALLS, MIN_CALLS, MAX_SECONDS = 20, 5, 1.5


def main() -> None:
    """Start, answer, and say how it went."""
    way, keep = os.environ["BENCH_WAY"], Path(os.environ["BENCH_KEEP"])
    bucket, sizes = json.loads(os.environ["BENCH_BUCKET"]), json.loads(os.environ["BENCH_SIZES"])
    model = module(os.environ["BENCH_FACTORY"], os.environ["BENCH_PATH"])
    torch.manual_seed(1000)
    args = [value(entry, sizes) for entry in bucket["args"]]
    kwargs = {entry["name"]: value(entry, sizes) for entry in bucket["kwargs"]}
    # Users' libraries may import parts of the compiler themselves; that is not the answer's doing.
    before = {name for name in COMPILER if name in sys.modules}
    made = time.perf_counter()
    loaded = load(way, keep)
    if way != EAGER:
        model = torch.compile(model)
    with torch.inference_mode():
        answer = model(*args, **kwargs)
        first = time.perf_counter()
        later: list[float] = []
        for _ in range(CALLS):
            if len(later) >= MIN_CALLS and time.perf_counter() > first + MAX_SECONDS:
                break
            start = time.perf_counter()
            model(*args, **kwargs)
            later.append(time.perf_counter() - start)
    found = {name: each.clone() for name, each in leaves(answer, "answer") if isinstance(each, torch.Tensor)}
    kept = keep / "eager.pt"
    if not kept.exists():
        torch.save(found, kept)
    eager = torch.load(kept)
    if eager.keys() != found.keys():
        raise SystemExit(f"eager answers {sorted(eager)}, {way} {sorted(found)}")
    said = {
        "first_at": first,
        "import_seconds": imported - began,
        "after_import_seconds": first - imported,
        "after_model_seconds": first - made,
        "p50_ms": 1000 * statistics.median(later),
        "error": max(error(found[name], eager[name], name) for name in eager),
        "loaded": loaded,
        "imported": [name for name in COMPILER if name in sys.modules and name not in before],
        **hits(),
    }
    if way == PREPARE:
        said["saved"] = save(keep)
    elif way == PREPARE_TRACED:
        torch.compiler.save_cache_artifacts()  # what was traced is written by this alone
    print(json.dumps(said))


def load(way: str, keep: Path) -> str | None:
    """What has to be done before torch.compile; a word on whether it worked."""
    if way == MEGA:
        found = torch.compiler.load_cache_artifacts((keep / "mega.bin").read_bytes())
        return "nothing" if found is None or found.empty() else "SUCCESS"
    if way == B10:
        from b10_transfer import load_compile_cache

        return load_compile_cache().name
    return None


def save(keep: Path) -> str:
    """Keep what was compiled here for the starts to come: for the mega-cache and for b10-transfer."""
    from b10_transfer import save_compile_cache

    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise SystemExit("torch saved no cache artifacts")
    (keep / "mega.bin").write_bytes(saved[0])
    return save_compile_cache().name


def hits() -> dict[str, int]:
    """Hits and misses of the compiler's caches, as torch counted them."""
    if "torch._dynamo.utils" not in sys.modules:
        return {"hits": 0, "misses": 0}
    counters = sys.modules["torch._dynamo.utils"].counters
    graph, whole, traced = counters["inductor"], counters["aot_autograd"], counters["dynamo_cache"]
    return {
        "hits": graph["fxgraph_cache_hit"] + whole["autograd_cache_hit"] + traced["dynamo_cache_hit"],
        "misses": graph["fxgraph_cache_miss"] + graph["fxgraph_cache_bypass"] + whole["autograd_cache_miss"] + whole["autograd_cache_bypass"],
    }  # fmt: skip


if __name__ == "__main__":
    main()
