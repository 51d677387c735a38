"""The program of a fresh process: make a network, answer once in the given way, say what it took.

Ways: eager; compiled (torch.compile with whatever caches the environment names); package (the C interface).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["eager", "compiled", "package"], required=True)
    parser.add_argument("--net", required=True)
    parser.add_argument("--device", required=True)
    parser.add_argument("--started", type=float, required=True)
    parser.add_argument("--package", type=Path, help="folder of the unpacked package")
    parser.add_argument("--mode", help="mode of torch.compile")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--calls", type=int, default=0, help="later answers to time")
    options = parser.parse_args()

    import torch

    imported = time.monotonic()
    import nets

    x = nets.inputs(options.net, options.device, batch=options.batch)
    net = nets.make(options.net, options.device)
    wait = torch.cuda.synchronize if options.device.startswith("cuda") else lambda: None
    with torch.inference_mode():
        ready = time.monotonic()
        call = _way(options, net)
        seen = call(x)
        wait()
        first = time.monotonic()
        facts: dict[str, Any] = {
            "firstAnswerSeconds": first - options.started,
            "importSeconds": imported - options.started,
            "modelReadySeconds": ready - imported,
            "answerSeconds": first - ready,
            "error": None,
            "counters": _counters(),
            "maxRssMB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if options.device.startswith("cuda"):
            free, total = torch.cuda.mem_get_info()
            facts.update(
                gpuAllocatedMB=torch.cuda.memory_allocated() / 2**20,
                gpuReservedMB=torch.cuda.memory_reserved() / 2**20,
                gpuUsedOnDeviceMB=(total - free) / 2**20,
            )
        facts["difference"] = nets.error(seen, net(x))
        times = []
        for _ in range(options.calls):
            begin = time.perf_counter()
            call(x)
            wait()
            times.append((time.perf_counter() - begin) * 1e3)
        if times:
            facts["p50Ms"] = sorted(times[len(times) // 4 :])[len(times[len(times) // 4 :]) // 2]
    print(json.dumps(facts), flush=True)
    os._exit(0)  # what happens while a process ends is not asked here


def _way(options: argparse.Namespace, net: Any) -> Any:
    if options.way == "eager":
        return net
    if options.way == "compiled":
        import torch

        return torch.compile(net, mode=options.mode, dynamic=False)
    import building
    from c_abi import Container

    (library,) = options.package.rglob("*.so")
    container = Container(library, device=options.device, kernels=library.parent)
    container.bind(building.weights_of(net))
    return lambda x: container.run([x])[0]


def _counters() -> dict[str, int]:
    utils = sys.modules.get("torch._dynamo.utils")
    counters = utils.counters["inductor"] if utils is not None else {}
    return {name: count for name, count in counters.items() if "cache" in name}


if __name__ == "__main__":
    main()
