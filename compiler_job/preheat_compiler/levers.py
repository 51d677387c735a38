"""Turns the settings of a CompiledModel into torch's own: modes, Inductor's options, autocast.

Why it exists: every lever of torch.compile shall reach torch unchanged, and a mistyped one must not silently do nothing
for months. A few options, though, are what the proofs rest on: with them a package would hold weights, run on other
CPUs than promised, or not be found by pods. Those are refused, each with its reason.
"""

from __future__ import annotations

import difflib
import types
import typing
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from preheat_compiler.verdict import TargetError
from preheat_runtime.levers import Levers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from preheat_compiler.request import TorchSettings

MODES = {
    "Default": "default",
    "ReduceOverhead": "reduce-overhead",
    "MaxAutotune": "max-autotune",
    "MaxAutotuneNoCudagraphs": "max-autotune-no-cudagraphs",
}
_WEIGHTS = "weights would end up in the code, and other weights would be answered wrong"
_CPU_CLASS = "what CPU the code is for is said by hardware[].cpuIsa"
_CACHES = "which caches are used, and where, is what pods and compile Jobs have to agree on"
#: Options that cannot be chosen, by what their names begin with, and why.
RESERVED = {
    "aot_inductor": "how a package is made is agreed with the pods that bind and run it",
    "always_keep_tensor_constants": _WEIGHTS,
    "joint_graph_constant_folding": _WEIGHTS,
    "freezing": _WEIGHTS,
    "cpp.weight_prepack": _WEIGHTS,
    "cpp.march": _CPU_CLASS,
    "cpp.simdlen": _CPU_CLASS,
    "cpp.vec_isa_ok": _CPU_CLASS,
    "cpp.cxx": "the compiler is the image's, or what the variable CXX names",
    "cpp.threads": "the number of threads is the pod's own",
    "cpp.dynamic_threads": "the number of threads is the pod's own",
    "cpp_wrapper": "the tier decides about it",
    "fx_wrapper": "the tier decides about it",
    "force_disable_caches": _CACHES,
    "fx_graph_cache": _CACHES,
    "fx_graph_remote_cache": _CACHES,
    "autotune_local_cache": _CACHES,
    "autotune_remote_cache": _CACHES,
    "bundled_autotune_remote_cache": _CACHES,
    "bundle_triton_into_fx_graph_cache": _CACHES,
    "unsafe_skip_cache_dynamic_shape_guards": _CACHES,
    "unsafe_marked_cacheable_functions": _CACHES,
    "cpp_cache_precompile_headers": _CACHES,
    "triton.cudagraph": "CUDA graphs are asked for by torch.mode",
    "trace.": "it writes files for people who debug torch, and changes no code",
    "debug": "it writes files for people who debug torch, and changes no code",
}  # fmt: skip


def levers_of(settings: TorchSettings) -> Levers:
    """The settings in torch's words. Raises TargetError(OptionRefused) naming the option and what to do."""
    return Levers(
        mode=MODES[settings.mode],
        options={name: _option(name, value) for name, value in settings.options},
        autocast=settings.autocast,
    )


def inductor_options(levers: Levers) -> dict[str, Any]:
    """Everything the levers say to Inductor: what the mode stands for, and the options."""
    import torch

    return {**torch._inductor.list_mode_options(levers.mode), **levers.options}


@contextmanager
def as_served(levers: Levers, kind: str) -> Iterator[None]:
    """Inside, torch is as it is around a call in the pod: without gradients, and under the autocast that was asked for.

    `kind` is that of the device that is computed on.
    """
    import torch

    with ExitStack() as modes:
        modes.enter_context(torch.no_grad())
        if levers.autocast is not None:
            modes.enter_context(torch.autocast(kind, dtype=getattr(torch, levers.autocast)))
        yield


def _option(name: str, text: str) -> bool | int | float | str:
    from torch._inductor import config

    where = f"torch.options {name!r}"
    for reserved, why in RESERVED.items():
        if name.startswith(reserved):
            raise TargetError("OptionRefused", f"{where} cannot be set: {why}. Remove it.")
    known = config.get_config_copy()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See torch._inductor.config for the names."
        raise TargetError("OptionRefused", f"{where} is no option of this torch's Inductor. {hint}")
    kinds = _kinds(config, name, known[name])
    for kind in (bool, int, float, str):
        if kind not in kinds:
            continue
        try:
            return _parse(text, kind)
        except ValueError:
            continue
    wanted = " or ".join(kind.__name__ for kind in (bool, int, float, str) if kind in kinds)
    if not wanted:
        raise TargetError("OptionRefused", f"{where} takes a value that text cannot give. Remove it.")
    raise TargetError("OptionRefused", f"{where}: {text!r} is no {wanted}. Correct the value.")


def _kinds(config: Any, name: str, now: object) -> set[type]:
    """The plain types an option may have; those of its value now where torch does not tell its type."""
    declared = config.get_type(name) if hasattr(config, "get_type") else type(now)
    if typing.get_origin(declared) in (typing.Union, types.UnionType):
        found = {typing.get_origin(each) or each for each in typing.get_args(declared)}
    elif typing.get_origin(declared) is typing.Literal:
        found = {type(each) for each in typing.get_args(declared)}
    else:
        found = {typing.get_origin(declared) or declared}
    return {each for each in found if each in (bool, int, float, str)}


def _parse(text: str, kind: type) -> bool | int | float | str:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    result: int | float | str = kind(text)
    return result
