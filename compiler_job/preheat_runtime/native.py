"""Runs AOTInductor code through its C interface.

Why it exists: every Python binding of torch's holds the interpreter's lock while the model runs, so a server with a few
threads gets half of eager's throughput. The library's own C functions, called with ctypes, release it. The interface
is that of the torch the library was built with; the fingerprint makes sure it is also the one that is running.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import TYPE_CHECKING

import torch

from .allocator import keep_freed_memory
from .crowd import CROWD, SHORT
from .environment import CHECK_INPUTS
from .lanes import Lanes
from .records import dataclass

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


class SharedObject:
    """A `model.so` in this process: opened once, however many containers are made of it."""

    def __init__(self, path: Path) -> None:
        # Read by the library once, at its first run, and the cheapest guard against silent nonsense there is.
        os.environ.setdefault(*CHECK_INPUTS)
        keep_freed_memory()
        try:
            library = ctypes.CDLL(str(path))
            self.call = {name: getattr(library, f"AOTInductorModelContainer{name}") for name in _FUNCTIONS}
            self._last_error = library.AOTInductorGetLastError
        except (OSError, AttributeError) as error:
            raise NativeError(f"{path.name} cannot be used: {error}") from error
        size, void = ctypes.c_size_t, ctypes.c_void_p
        self.call["Run"].argtypes = [void, void, size, void, size, void, void]
        self._interface: Interface | None = None

    def check(self, code: int) -> None:
        """Raise NativeError, with the library's own words, unless the call that returned `code` succeeded."""
        if code:
            message = ctypes.c_char_p()
            self._last_error(ctypes.byref(message))
            raise NativeError((message.value or b"no message").decode(errors="replace").strip())

    def interface(self, container: ctypes.c_void_p) -> Interface:
        """What it says of itself, asked of the first container: all of them say the same."""
        if self._interface is None:
            self._interface = _interface(self, container)
        return self._interface


@dataclass(frozen=True, kw_only=True)
class Interface:
    """What a library says of itself: its constants' names and what they were called in the module, inputs and outputs."""

    constants: Mapping[str, str]
    inputs: int
    outputs: int


def _interface(code: SharedObject, container: ctypes.c_void_p) -> Interface:
    def count(function: str) -> int:
        number = ctypes.c_size_t()
        code.check(code.call[function](container, ctypes.byref(number)))
        return number.value

    def text(function: str, index: int) -> str:
        found = ctypes.c_char_p()
        code.check(code.call[function](container, ctypes.c_size_t(index), ctypes.byref(found)))
        return (found.value or b"").decode()

    return Interface(
        constants={
            text("GetConstantName", index): text("GetConstantOriginalFQN", index) for index in range(count("GetNumConstants"))
        },
        inputs=count("GetNumInputs"),
        outputs=count("GetNumOutputs"),
    )  # fmt: skip


class Library:
    """One container of a `model.so`. Call `bind` once before `run`: running unbound crashes the process.

    Thread-safe in `run`. To bind other weights make another Library, since calls may be running in this one.
    """

    def __init__(self, code: SharedObject, *, runners: int | None = None) -> None:
        self._container = ctypes.c_void_p()
        self._code = code
        self._bound: list[torch.Tensor] = []
        self._run = code.call["Run"]
        self._runners = runners or default_runners()
        self._lanes = Lanes(self._runners)
        self._seconds = 0.0  # of a processor, that the call before took in its own thread
        code.check(
            code.call["CreateWithDevice"](ctypes.byref(self._container), ctypes.c_size_t(self._runners), b"cpu", None)
        )
        told = code.interface(self._container)
        self.constants, self.inputs, self.outputs = told.constants, told.inputs, told.outputs
        self._input_array, self._output_array = ctypes.c_void_p * self.inputs, ctypes.c_void_p * self.outputs

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
        self._code.check(
            self._code.call["UpdateUserManagedConstantBufferPairs"](
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
        arguments = (self._container, given, self.inputs, results, self.outputs, None, None)
        try:
            begin = time.thread_time()
            short = self._seconds < SHORT
            if short:
                code = self._lanes.run(self._run, *arguments)
            else:
                code = self._lanes.run(CROWD.run, self._runners, self._run, *arguments)
            self._seconds = time.thread_time() - begin
            self._code.check(code)
            handles = [handle for handle in results if handle]
        except BaseException:
            # A signal's handler that raises does so here, once the code is through: its answer must not stay for ever.
            _tensors([handle for handle in results if handle])
            raise
        made = iter(_tensors(handles))
        return [next(made) if handle else None for handle in results]

    @property
    def lost(self) -> bool:
        """Whether this is a forked child whose other threads' calls would hold runners for ever: to be bound anew."""
        return self._lanes.lost

    def abandon(self) -> None:
        """Leave the container as it is: calls that do not end are in it."""
        self._container = ctypes.c_void_p()

    def __del__(self) -> None:
        if self._container:
            self._code.call["Delete"](self._container)


def _handles(tensors: Sequence[torch.Tensor]) -> list[int]:
    pointers = _aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    return [entry if isinstance(entry, int) else _capsule_pointer(entry, None) for entry in pointers]


def _tensors(handles: Sequence[int]) -> list[torch.Tensor]:
    made: list[torch.Tensor] = _aoti.alloc_tensors_by_stealing_from_void_ptrs(
        [_new_capsule(handle, None, None) for handle in handles]
    )
    return made
