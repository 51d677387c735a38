"""What torch dispatches by: of a thread that is in no mode, and of ordinary tensors; and work of ours done as in such a thread.

Why it exists: any call of the user's may be inside a mode: a default device, FakeTensorMode, one that counts operators. It would
take what we ask torch for our own sake for the user's, and give us tensors without memory, or of another device. And whatever
is odd about a tensor shows in its keys, if one knows those of ordinary ones.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@functools.lru_cache(maxsize=1)
def usual_keys() -> Any:
    """What a thread that is in no mode includes among the dispatch keys of each call."""
    keys = torch._C.DispatchKey
    return torch._C.DispatchKeySet(keys.BackendSelect).add(keys.ADInplaceOrView)


@functools.lru_cache(maxsize=8)
def plain_keys(device: str) -> tuple[Any, Any]:
    """Dispatch keys of ordinary tensors on devices of a type: with autograd's, and without (made in inference mode).

    Anything else about a tensor that ordinary code must not ignore (lazy conjugation, sparse or quantised storage,
    functorch's and FakeTensor's wrappers) shows as another key. Put together and not read from a tensor, since to make one on
    a GPU takes memory there and begins with CUDA, after which no forked child may. Of a device that torch has no keys of, no tensor's.
    """
    name, keys = "Meta" if device == "meta" else device.upper(), torch._C.DispatchKey
    backend, autograd = getattr(keys, name, keys.Undefined), getattr(keys, f"Autograd{name}", keys.Undefined)
    if keys.Undefined in (backend, autograd):
        return torch._C.DispatchKeySet(keys.Undefined), torch._C.DispatchKeySet(keys.Undefined)
    inference = torch._C.DispatchKeySet(backend)
    autocast = getattr(keys, f"Autocast{name}", None)
    if autocast is not None:  # not every device has one
        inference = inference.add(autocast)
    return inference.add(keys.ADInplaceOrView).add(autograd), inference


@functools.lru_cache(maxsize=1)
def _of_modes() -> Any:
    """What is left out as well: `detach` asks for modes in a way of its own."""
    keys = torch._C.DispatchKey
    return torch._C.DispatchKeySet(keys.Python).add(keys.PythonTLSSnapshot)


@contextmanager
def without_modes() -> Iterator[None]:
    """Inside, torch's operators pass no mode and no transform, of whatever kind. Inference mode stays as it is, and so does grad."""
    with torch._C.DisableTorchFunction(), torch._C._ForceDispatchKeyGuard(usual_keys(), _of_modes()):
        yield
