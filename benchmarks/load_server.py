"""One server process under load: client threads ask the served model and its eager twin in turns, and check every answer.

Says with one JSON line how many were answered in each slice of time, how long answers took, and what was wrong. What serves
`torch.compile(model)` is decided by the environment, as in a pod.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from architectures.answer import error, leaves, module, value
from architectures.check import MAX_ERROR
from preheat_compiler.intervals import quantile

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS = 4
#: Different requests, so that an answer given to the wrong client is a wrong answer.
REQUESTS = 8
Request = tuple[list[Any], dict[str, Any]]


@dataclass
class Slice:
    """What all clients saw of one server in one slice of time."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def main() -> None:
    """Slices of BENCH_SLICE seconds, BENCH_PAIRS of each server; then the served one without a pause for BENCH_UNBROKEN seconds."""
    bucket, sizes = json.loads(os.environ["BENCH_BUCKET"]), json.loads(os.environ["BENCH_SIZES"])
    words = os.environ["BENCH_FACTORY"], os.environ["BENCH_PATH"]
    twin, other = module(*words), module(*words)
    other.load_state_dict(twin.state_dict())  # not every factory's weights come from a fixed seed
    served = torch.compile(other)
    requests, eager = [], []
    with torch.inference_mode():
        for number in range(REQUESTS):
            torch.manual_seed(number)
            args = [value(entry, sizes) for entry in bucket["args"]]
            requests.append((args, {entry["name"]: value(entry, sizes) for entry in bucket["kwargs"]}))
            eager.append(tensors(twin(*args, **requests[-1][1])))
        served(*requests[0][0], **requests[0][1])
    found: dict[str, list[Slice]] = {"eager": [], "hot": []}
    seconds = float(os.environ["BENCH_SLICE"])
    for pair in range(int(os.environ["BENCH_PAIRS"])):
        order: list[tuple[str, Callable[..., Any]]] = [("eager", twin), ("hot", served)]
        for name, model in order if pair % 2 == 0 else order[::-1]:
            found[name].append(load(model, requests, eager, seconds))
    found["unbroken"] = [load(served, requests, eager, float(os.environ["BENCH_UNBROKEN"]))]
    print(json.dumps({name: told(slices) for name, slices in found.items()}))


def load(model: Callable[..., Any], requests: list[Request], eager: list[dict[str, Any]], seconds: float) -> Slice:
    """All clients ask for so long; a request that was begun is waited for."""
    seen, lock = Slice(), threading.Lock()
    begin = time.perf_counter()

    def client(number: int) -> None:
        latencies, wrong = [], []
        turn = number
        with torch.inference_mode():
            while time.perf_counter() < begin + seconds:
                turn = (turn + 1) % REQUESTS
                args, kwargs = requests[turn]
                start = time.perf_counter()
                try:
                    answer = model(*args, **kwargs)
                except Exception as problem:
                    wrong.append(f"{type(problem).__name__}: {problem}"[:300])
                    continue
                latencies.append(time.perf_counter() - start)
                off = difference(tensors(answer), eager[turn])
                if not off <= MAX_ERROR:
                    wrong.append(f"an answer differs from eager's by {off}")
        with lock:
            seen.latencies += latencies
            seen.wrong += wrong

    clients = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    seen.seconds = time.perf_counter() - begin
    return seen


def tensors(answer: Any) -> dict[str, torch.Tensor]:
    """What an answer is made of, by place."""
    return {name: each for name, each in leaves(answer, "answer") if isinstance(each, torch.Tensor)}


def difference(answer: dict[str, torch.Tensor], eager: dict[str, torch.Tensor]) -> float:
    """The largest relative one; infinity when they are not made of the same."""
    if answer.keys() != eager.keys():
        return float("inf")
    return max(error(answer[name], eager[name], name) for name in eager)


def told(slices: list[Slice]) -> dict[str, Any]:
    """As JSON: answers a second of each slice, and over all slices latencies in ms, answers and what was wrong."""
    latencies = sorted(each for part in slices for each in part.latencies)
    wrong = [each for part in slices for each in part.wrong]
    return {
        "rates": [len(part.latencies) / part.seconds for part in slices],
        "p50_ms": 1000 * quantile(latencies, 0.5),
        "p99_ms": 1000 * quantile(latencies, 0.99),
        "answers": len(latencies),
        "wrong": len(wrong),
        "first_wrong": wrong[:3],
    }


if __name__ == "__main__":
    sys.exit(main())
