"""Serves a module in parts: its own Python runs as it is, and the submodules that were compiled answer from their code.

Why it exists: a transformer is one block many times over. Compiled as a whole it costs minutes; one block, bound to the
weights of each, costs seconds and runs as fast. It is torch's own mechanism for that (`block.compile()`), filled with
our code: a submodule asks `_compiled_call_impl` first, if it has one.

That is put into the submodules' classes, never into a submodule: whatever copies, pickles or shows one finds what the user
left there, and a copy is another object, which answers with its own code and weights.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

import torch

from .bind import BoundCode, BoundPackage, Code, Mismatch, ModuleState, grad_reason, process_reason
from .calls import Matcher
from .hook import in_words
from .identity import describe
from .outside import let_through
from .parts import Part, Surroundings
from .patches import CALL, OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from .package import CallSpec, Target


class _Active(threading.local):
    """Which code answers for which submodule, in the call that this thread is in."""

    regions: Mapping[int, _Region] | None = None


_active = _Active()


class _Asked:
    """`_compiled_call_impl` of a class of submodules: for each what answers it in the call that this thread is in, or None.

    It sets nothing: what somebody gives a submodule of its own (`block.compile()`) comes first.
    """

    def __get__(self, block: torch.nn.Module | None, _kind: type | None = None) -> Callable[..., Any] | None:
        # Torch's compiler must see the module's own code. Not what else `is_compiling` tells, which another thread may
        # change between a submodule's two questions, whether there is something to call and what: see `_Region.ask`.
        if torch.compiler.is_dynamo_compiling():
            return None
        regions = _active.regions
        region = None if regions is None else regions.get(id(block))
        return None if region is None else region.ask

    def __reduce_ex__(self, _protocol: Any) -> Any:
        """None, which any class of modules has: where classes are copied or sent whole (cloudpickle)."""
        return type(None), ()


setattr(_Asked, OURS, _active)


def looks_like(module: torch.nn.Module, target: Target) -> bool:
    """Whether it has submodules of these names and classes; whether it is the module, its description tells."""
    tree = module.named_modules(remove_duplicate=False)
    return {path: type(part).__qualname__ for path, part in tree} == {
        path: part.class_name for path, part in target.identity.modules.items()
    }


def install(module: torch.nn.Module, target: Target) -> None:
    """Let the classes of the target's regions ask us at each call; to be done before the module is described.

    Without a call of ours around it, a submodule goes on as before. Raises Mismatch for one that is not there, or that
    was compiled on its own; nothing is done then.
    """
    blocks = []
    for path in (path for region in target.regions for path in region.paths):
        try:
            block = module.get_submodule(path)
        except AttributeError:
            raise Mismatch(f"submodule {path!r} is missing") from None
        # Also what `block.compile()` got from us: it would answer first.
        if _compiled_alone(block.__dict__.get(CALL)) or _compiled_alone(_of_class(type(block))):
            raise Mismatch(f"submodule {path!r} is compiled on its own already")
        if type(block) is torch.nn.Module:
            raise Mismatch(f"submodule {path!r} is of no class of its own")
        blocks.append(block)
    for block in blocks:
        # None, where somebody took a compiled call out again: it is the class's as well, but hides what that answers.
        block.__dict__.pop(CALL, None)
        if not isinstance(_of_class(type(block)), _Asked):  # or it is of a runtime that was imported anew
            type.__setattr__(type(block), CALL, _Asked())


def _of_class(kind: type) -> Any:
    return next(base.__dict__[CALL] for base in kind.__mro__ if CALL in base.__dict__)


def _compiled_alone(present: Any) -> bool:
    return present is not None and not hasattr(type(present), OURS)


#: Why a region runs as it is where its module sets something on it for the time of the call.
CHANGED = "the module that calls it has changed what it was compiled with"


class _Region:
    """The code of one submodule. A call that is not one that was compiled runs as it is, and is noted."""

    def __init__(
        self,
        code: BoundCode,
        block: torch.nn.Module,
        path: str,
        package: RegionalPackage,
        part: Part | None = None,
    ) -> None:
        """`part` is what is watched of the submodule, where anything is."""
        self._match, self._run = code.match, code.run
        self._block = block
        self._path = path
        # Not the package itself, which holds all its regions: it would live, and the weights with it, until Python looks for cycles.
        self._missed = package.missed
        self._part = part
        self._state = package.state
        self._autocast_reason = package.levers.autocast_reason
        self._broken: str | None = None

    def check(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor] | str:
        """The tensors to run, or why this call runs as it is.

        The module itself was looked at before its own call; the process, and the submodule, may have changed since: the
        module's own Python may enter modes of its own, and set what it likes on its submodules for the time of the call.
        """
        reason = self._broken or process_reason() or self._autocast_reason("cpu")
        if reason is not None:
            return reason
        if self._part is not None and not self._part.unchanged():
            return CHANGED
        tensors = self._match(args, kwargs)
        return tensors if isinstance(tensors, str) else grad_reason(self._state, tensors) or tensors

    def of(self, block: torch.nn.Module, part: Part) -> _Region:
        """The same code and weights for a submodule's twin."""
        made = copy.copy(self)
        made._block, made._part = block, part
        return made

    def ask(self, *args: Any, **kwargs: Any) -> Any:
        """The submodule's answer, as `_compiled_call_impl` is called."""
        return self._block._call_impl(*args, **kwargs) if torch.compiler.is_compiling() else self(args, kwargs)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        failed = None
        try:
            tensors = self.check(args, kwargs)
            if not isinstance(tensors, str):
                return self._run(tensors)
            self._missed.setdefault(self._path, tensors)
        except Exception as error:  # whatever it is, nothing but our own code has run
            let_through(error)
            failed = in_words(error)[:300]
        answer = self._block._call_impl(*args, **kwargs)
        # A call that the block itself refuses as well says nothing against the code.
        if failed is not None:
            self._broken = self._missed[self._path] = failed
        return answer


