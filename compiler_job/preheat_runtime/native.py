"""Runs AOTInductor code through its C interface.

Why it exists: every Python binding of torch's holds the interpreter's lock while the model runs, so a server with a few
threads gets half of eager's throughput. The library's own C functions, called with ctypes, release it. The interface
is that of the torch the library was built with; the fingerprint makes sure it is also the one that is running.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

import torch

from .environment import CHECK_INPUTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_aoti = torch._C._aoti
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_FUNCTIONS = (
    "CreateWithDevice",
    "Delete",
    "GetConstantName",
    "GetConstantOriginalFQN",
    "GetNumConstants",
    "GetNumInputs",
    "GetNumOutputs",
    "Run",
    "UpdateUserManagedConstantBufferPairs",
)


class NativeError(RuntimeError):
    """The library refused: it cannot be loaded, lacks a function, or a call failed."""


class _ConstantEntry(ctypes.Structure):
    """AOTInductorConstantMapEntry."""

    _fields_ = (("name", ctypes.c_char_p), ("handle", ctypes.c_void_p))


def default_runners() -> int:
    """How many calls may run at the same time before one waits: a runner costs some kilobytes."""
    return max(2, min(8, os.cpu_count() or 2))


class Library:
    """A loaded `model.so` with one container. Call `bind` once before `run`: running unbound crashes the process.

    Thread-safe in `run`. To bind other weights make another Library, since calls may be running in this one.
    """

    def __init__(self, path: Path, *, runners: int | None = None) -> None:
        # Read by the library once, at its first run, and the cheapest guard against silent nonsense there is.
        os.environ.setdefault(*CHECK_INPUTS)
        self._container = ctypes.c_void_p()
        self._bound: list[torch.Tensor] = []
        try:
            self._library = ctypes.CDLL(str(path))
            self._call = {name: getattr(self._library, f"AOTInductorModelContainer{name}") for name in _FUNCTIONS}
            self._last_error = self._library.AOTInductorGetLastError
        except (OSError, AttributeError) as error:
            raise NativeError(f"{path.name} cannot be used: {error}") from error
        size, void = ctypes.c_size_t, ctypes.c_void_p
        self._run = self._call["Run"]
        self._run.argtypes = [void, void, size, void, size, void, void]
        self._check(
            self._call["CreateWithDevice"](
                ctypes.byref(self._container), size(runners or default_runners()), b"cpu", None
            )
        )
        self.constants: dict[str, str] = {}
        for index in range(self._count("GetNumConstants")):
            name, original = ctypes.c_char_p(), ctypes.c_char_p()
            self._check(self._call["GetConstantName"](self._container, size(index), ctypes.byref(name)))
            self._check(self._call["GetConstantOriginalFQN"](self._container, size(index), ctypes.byref(original)))
            self.constants[(name.value or b"").decode()] = (original.value or b"").decode()
        self.inputs = self._count("GetNumInputs")
        self.outputs = self._count("GetNumOutputs")
        self._input_array = void * self.inputs
        self._output_array = void * self.outputs

    def _count(self, function: str) -> int:
        number = ctypes.c_size_t()
        self._check(self._call[function](self._container, ctypes.byref(number)))
        return number.value

    def _check(self, code: int) -> None:
        if code:
            message = ctypes.c_char_p()
            self._last_error(ctypes.byref(message))
            raise NativeError((message.value or b"no message").decode(errors="replace").strip())

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Point every constant at a tensor, by the library's own names, without a copy.

        The library keeps the address it is given. What is bound is an alias of each tensor, so the memory lives as
        long as this object even if the module gets other weights; noticing that is the caller's part.
        """
        missing = self.constants.keys() - tensors.keys()
        if missing:
            raise NativeError(f"no tensor for the constants {', '.join(sorted(missing)[:5])}")
        names = list(self.constants)
        self._bound = [tensors[name].detach() for name in names]
        handles = _handles(self._bound)
        entries = (_ConstantEntry * len(names))(
            *(_ConstantEntry(name.encode(), handle) for name, handle in zip(names, handles, strict=True))
        )
        self._check(
            self._call["UpdateUserManagedConstantBufferPairs"](
                self._container, entries, ctypes.c_size_t(len(names)), ctypes.c_bool(False), ctypes.c_bool(True)
            )
        )
        # The library made its own handles; ours are stolen back, which frees them.
        _tensors(handles)

    @property
    def bound(self) -> dict[str, int]:
        """The address of each constant's memory, by the library's own names."""
        return {name: tensor.data_ptr() for name, tensor in zip(self.constants, self._bound, strict=True)}

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """The library's flat outputs for its flat inputs, None where it has a constant; releases the GIL meanwhile."""
        if len(inputs) != self.inputs:
            raise NativeError(f"the library takes {self.inputs} inputs, not {len(inputs)}")
        given = self._input_array(*_handles(inputs))
        results = self._output_array()
        self._check(self._run(self._container, given, self.inputs, results, self.outputs, None, None))
        made = iter(_tensors([handle for handle in results if handle]))
        return [next(made) if handle else None for handle in results]

    def __del__(self) -> None:
        if self._container and hasattr(self, "_call"):
            self._call["Delete"](self._container)


def _handles(tensors: Sequence[torch.Tensor]) -> list[int]:
    pointers = _aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    return [entry if isinstance(entry, int) else _capsule_pointer(entry, None) for entry in pointers]


def _tensors(handles: Sequence[int]) -> list[torch.Tensor]:
    made: list[torch.Tensor] = _aoti.alloc_tensors_by_stealing_from_void_ptrs(
        [_new_capsule(handle, None, None) for handle in handles]
    )
    return made
