"""Tensors on a GPU where there is none: torch's own, of its own type and keys, over memory that nobody reads.

Why it exists: what the runtime makes of CUDA tensors is decided by what torch says of them, and no machine of this project's
has a GPU. torch makes such a tensor from any address, as it does for CUDA graphs, and asks no driver for it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

_make = getattr(torch._C, "_construct_CUDA_Tensor_From_Storage_And_Metadata", None)
needs_a_cuda_build = pytest.mark.skipif(_make is None, reason="this torch was built without CUDA")
_addresses = itertools.count(1 << 40, 1 << 20)


def cuda_tensor(*shape: int, index: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A contiguous tensor on `cuda:index` that may be asked what it is, and not for its values."""
    assert _make is not None
    device, address = torch.device("cuda", index), next(_addresses)
    size = math.prod(shape) * dtype.itemsize
    storage = torch._C._construct_storage_from_data_pointer(address, device, size)  # type: ignore[attr-defined]
    stride = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    described = {
        "nbytes": size, "data_ptr": address, "size": shape, "stride": stride, "dtype": dtype, "device": device,
        "storage_offset": 0,
    }  # fmt: skip
    made: torch.Tensor = _make(described, storage)
    return made


def on_cuda(module: Any, *, index: int = 0) -> Any:
    """The module, its parameters and buffers exchanged for such tensors."""
    for part in module.modules():
        for name, tensor in part._parameters.items():
            moved = cuda_tensor(*tensor.shape, index=index, dtype=tensor.dtype)
            part._parameters[name] = torch.nn.Parameter(moved, requires_grad=tensor.requires_grad)
        for name, tensor in part._buffers.items():
            part._buffers[name] = cuda_tensor(*tensor.shape, index=index, dtype=tensor.dtype)
    return module
