"""AOTInductor's C interface on any device and stream, as `preheat_runtime.native` uses it on the CPU.

Why it exists: whether Preheat can serve packages on a GPU hangs on a few facts about these functions (streams, devices,
constants that are not copied), which the product's class cannot be asked, since it knows CPUs only. Signatures:
torch/csrc/inductor/aoti_runtime/interface.h. There is no Run with a device: a container is created with one.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

_void, _size, _bool = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool
#: Name without its prefix -> types of the arguments, as in interface.h; tests/unit/gpu compares them with it.
SIGNATURES: dict[str, list[object]] = {
    "CreateWithDevice": [_void, _size, ctypes.c_char_p, ctypes.c_char_p],
    "Delete": [_void],
    "GetConstantName": [_void, _size, _void],
    "GetConstantOriginalFQN": [_void, _size, _void],
    "GetNumConstants": [_void, _void],
    "GetNumInputs": [_void, _void],
    "GetNumOutputs": [_void, _void],
    "Run": [_void, _void, _size, _void, _size, _void, _void],
    "UpdateUserManagedConstantBufferPairs": [_void, _void, _size, _bool, _bool],
}


class _Entry(ctypes.Structure):
    """AOTInductorConstantMapEntry."""

    _fields_ = (("name", ctypes.c_char_p), ("handle", ctypes.c_void_p))


class Container:
    """One container of the library at `path` on `device` (cpu, cuda, cuda:1); device code lies in `kernels`."""

    def __init__(self, path: Path, *, device: str, kernels: Path, runners: int = 1) -> None:
        self._handle = ctypes.c_void_p()
        self._library = ctypes.CDLL(str(path))
        self._bound: list[torch.Tensor] = []
        self._last_error = self._library.AOTInductorGetLastError
        self._call = {}
        for name, types in SIGNATURES.items():
            function = getattr(self._library, f"AOTInductorModelContainer{name}")
            function.argtypes = types
            self._call[name] = function
        self._check(
            self._call["CreateWithDevice"](
                ctypes.addressof(self._handle), runners, device.encode(), str(kernels).encode()
            )
        )
        self.inputs, self.outputs = self._count("GetNumInputs"), self._count("GetNumOutputs")
        self.constants = {
            self._text("GetConstantName", index): self._text("GetConstantOriginalFQN", index)
            for index in range(self._count("GetNumConstants"))
        }

    def _check(self, code: int) -> None:
        if code:
            message = ctypes.c_char_p()
            self._last_error(ctypes.byref(message))
            raise RuntimeError((message.value or b"no message").decode(errors="replace").strip())

    def _count(self, function: str) -> int:
        number = ctypes.c_size_t()
        self._check(self._call[function](self._handle, ctypes.addressof(number)))
        return number.value

    def _text(self, function: str, index: int) -> str:
        text = ctypes.c_char_p()
        self._check(self._call[function](self._handle, index, ctypes.addressof(text)))
        return (text.value or b"").decode()

    def bind(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Point the constants at tensors by the module's own names, user-managed, with a full update checked."""
        names = list(self.constants)
        self._bound = [tensors[self.constants[name]].detach() for name in names]
        handles = _handles(self._bound)
        pairs = (_Entry * len(names))(*(_Entry(name.encode(), each) for name, each in zip(names, handles, strict=True)))
        update = self._call["UpdateUserManagedConstantBufferPairs"]
        self._check(update(self._handle, ctypes.addressof(pairs), len(names), False, True))
        _tensors(handles)  # the library made its own handles; ours are freed

    def run(self, inputs: Sequence[torch.Tensor], *, stream: int | None = None) -> list[torch.Tensor]:
        """The outputs; `stream` is a `cuda_stream` address, None leaves the choice to the library."""
        given = (_void * self.inputs)(*_handles(inputs))
        made = (_void * self.outputs)()
        run = self._call["Run"]
        self._check(
            run(
                self._handle,
                ctypes.addressof(given),
                self.inputs,
                ctypes.addressof(made),
                self.outputs,
                stream,
                None,
            )
        )
        return _tensors([each for each in made if each])

    def close(self) -> None:
        """Delete the container; it must not be running."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._call["Delete"](handle)


def _handles(tensors: Sequence[torch.Tensor]) -> list[int]:
    pointers = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    return [each if isinstance(each, int) else _pointer(each, None) for each in pointers]


def _tensors(handles: Sequence[int]) -> list[torch.Tensor]:
    capsules = [_capsule(each, None, None) for each in handles]
    return list(torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(capsules))
