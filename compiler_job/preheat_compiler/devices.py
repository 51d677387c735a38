"""What is done with the CUDA devices that a model is on.

Why it exists: torch.cuda means the current device where it is told none, and a model may be on another one, or on several.
And other processes of the Job use the same devices, whose memory torch keeps for itself until it is told otherwise.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from preheat_runtime.memory import memory_available

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


@dataclass(frozen=True)
class Gpus:
    """The CUDA devices that a module's tensors are on, each once; none for most."""

    devices: tuple[torch.device, ...] = ()

    @classmethod
    def of(cls, module: torch.nn.Module) -> Gpus:
        """Those of the module's parameters and buffers."""
        return cls(tuple(dict.fromkeys(each.device for each in tensors_of(module) if each.device.type == "cuda")))

    @property
    def used(self) -> bool:
        """Whether there is anything to wait for: code of a module without tensors on a GPU may use one all the same."""
        import torch

        return bool(self.devices) or torch.cuda.is_initialized()

    def wait(self) -> None:
        """Return when all that was begun is done: a call returns before its answer is there, and before it fails."""
        import torch

        if not self.used:
            return
        for device in self.devices or (None,):
            torch.cuda.synchronize(device)

    def begin_peak(self) -> None:
        """From here on `peak` counts."""
        if not self.devices:
            return
        import torch

        self.wait()
        for device in self.devices:
            torch.cuda.reset_peak_memory_stats(device)

    def peak(self) -> int | None:
        """The most that torch's allocator had handed out on each of them, added up; None where there is none."""
        if not self.devices:
            return None
        import torch

        return sum(int(torch.cuda.max_memory_allocated(device)) for device in self.devices)


def tensors_of(module: torch.nn.Module) -> Iterable[torch.Tensor]:
    """The module's parameters and buffers."""
    return chain(module.parameters(), module.buffers())


def kind_of(tensors: Iterable[torch.Tensor]) -> str:
    """`cuda` where one of the tensors is on such a device, else the kind of the first one's; `cpu` without any.

    What computes on a GPU may well look up an embedding on the CPU.
    """
    kinds = [tensor.device.type for tensor in tensors]
    return "cuda" if "cuda" in kinds else next(iter(kinds), "cpu")


def free_memory(device: torch.device) -> float | None:
    """How many bytes may still be taken there, as far as that can be told."""
    import torch

    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[0])
    return memory_available() if device.type == "cpu" else None


def give_back() -> None:
    """Free what nothing holds any more, also what torch keeps of a device's memory for its own next use."""
    import torch

    # Modules are in cycles.
    gc.collect()
    # Asked first, so that this is not what begins with CUDA.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
