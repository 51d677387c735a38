"""What `torch.compile(model)` returns when Preheat answers: a module that behaves like torch's OptimizedModule.

Why it exists: people read attributes of the compiled model, save its state_dict, move it, switch its mode and test its
type. All of that must go on as with the real one, and none of it may import torch._dynamo, which takes two seconds.
"""

from __future__ import annotations

import copy
import functools
import sys
from typing import TYPE_CHECKING, Any

import torch

from .patches import OURS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .serve import Server

_OWN = frozenset({"_orig_mod", "_preheat_server", "_preheat_arguments", "_preheat_ready", "__dict__"})


class PreheatedModule(torch.nn.Module):
    """Holds the user's module as `_orig_mod`, so that names in state_dict are those of torch's own wrapper."""

    _preheat_wrapper = True
    _orig_mod: torch.nn.Module
    _preheat_server: Server

    def __init__(self, module: torch.nn.Module, server: Server, arguments: dict[str, Any]) -> None:
        object.__setattr__(self, "_preheat_ready", False)
        object.__setattr__(self, "_orig_mod", module)
        super().__init__()
        self._orig_mod = module
        object.__setattr__(self, "_preheat_server", server)
        object.__setattr__(self, "_preheat_arguments", arguments)
        object.__setattr__(self, "_preheat_ready", True)
        # Registering it as a submodule has removed it already in the torch versions seen; it must not be in both.
        self.__dict__.pop("_orig_mod", None)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """torch's OptimizedModule to whoever has imported it, so that isinstance says what it always said."""
        loaded = sys.modules.get("torch._dynamo.eval_frame")
        found: type = getattr(loaded, "OptimizedModule", PreheatedModule)
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer one call."""
        # Whoever traces a bigger function, or exports, must see the module's own code.
        if torch.compiler.is_compiling():
            return self._orig_mod(*args, **kwargs)
        return self._preheat_server.answer(args, kwargs)

    @property
    def training(self) -> bool:
        """The user's module's own mode."""
        return bool(self._orig_mod.training)

    @training.setter
    def training(self, value: bool) -> None:
        # nn.Module.__init__ sets a default; only later settings are meant.
        if self._preheat_ready:
            self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        if name in ("dynamo_ctx", "_torchdynamo_orig_callable", "get_compiler_config"):
            return getattr(self._preheat_server.fallback.compiled, name)
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN or hasattr(PreheatedModule, name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in _OWN or hasattr(PreheatedModule, name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __dir__(self) -> Iterable[str]:
        return [*dir(self._orig_mod), *super().__dir__()]

    # A copy, in this process or another, is compiled anew: bound addresses mean nothing there.
    def __reduce_ex__(self, protocol: Any) -> Any:
        # By torch's own name, so that it can be read where Preheat is not.
        arguments = self._preheat_arguments
        return (functools.partial(torch.compile, **arguments) if arguments else torch.compile), (self._orig_mod,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return torch.compile(copy.deepcopy(self._orig_mod, memo), **self._preheat_arguments)


def is_preheated(model: Any) -> bool:
    """Whether it is what `torch.compile` returned, also from this package before it was imported anew."""
    return hasattr(type(model), "_preheat_wrapper")


def callable_for(server: Server, method: Any) -> Any:
    """What `module.compile()` stores: a function with the name of the method it stands for."""

    @functools.wraps(method)
    def answer(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return method(*args, **kwargs)
        return server.answer(args, kwargs)

    setattr(answer, OURS, server)
    answer._torchdynamo_orig_callable = method  # type: ignore[attr-defined]
    return answer
