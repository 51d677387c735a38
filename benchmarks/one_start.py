"""One start of a service: import torch, load the model, torch.compile it, answer once; then some more answers.

A process of its own for each measurement; prints one JSON line. Reads nothing of Preheat: what serves it is decided by the
environment, as in a pod.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

began = time.perf_counter()

import torch  # noqa: E402

imported = time.perf_counter()

sys.path.insert(0, "")
from model import load  # noqa: E402

shape = json.loads(os.environ["BENCH_SHAPE"])
model = load()
# torchvision imports parts of it by itself; what matters is what is added to them.
anyway = {m for m in sys.modules if m.startswith("torch._inductor")}
if os.environ["BENCH_COMPILE"] == "1":
    model = torch.compile(model)
torch.manual_seed(0)
x = torch.randn(shape)
with torch.inference_mode():
    answer = model(x)
    first = time.perf_counter()
    later = []
    for _ in range(int(os.environ["BENCH_CALLS"])):
        before = time.perf_counter()
        model(x)
        later.append(time.perf_counter() - before)
print(
    json.dumps(
        {
            "first_at": first,
            "import_seconds": imported - began,
            "after_import_seconds": first - imported,
            "p50_ms": 1000 * statistics.median(later),
            "inductor": len({m for m in sys.modules if m.startswith("torch._inductor")} - anyway),
            "sum": float(answer.double().sum()),
        }
    )
)
