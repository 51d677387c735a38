"""Work of ours with tensors, done as in a thread that is in no mode of torch's.

Why it exists: any call of the user's may be inside a mode: a default device, FakeTensorMode, one that counts operators. It would
take what we ask torch for our own sake for the user's, and give us tensors without memory, or of another device.
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
