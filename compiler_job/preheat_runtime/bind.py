"""A package bound to the user's own module, and the check before every call that it still may answer for it.

Why it exists: the code holds addresses of weights and the consequences of attributes. Both can change behind its back:
`load_state_dict(assign=True)`, `p.data = …`, `.to()`, `train()`, a hook, an attribute, a replaced helper. None of them
tells anybody. So before each call the module is compared with what was bound, in microseconds; on any difference it is
described anew, and the package is bound again, or dropped.
"""

from __future__ import annotations

import sys
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from . import identity as identities
from .calls import Matcher
from .locks import ForkLock
from .native import Library, SharedObject
from .package import ConstSpec, const_value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .package import Identity, PackageSpec, Target
    from .watch import Watch

_data_ptr = torch.Tensor.data_ptr
# Asked at every call, and at every region of it.
_function_modes, _dispatch_modes = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_transform, _tracing = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
_included_keys, _excluded_keys = torch._C._dispatch_tls_local_include_set, torch._C._dispatch_tls_local_exclude_set
_any_global_hook, _forward_ad = torch.nn.modules.module._has_any_global_hook, torch.autograd.forward_ad
_grad_enabled = torch.is_grad_enabled
#: A module that other threads change is looked at so often before the call goes to torch.
ATTEMPTS = 3
#: torch's own loop over the addresses of many tensors, made for CUDA graphs; not in every version.
_same_addresses = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)


class Mismatch(Exception):
    """The package must not answer; the message says why, in words."""


class _Guard(NamedTuple):
    """torch's check of tensors, and the dispatch keys of the thread that it was made in."""

    check: Callable[..., bool]
    included: Any
    excluded: Any

    def holds_as_made(self, tensors: list[torch.Tensor]) -> bool:
        """Whether it holds in the modes it was made in.

        What the thread dispatches to (autocast, a dispatch mode) is in the keys that torch compares. That is the call's own
        and looked at there; taken for a change, it would have a module described anew whenever calls differ in it.
        """
        with torch.no_grad(), torch._C._ForceDispatchKeyGuard(self.included, self.excluded):
            return self.check(*tensors)


