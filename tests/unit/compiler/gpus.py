"""A torch.cuda that remembers what it was asked, for tests on machines without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    import torch
    from torch import nn

MIB = 2**20


class FakeCuda:
    """torch.cuda as far as the compiler uses it. `asked` are names of functions with the devices they were given."""

    def __init__(self, *, initialised: bool = True, peaks: dict[Any, int] | None = None) -> None:
        self.initialised = initialised
        self.asked: list[tuple[str, str | None]] = []
        self.peaks = peaks or {}
        self.fault: Exception | None = None
        """What came of the work that was begun before, which is told by whoever waits."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"torch.cuda.{name} was not expected to be asked for")

    def is_initialized(self) -> bool:
        return self.initialised

    def _note(self, name: str, device: torch.device | None) -> str | None:
        self.asked.append((name, None if device is None else str(device)))
        return self.asked[-1][1]

    def synchronize(self, device: torch.device | None = None) -> None:
        self._note("synchronize", device)
        if self.fault is not None:
            raise self.fault

    def empty_cache(self) -> None:
        self._note("empty_cache", None)

    def reset_peak_memory_stats(self, device: torch.device | None = None) -> None:
        self._note("reset_peak_memory_stats", device)

    def max_memory_allocated(self, device: torch.device | None = None) -> int:
        return self.peaks[self._note("max_memory_allocated", device)]

    def mem_get_info(self, device: torch.device | None = None) -> tuple[int, int]:
        return self.peaks[self._note("mem_get_info", device)], 80 * 1024 * MIB

    @property
    def waited(self) -> list[str | None]:
        return [device for name, device in self.asked if name == "synchronize"]


def use(monkeypatch: pytest.MonkeyPatch, **given: Any) -> FakeCuda:
    """A fake in place of torch.cuda."""
    import torch

    cuda = FakeCuda(**given)
    monkeypatch.setattr(torch, "cuda", cuda)
    return cuda


def put(module: nn.Module, *names: str) -> nn.Module:
    """`module`, whose parameters say that they are on these devices, one after the other; their numbers are on the CPU."""
    import torch

    class Elsewhere(torch.nn.Parameter):
        where: torch.device

        @property
        def device(self) -> torch.device:  # type: ignore[override]
            return self.where

    for (name, parameter), where in zip(list(module.named_parameters()), names, strict=True):
        owner, _, last = name.rpartition(".")
        placed = Elsewhere(parameter.detach(), requires_grad=False)
        placed.where = torch.device(where)
        module.get_submodule(owner)._parameters[last] = placed
    return module
