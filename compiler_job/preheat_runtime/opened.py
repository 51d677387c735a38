"""A package as the compile Job proves it: the pod's own code path, without anything to fall back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .bind import Mismatch, ModuleState, grad_reason, process_reason
from .regions import install, open_package

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from .package import Target


class OpenPackage:
    """A package with its checks and without a fall back: what does not fit raises Mismatch. For proofs."""

    def __init__(self, target: Target, directory: Path, module: torch.nn.Module) -> None:
        install(module, target)
        self._state = ModuleState(module)
        self._levers = target.levers
        self._package = open_package(target, directory, module, self._state, closely=True)

    @property
    def missed(self) -> Mapping[str, str]:
        """The regions that could not answer a call, with the first reason of each."""
        return self._package.missed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer one call from the package, or raise Mismatch with the reason."""
        reason = process_reason() or self._levers.autocast_reason("cpu")
        if reason is None and not self._state.unchanged():
            reason = "the module was changed after the package was bound to it"
        if reason is not None:
            raise Mismatch(reason)
        tensors = self._package.match(args, kwargs)
        if isinstance(tensors, str):
            raise Mismatch(tensors)
        reason = grad_reason(self._state, tensors)
        if reason is not None:
            raise Mismatch(reason)
        return self._package.answer(tensors, args, kwargs)