class ModuleState:
    """What a module was when its packages were bound."""

    def __init__(self, module: torch.nn.Module) -> None:
        """Raises Mismatch when another thread changes the module all the while."""
        for _ in range(ATTEMPTS):
            self._take(module)
            # What another thread changed after it was read and before it was armed would never be noticed.
            if len(sys._current_frames()) == 1 or self._taken_whole(module):
                return
        raise Mismatch("the module was being changed while it was looked at")

    def _take(self, module: torch.nn.Module) -> None:
        self._described = identities.describe(module)
        # Each once: torch's guard never holds for a tensor that it is given twice, as tied weights would be.
        self._tensors = list({id(tensor): tensor for tensor in self._described.tensors.values()}.values())
        self._addresses = list(map(_data_ptr, self._tensors))
        self.addresses = dict(zip(map(id, self._tensors), self._addresses, strict=True))
        """Where each parameter and buffer was when it was looked at, by its id."""
        self._indices = list(range(len(self._tensors)))
        self._guards = {mode: self._guard(mode) for mode in (False, True)}
        self.requires_grad = any(tensor.requires_grad for tensor in self._tensors)

    def _taken_whole(self, module: torch.nn.Module) -> bool:
        again = identities.describe(module)
        same = again.tensors.keys() == self.tensors.keys() and all(
            tensor is self.tensors[path] for path, tensor in again.tensors.items()
        )
        return same and again.identity == self.identity and self.unchanged()

    def _guard(self, inference: bool) -> _Guard | None:
        """torch's own C++ check of type, dtype, device, sizes, strides and keys, for one of the two modes."""
        if not self._tensors:
            return None
        with torch.inference_mode(inference), torch.no_grad():
            guards = torch._C._dynamo.guards.TensorGuards(
                *self._tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None
            )
            return _Guard(guards.check, _included_keys(), _excluded_keys())

    @property
    def identity(self) -> Identity:
        """What the module was."""
        return self._described.identity

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Parameters and buffers by path."""
        return self._described.tensors

    @property
    def gpu(self) -> str | None:
        """The GPU that it is on, or the first one of several."""
        return next((str(tensor.device) for tensor in self._tensors if tensor.is_cuda), None)

    @property
    def watch(self) -> Watch:
        """What notices that it is another one now."""
        return self._described.watch

    @property
    def hooked(self) -> str | None:
        """Path of a submodule with hooks."""
        return self._described.hooked

    def unchanged(self) -> bool:
        """Whether everything still is as it was: slots, addresses, sizes, strides, dtypes, attributes, code."""
        if not self._described.watch.unchanged() or not self._same_addresses():
            return False
        guard = self._guards[torch.is_inference_mode_enabled()]
        return guard is None or guard.check(*self._tensors) or guard.holds_as_made(self._tensors)

    def _same_addresses(self) -> bool:
        if _same_addresses is None:
            return list(map(_data_ptr, self._tensors)) == self._addresses
        return bool(_same_addresses(self._tensors, self._addresses, self._indices))

    def against(self, target: Target) -> str | None:
        """Why this module is not the one `target` was made for; None when it is."""
        if self.hooked is not None:
            return f"{self.hooked} has hooks, which compiled code would not run"
        if self._described.compiled is not None:
            return f"{self._described.compiled} is compiled on its own, and would not be asked"
        other = identities.difference(self.identity, target.identity)
        if other is not None or self._described.distributed is None:
            return other
        if target.package is None and not target.regions:
            return None  # torch asks for itself
        question, where = self._described.distributed
        at = f" ({where})" if where else ""
        return f"the code uses {question}{at}, of which a package has another process's answer"


def watched_reason() -> str | None:
    """Why tensors must not even be looked at right now: their sizes may be tensors, and whatever is done to them is noted."""
    if _tracing() is not None or torch.compiler.is_compiling():
        return "the call is being traced"
    return None if _transform() is None else "a functorch transform is active"


def process_reason() -> str | None:
    """What about the process forbids compiled code right now: modes that it would ignore. None when nothing does.

    Autocast is another matter: see `Levers.autocast_reason`.
    """
    if _function_modes() or _dispatch_modes():
        return "a torch function or dispatch mode is active (a default device is one)"
    watched = watched_reason()
    if watched is not None:
        return watched
    if _any_global_hook():
        return "there are global module hooks"
    if _forward_ad._current_level >= 0:
        return "forward-mode gradients are computed"
    # torch.compiler.set_stance, as of a torch._dynamo that is there.
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return None
    stance = getattr(getattr(dynamo, "_stance", None), "stance", "default")
    return None if stance == "default" else f"torch.compiler.set_stance asks for {stance}"


class Code:
    """One package's library, and what its outputs become: once, for however many submodules it answers."""

    def __init__(self, spec: PackageSpec, directory: Path) -> None:
        self.spec = spec
        self.rebuild = _output_builder(spec)
        self._path = directory / spec.library
        self._lock = ForkLock()
        self._opened: SharedObject | None = None

    def library(self) -> Library:
        """A container of its own. Raises NativeError, or Mismatch when the files do not fit each other."""
        with self._lock:
            if self._opened is None:
                self._opened = SharedObject(self._path)
        library = Library(self._opened)
        if library.outputs != self.spec.library_outputs:
            raise Mismatch(f"the library has {library.outputs} outputs, target.json says {self.spec.library_outputs}")
        return library


