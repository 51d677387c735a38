"""A digest of values: attributes of modules, constants of code, what a global holds, transitively.

Why it exists: what a package baked in is mostly a number in an attribute, or in an object in a list in an attribute. Two
processes must agree on the digest exactly if their values are the same, so content counts, and where there is none that
could be compared, `unknown` says so. What was looked into is kept in `watch`. Classes and functions: see `code`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

import torch

from .contents import PROXIES
from .libraries import OF_THE_PROCESS, is_opaque
from .modes import without_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from .watch import Watch

#: More than this many values, and the walk gives up: the module is then not recognised, which is safe.
MAX_NODES = 50_000
#: Plain tensors up to this many bytes are hashed by content: code may branch on them while it is traced.
MAX_TENSOR_BYTES = 1 << 16

SCALARS = (bool, int, float, complex, str, bytes)
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod, torch._C.ScriptObject)


class ValueDigest:
    """One digest being made.

    `modules` and `tensors` map ids of submodules, parameters and buffers to their paths in the tree that is described.
    """

    def __init__(self, *, watch: Watch, modules: dict[int, str], tensors: dict[int, str]) -> None:
        self.unknown: list[str] = []
        self.watch = watch
        self._modules = modules
        self._tensors = tensors
        # Code refers to code in chains far longer than Python's stack is deep, so it waits here for its turn.
        self._waiting: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._seen: dict[int, int] = {}
        self._keep: list[object] = []  # an id is only valid while its object lives
        self._hash = hashlib.sha256()

    def hexdigest(self) -> str:
        """128 bits are plenty against accidents, and keep target.json small."""
        while self._waiting:
            visit, value = self._waiting.popleft()
            visit(value)
        return self._hash.hexdigest()[:32]

    def put(self, *parts: object) -> None:
        """Add plain values."""
        self._hash.update(repr(parts).encode("utf-8", "surrogatepass"))

    def class_(self, value: type) -> None:
        """Add a class: by name when it belongs to a library, else by all it is made of."""
        raise NotImplementedError

    def function(self, value: Any) -> None:
        """Add a function: its code, defaults, closure, and the globals its code names; of a library its name."""
        raise NotImplementedError

    def _again(self, value: object) -> bool:
        """Whether the value was met before; writes a back reference if so."""
        number = self._seen.get(id(value))
        if number is not None:
            self.put("again", number)
            return True
        if len(self._seen) >= MAX_NODES:
            raise RecursionError(f"the module refers to more than {MAX_NODES} values")
        self._seen[id(value)] = len(self._seen)
        self._keep.append(value)
        return False

    def _later(self, visit: Callable[[Any], None], value: Any) -> None:
        if not self._again(value):
            self.put("later", self._seen[id(value)])
            self._waiting.append((visit, value))

    def value(self, value: Any) -> None:
        """Add any value; the order of the tests is from the frequent to the rare."""
        kind = type(value)
        if value is None or kind in SCALARS:
            self.put(kind.__name__, value)
        elif kind in (tuple, list, torch.Size):
            self._sequence(kind, value)
        elif kind in PROXIES:  # before anything that asks it for its class, which would be the other's
            self._object(kind, value)
        elif isinstance(value, dict):
            self._dict(value)
        elif isinstance(value, _SCRIPTED):
            self._not_known(f"a {kind.__qualname__}, which is scripted: code")
        elif isinstance(value, torch.nn.Module):
            self._module(value)
        elif isinstance(value, torch.Tensor):
            self._tensor(value)
        elif kind is types.FunctionType:
            self.function(value)
        elif isinstance(value, type):
            self.class_(value)
        elif not self._rare(kind, value):
            self._object(kind, value)

    def _not_known(self, what: str) -> None:
        self.put("unknown", what)
        self.unknown.append(what)

    def _sequence(self, kind: type, value: Iterable[Any]) -> None:
        items = list(value)
        # Whether two places hold the same tuple or two equal ones means nothing, and torch.export makes the former the latter.
        plain = kind in (tuple, torch.Size) and all(item is None or type(item) in SCALARS for item in items)
        if not plain and self._again(value):
            return
        self.put(kind.__name__, len(items))
        if kind in (list, deque):
            self.watch.add_list(value)
        for item in items:
            self.value(item)

    def _dict(self, value: dict[Any, Any], without: Collection[Any] = OF_THE_PROCESS) -> None:
        if self._again(value):
            return
        kind = type(value)
        self.put("dict", kind.__name__, len(value))
        self.watch.add_dict(value)
        for key, item in (OrderedDict if isinstance(value, OrderedDict) else dict).items(value):
            if key not in without:
                self.value(key)
                self.value(item)
        if kind is defaultdict:
            self.value(value.default_factory)  # type: ignore[attr-defined]
        elif not is_opaque(kind.__module__):
            # A dict of somebody's own class answers in its own way.
            self.watch.add_object(value)
            self.class_(kind)
            self._state(kind, value)

    def _module(self, value: torch.nn.Module) -> None:
        path = self._modules.get(id(value))
        self.put("module", path)
        if path is None:
            self.unknown.append(f"a {type(value).__qualname__} that is not registered as a submodule")

    def _tensor(self, value: torch.Tensor) -> None:
        path = self._tensors.get(id(value))
        if path is not None:
            # A weight in a second place, as recurrent layers keep theirs: the pod's own is used, whatever it holds.
            self.put("weight", path)
            return
        self.put("tensor", tuple(value.shape), str(value.dtype), str(value.device), str(value.layout))
        if value.device.type == "cpu" and value.layout is torch.strided and type(value) in _PLAIN_TENSORS:
            self.put(value.stride())
            if 0 < value.numel() * value.element_size() <= MAX_TENSOR_BYTES:
                read = functools.partial(_bytes_of, value)
                self._hash.update(read())
                self.watch.add_content(read)

    def _rare(self, kind: type, value: Any) -> bool:
        """Add a value whose content has a form of its own; False when `value` is an ordinary object."""
        raise NotImplementedError

    def _object(self, kind: type, value: Any) -> None:
        """Add an object by what it keeps."""
        raise NotImplementedError

    def _state(self, kind: type, value: Any) -> None:
        """Add what an object keeps in its `__dict__` and its slots."""
        raise NotImplementedError

    def _alone(self, value: Any) -> str:
        part = self._another()
        part.value(value)
        digest = part.hexdigest()
        self.unknown += part.unknown
        return digest

    def _another(self) -> ValueDigest:
        """An empty digest like this one."""
        return type(self)(watch=self.watch, modules=self._modules, tensors=self._tensors)


def _bytes_of(value: torch.Tensor) -> bytes:
    # This is done at each call, whatever modes it is in. Under one of torch's dispatch modes an operator may give a tensor
    # that has no memory (FakeTensorMode); what is asked of the tensor itself here passes no mode.
    plain = value
    if not value.is_contiguous() or value.is_conj() or value.is_neg():
        with without_modes():
            plain = value.detach().resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(plain.data_ptr(), plain.numel() * plain.element_size())
