"""What is done with the CUDA devices that a model is on.

Why it exists: torch.cuda means the current device where it is told none, and a model may be on another one, or on several.
And other processes of the Job use the same devices, whose memory torch keeps for itself until it is told otherwise.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

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
        return cls.among(chain(module.parameters(), module.buffers()))

    @classmethod
    def among(cls, tensors: Iterable[torch.Tensor]) -> Gpus:
        """Those of the tensors."""
        return cls(tuple(dict.fromkeys(tensor.device for tensor in tensors if tensor.device.type == "cuda")))

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


def give_back() -> None:
    """Free what nothing holds any more, also what torch keeps of a device's memory for its own next use."""
    import torch

    # Modules are in cycles.
    gc.collect()
    # Asked first, so that this is not what begins with CUDA.
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
