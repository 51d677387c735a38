"""Tells where the time of a call goes: by submodule in eager, by operator in compiled code.

Why it exists: who wants a model faster asks which part is slow. It runs after everything that is timed for a verdict,
because watching costs time itself; so shares are what to read, not milliseconds. Compiled code has no submodules: it is
one library, whose generated kernels torch's profiler does not see on a CPU. What it does see, torch's own operators that
the code calls, is told, and the rest is told as what it is. On a GPU it sees every kernel.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from preheat_compiler.devices import Gpus
from preheat_compiler.faults import describe
from preheat_compiler.inputs import build_call
from preheat_compiler.progress import say
from preheat_compiler.report import decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import torch

    from preheat_compiler.bucket import Bucket
    from preheat_compiler.inputs import Call, Sizes
    from preheat_compiler.report import Report

_MOST_ENTRIES = 20
_MOST_CALLS = 30
_SECONDS = 5.0
_NOT_ATTRIBUTED = (
    "compiled code has no submodules, and its generated kernels are not seen one by one: what is not one of torch's own "
    "operators is told as one figure"
)
_KERNELS = (
    "compiled code has no submodules: what is told are the kernels that ran on the GPU, torch's own and generated ones; the "
    "rest is what the call took beside them"
)
#: What torch draws around work, where it is not marked as such.
_FRAMES = ("ProfilerStep", "## ", "Torch-Compiled", "TorchDynamo")


def where_time_goes(
    compiled: Callable[..., Any], module: torch.nn.Module, bucket: Bucket, sizes: Sizes, *,
    seed: int, device: str, report: Report, seconds: float,
) -> None:  # fmt: skip
    """Note eager's time by submodule and compiled's by operator or kernel, within about `seconds` each. Never raises."""
    seconds, gpus = min(seconds, _SECONDS), Gpus.of(module)
    call = build_call(bucket, sizes, seed=seed, device=device)
    for kind, look in (("eager", _by_submodule), ("compiled", _by_operator)):
        run = module if kind == "eager" else compiled
        try:
            look(run, call, gpus, seconds, sizes.name, report)
        except Exception as error:
            # What was measured stands without it.
            words = describe(error, limit=300)
            say(f"where {kind} spends its time is not known: {words}")
            report.note("submodules", kind=kind, inputs=sizes.name, why=words)


class SelfTimes:
    """Adds up, by path, the seconds that a module spends in its own `forward` and not in another module's.

    Modules that are called by `forward` directly count as their caller's. `waits` is called around every module: on a
    GPU work is only done when it was waited for.
    """

    def __init__(self, paths: Mapping[int, str], waits: Callable[[], object], clock: Callable[[], float]) -> None:
        self._paths = paths
        self._waits = waits
        self._clock = clock
        self._open: list[list[float]] = []
        self.seconds: dict[str, float] = {}
        self.total = 0.0

    def enter(self, module: object, *_: object) -> None:
        """A module begins."""
        self._waits()
        self._open.append([self._clock(), 0.0])

    def leave(self, module: object, *_: object) -> None:
        """The module that began last ends."""
        self._waits()
        begin, inside = self._open.pop()
        spent = self._clock() - begin
        path = self._paths.get(id(module), "(made during the call)")
        self.seconds[path] = self.seconds.get(path, 0.0) + spent - inside
        if self._open:
            self._open[-1][1] += spent
        else:
            self.total += spent


def ranked(seconds: Mapping[str, float], total: float, calls: int) -> list[dict[str, Any]]:
    """The most expensive ones first: `name`, `selfMs` of one call, `share` of the total, `cumulative` share."""
    if total <= 0 or calls < 1:
        return []
    rows, running = [], 0.0
    for name, spent in sorted(seconds.items(), key=lambda item: (-item[1], item[0]))[:_MOST_ENTRIES]:
        running += spent
        rows.append(
            {
                "name": name,
                "selfMs": decimal(spent / calls * 1e3),
                "share": decimal(spent / total),
                "cumulative": decimal(running / total),
            }
        )
    return rows


def _by_submodule(module: Any, call: Call, gpus: Gpus, seconds: float, inputs: str, report: Report) -> None:
    from torch.nn.modules import module as hooks

    names = {id(each): name or "(the module itself)" for name, each in reversed(list(module.named_modules()))}
    kinds = {name or "(the module itself)": type(each).__name__ for name, each in module.named_modules()}
    times = SelfTimes(names, _waiter(gpus), time.perf_counter)
    # Hooks of all modules, not of this one: a compiled function looks at the module's own, and would not run any more.
    handles = [
        hooks.register_module_forward_pre_hook(times.enter),
        hooks.register_module_forward_hook(times.leave, always_call=True),
    ]
    try:
        calls = _repeat(call.of(module), seconds)
    finally:
        for handle in handles:
            handle.remove()
    rows = [{**row, "type": kinds.get(row["name"], "")} for row in ranked(times.seconds, times.total, calls)]
    report.note(
        "submodules", kind="eager", inputs=inputs, calls=str(calls), callMs=decimal(times.total / calls * 1e3),
        entries=rows,
    )  # fmt: skip


def _by_operator(compiled: Any, call: Call, gpus: Gpus, seconds: float, inputs: str, report: Report) -> None:
    from torch.profiler import ProfilerActivity, profile

    wait, ask = _waiter(gpus), call.of(compiled)
    # Unwatched first: what the whole call takes is to be a true figure.
    begin = time.perf_counter()
    plain = _repeat(lambda: (ask(), wait()), seconds / 2)
    total = (time.perf_counter() - begin) / plain
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA] if gpus.devices else [ProfilerActivity.CPU]
    with profile(activities=activities) as watched:
        calls = _repeat(lambda: (ask(), wait()), seconds / 2)
    spent = (_by_kernel if gpus.devices else _on_the_cpu)(watched.key_averages())
    known = min(sum(spent.values()), total * calls)
    rows = ranked(spent, max(sum(spent.values()), total * calls), calls)
    report.note(
        "submodules", kind="compiled", inputs=inputs, calls=str(calls), callMs=decimal(total * 1e3), entries=rows,
        generatedMs=decimal((total - known / calls) * 1e3), why=_KERNELS if gpus.devices else _NOT_ATTRIBUTED,
    )  # fmt: skip


def _on_the_cpu(events: Iterable[Any]) -> dict[str, float]:
    """Seconds by torch's operators, without the frames that it draws around some (`## Call CompiledFxGraph …`)."""
    return _added_up((event.key, event.self_cpu_time_total) for event in events if "::" in event.key)


def _by_kernel(events: Iterable[Any]) -> dict[str, float]:
    """Seconds by what ran on a GPU. An operator that started kernels says their time once more, and so do frames."""
    from torch.autograd import DeviceType

    return _added_up(
        (event.key, event.self_device_time_total)
        for event in events
        if event.device_type == DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)
        and not event.key.startswith(_FRAMES)
    )


def _added_up(microseconds: Iterable[tuple[str, float]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for name, spent in microseconds:
        if spent > 0:
            seconds[name] = seconds.get(name, 0.0) + float(spent) / 1e6
    return seconds


def _repeat(call: Callable[[], object], seconds: float) -> int:
    """Call at least once, then for at most `seconds`; returns how often."""
    begin, calls = time.monotonic(), 0
    while calls == 0 or (calls < _MOST_CALLS and time.monotonic() - begin < seconds):
        call()
        calls += 1
    return calls


def _waiter(gpus: Gpus) -> Callable[[], object]:
    return gpus.wait if gpus.used else lambda: None
