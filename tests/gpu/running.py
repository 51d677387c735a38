"""Experiments on running: CUDA graphs, threads, and the first answer of a fresh process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import building
import nets
from caching import places
from context import Context, Experiment
from packages import bound_package, package_of

if TYPE_CHECKING:
    from collections.abc import Callable


def median(values: list[float]) -> float:
    """The middle value, the upper one of two."""
    return sorted(values)[len(values) // 2]


def timed(call: Callable[[], Any], wait: Callable[[], Any], *, count: int = 50) -> float:
    """Milliseconds of a call, median after ten calls that are not counted."""
    times = []
    for number in range(count + 10):
        begin = time.perf_counter()
        call()
        wait()
        if number >= 10:
            times.append((time.perf_counter() - begin) * 1e3)
    return median(times)


def graphs(context: Context) -> None:
    """Capture a package's run in a CUDA graph, replay it with other inputs and weights, and compare speeds."""
    import torch

    container, net, x = bound_package(context, "block")
    wait = torch.cuda.synchronize
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            container.run([x], stream=side.cuda_stream)
    wait()
    graph = torch.cuda.CUDAGraph()

    def capture() -> Any:
        with torch.cuda.graph(graph, stream=side):
            return container.run([x], stream=side.cuda_stream)[0]

    with torch.inference_mode():
        context.note(eagerMs=timed(lambda: net(x), wait), packageMs=timed(lambda: container.run([x]), wait))
        held: list[Any] = []
        context.attempt("capture", lambda: held.append(capture()) or "captured")
        if held:
            graph.replay()
            wait()
            context.note(error=nets.error(held[0], net(x)))
            x.copy_(nets.inputs("block", context.device, seed=9))
            graph.replay()
            wait()
            context.note(errorAfterOtherInput=nets.error(held[0], net(x)))
            building.randomise(net, 5)
            graph.replay()
            wait()
            context.note(errorAfterOtherWeights=nets.error(held[0], net(x)))
            context.note(packageInGraphMs=timed(graph.replay, wait))
        for mode in ("default", "reduce-overhead"):

            def compiled(mode: str = mode) -> float:
                torch._dynamo.reset()
                call = torch.compile(net, mode=None if mode == "default" else mode)
                return timed(lambda: call(x), wait)

            context.attempt(f"torch.compile {mode}, ms", compiled)


def threads(context: Context) -> None:
    """Calls per second of one, two and four threads; and what Python gets done meanwhile."""
    import torch

    torch.set_num_threads(1)
    archive = context.shared / "build-block" / "model.pt2"
    container, net, x = bound_package(context, "block", runners=4)
    found = torch._C._aoti.AOTIModelPackageLoader(str(archive), "model", False, 4, -1)
    found.load_constants(building.weights_of(net), False, True, True)
    cuda = context.device.startswith("cuda")
    ways: dict[str, Callable[[int | None], Any]] = {
        "eager": lambda stream: net(x),
        "loader": lambda stream: found.run([x]),
        "c interface": lambda stream: container.run([x], stream=stream),
    }

    def worker(way: Callable[[int | None], Any], end: float, counts: list[int]) -> None:
        count = 0
        stream = torch.cuda.Stream() if cuda else None
        with torch.inference_mode(), torch.cuda.stream(stream):
            while time.perf_counter() < end:
                way(None if stream is None else stream.cuda_stream)
                if stream is not None:
                    stream.synchronize()
                count += 1
        counts.append(count)

    for name, way in ways.items():
        rates: dict[str, Any] = {}
        for number in (1, 2, 4):
            counts: list[int] = []
            end = time.perf_counter() + 1.0
            workers = [threading.Thread(target=worker, args=(way, end, counts)) for _ in range(number)]
            for each in workers:
                each.start()
            for each in workers:
                each.join()
            rates[f"{number} threads, calls per second"] = sum(counts)
        counts = []
        end = time.perf_counter() + 1.0
        busy = threading.Thread(target=worker, args=(way, end, counts))
        busy.start()
        steps = 0
        while time.perf_counter() < end:
            steps += 1
        busy.join()
        rates["steps of Python beside one thread"] = steps
        context.note(**{name: rates})


def first_answers(context: Context) -> None:
    """Fresh processes, interleaved: eager, package, warm caches; one cold."""
    for net in ("cnn", "block"):
        warm = context.work / f"warm-{net}"
        cold = context.answer_of("compiled", net, environment=places(warm), calls="100")
        context.note(**{f"{net} cold": cold})
        library, _ = package_of(context, net)
        ways: dict[str, dict[str, Any]] = {
            "eager": {"way": "eager"},
            "hot": {"way": "package", "package": str(library.parent)},
            "warm": {"way": "compiled", "environment": places(warm)},
        }
        seen: dict[str, list[dict[str, Any]]] = {name: [] for name in ways}
        pairs = int(context.options.get("pairs", "5"))
        for _ in range(pairs):
            for name, arguments in ways.items():
                way = arguments["way"]
                rest = {key: value for key, value in arguments.items() if key != "way"}
                seen[name].append(context.answer_of(way, net, calls="100", **rest))
            context.note(**{f"{net} {name}": summary(every, seen["eager"]) for name, every in seen.items()})


def summary(answers: list[dict[str, Any]], eager: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of what the processes said, every ratio of a pair with eager, and the errors of those that failed."""
    good = [each for each in answers if not each.get("error")]
    result: dict[str, Any] = {"answers": len(good), "errors": [each["error"] for each in answers if each.get("error")]}
    numbers = [name for name in good[0] if isinstance(good[0][name], (int, float))] if good else []
    result.update({name: median([each[name] for each in good]) for name in numbers})
    ratios = [
        one["firstAnswerSeconds"] / other["firstAnswerSeconds"]
        for one, other in zip(answers, eager, strict=False)
        if not one.get("error") and not other.get("error")
    ]
    result["ratioToEagerOfEachPair"] = [round(each, 3) for each in ratios]
    return result


EXPERIMENTS = (
    Experiment(name="graphs", question="Can a package's run be captured in a CUDA graph, and what does it gain?", run=graphs, seconds=120, cuda_only=True, alone=True, needs=("build-block",)),
    Experiment(name="threads", question="Is the interpreter's lock released?", run=threads, seconds=60, alone=True, needs=("build-block",)),
    Experiment(name="first-answers", question="What does a fresh process pay for its first answer?", run=first_answers, seconds=200, alone=True, needs=("build-cnn", "build-block")),
)  # fmt: skip