class Closely(Part):
    """As a Part, and all that the submodule's identity is computed from, and where its weights are. Takes long."""

    def __init__(self, around: Surroundings, block: torch.nn.Module) -> None:
        super().__init__(around, block)
        self._state = ModuleState(block)

    def unchanged(self) -> bool:
        """Whether all of it is as it was."""
        return super().unchanged() and self._state.unchanged()


class RegionalPackage:
    """One target's code for parts of this module, with their weights. `match` first, then `answer`.

    `missed` names the regions of which a call had to run without code, with the first reason of each.
    """

    runs_the_module = True
    """What `answer` raises is raised by the module's own Python; where our code fails, the submodule runs as it is."""

    def __init__(
        self, target: Target, directory: Path, module: torch.nn.Module, state: ModuleState, *, closely: bool = False
    ) -> None:
        """`closely`: each region is described by itself, and all that it is made of is looked at whenever it is asked."""
        reason = state.against(target)
        if reason is not None:
            raise Mismatch(reason)
        install(module, target)  # for its complaints: it was done before the module was described
        self.state = state
        self.missed: dict[str, str] = {}
        self.match = Matcher(target.call, module.forward).match
        self._module = module
        self.levers = target.levers
        self._target = target
        self._regions: dict[int, _Region] = {}
        around = Surroundings(state.watch)
        for region in target.regions:
            code = Code(region.package, directory)
            matchers: dict[type, Matcher] = {}
            for path in region.paths:
                block = module.get_submodule(path)
                matcher = _matcher(region.call, block, matchers)
                part = Closely(around, block) if closely else Part(around, block)
                self._regions[id(block)] = _Region(BoundCode(code, matcher, state, path), block, path, self, part)

    def regions_check(self, args: tuple[Any, ...]) -> None:
        """All that is checked at the regions of one call which gives each of them `args`; for measuring."""
        for region in self._regions.values():
            region.check(args, {})

    def answer(self, _tensors: list[torch.Tensor], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """The module's output. Raises what the module raises."""
        before, _active.regions = _active.regions, self._regions
        try:
            # Not through __call__: the module itself may be what asks us.
            return self._module._call_impl(*args, **kwargs)
        finally:
            _active.regions = before

    def again(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """As `answer`, with the Python of `module`, a twin of this one's: what it leaves behind is left there."""
        install(module, self._target)
        around = Surroundings(describe(module).watch)
        blocks = [
            (module.get_submodule(path), self._regions[id(self._module.get_submodule(path))])
            for region in self._target.regions
            for path in region.paths
        ]
        before = _active.regions
        _active.regions = {id(block): region.of(block, Part(around, block)) for block, region in blocks}
        try:
            return module._call_impl(*args, **kwargs)
        finally:
            _active.regions = before


def _matcher(call: CallSpec, block: torch.nn.Module, known: dict[type, Matcher]) -> Matcher:
    """What the calls of a region look like: a matter of its class, unless this one's `forward` is its own."""
    if "forward" in block.__dict__:
        return Matcher(call, block.forward)
    kind = type(block)
    if kind not in known:
        known[kind] = Matcher(call, block.forward)
    return known[kind]


def open_package(
    target: Target, directory: Path, module: torch.nn.Module, state: ModuleState, *, closely: bool = False
) -> BoundPackage | RegionalPackage:
    """The target's code bound to the module; `closely` as of RegionalPackage. Raises Mismatch."""
    if target.regions:
        return RegionalPackage(target, directory, module, state, closely=closely)
    return BoundPackage(target, directory, module, state)