class BoundCode:
    """Compiled code with the weights of the module, or of the submodule at `path`. `match` first, then `run` what it gave.

    Whether the module is the one that was compiled is the caller's to know.
    """

    def __init__(self, code: Code, matcher: Matcher, state: ModuleState, path: str = "") -> None:
        self.match = matcher.match
        self._code = code
        self._rebuild = code.rebuild
        self._prefix = f"{path}." if path else ""
        self._state = state
        self._lock = ForkLock()
        self._library: Library | None = None

    def _bound_library(self) -> Library:
        """The library with this module's weights, loaded at its first use: a module may have many buckets."""
        with self._lock:
            library = self._library
            if library is not None and library.lost:
                library.abandon()
                library = None
            if library is None:
                library = self._library = self._bind()
            return library

    def _bind(self) -> Library:
        library = self._code.library()
        paths = dict(self._code.spec.constants)
        if library.constants.keys() != paths.keys():
            raise Mismatch("the library's constants are not those of target.json")
        tensors = {name: self._state.tensors[self._prefix + path] for name, path in paths.items()}
        library.bind(tensors)
        bound, at = library.bound, self._state.addresses
        if any(bound[name] != at[id(tensor)] for name, tensor in tensors.items()):
            raise Mismatch("weights were replaced while they were bound")
        return library

    def run(self, tensors: list[torch.Tensor]) -> Any:
        """The module's output. Raises NativeError, or Mismatch when the files do not fit each other."""
        library = self._library
        if library is None or library.lost:
            library = self._bound_library()
        return self._rebuild(library.run(tensors))


class BoundPackage:
    """One target's code with this module's weights: of the whole module. `match` first, then `answer`."""

    missed: Mapping[str, str] = MappingProxyType({})
    """As of a `RegionalPackage`: a whole module has no parts that could be missed."""
    runs_the_module = False
    """As of a `RegionalPackage`: nothing but our code runs, so an error is ours."""

    def __init__(self, target: Target, directory: Path, module: torch.nn.Module, state: ModuleState) -> None:
        if target.package is None:
            raise Mismatch("the target has no package")
        reason = state.against(target)
        if reason is not None:
            raise Mismatch(reason)
        self._code = BoundCode(Code(target.package, directory), Matcher(target.call, module.forward), state)
        self.match = self._code.match

    def answer(self, tensors: list[torch.Tensor], _args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> Any:
        """The module's output. Raises NativeError, or Mismatch when the files do not fit each other."""
        return self._code.run(tensors)

    def again(self, _module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """As `answer`, to a call that is not the user's. Raises Mismatch when it is not one of its own."""
        tensors = self.match(args, kwargs)
        if isinstance(tensors, str):
            raise Mismatch(tensors)
        return self._code.run(tensors)


def _output_builder(spec: PackageSpec) -> Callable[[list[torch.Tensor | None]], Any]:
    tree = pytree.treespec_loads(spec.out_spec)
    if tree.num_leaves != len(spec.outputs):
        raise Mismatch("the outputs of target.json do not fit their tree")
    plain = list(spec.outputs) == list(range(spec.library_outputs))
    if plain and tree.is_leaf():
        return lambda results: results[0]
    if plain and tree == pytree.tree_structure(tuple(range(tree.num_leaves))):
        return tuple
    constants = {
        position: const_value(entry) for position, entry in enumerate(spec.outputs) if isinstance(entry, ConstSpec)
    }
    indices = {position: entry for position, entry in enumerate(spec.outputs) if isinstance(entry, int)}

    def build(results: list[torch.Tensor | None]) -> Any:
        leaves = [
            results[indices[position]] if position in indices else constants[position]
            for position in range(tree.num_leaves)
        ]
        return pytree.tree_unflatten(leaves, tree)

    return build


def grad_reason(state: ModuleState, tensors: Sequence[torch.Tensor]) -> str | None:
    """Compiled code gives no gradients; None when nobody can miss them. `tensors` are all that the call passes."""
    if not _grad_enabled():
        return None
    if state.requires_grad:
        return "grad is enabled and parameters require it; call the model under torch.inference_mode() or no_grad()"
    if any(tensor.requires_grad for tensor in tensors):
        return "grad is enabled and an input requires it"
    return None
