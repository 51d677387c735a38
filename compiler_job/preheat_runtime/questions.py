"""What code asks torch about the process: how many threads, which backends are on, which ranks work together.

Why it exists: such an answer is decided when the code is traced, in the compile Job, and a pod has another one. Modes of a
call, which most code asks for, are looked at elsewhere (`fingerprint.settings`, `bind.process_reason`, `levers`); here is
the table of all other questions. What follows from one is the user's to see, so each comes with its `file:line`.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Code that names anything of these belongs to a group of processes, where a Job has one alone.
_DISTRIBUTED = ("torch.distributed", "torch.nn.parallel", "torch._C._distributed")
#: Asked of the number of processors that a container has: never the Job's.
THREADS = frozenset({"torch.get_num_threads", "torch.get_num_interop_threads"})
#: Asked of the machine, and the same as long as the process lives.
_MACHINE = frozenset(
    {
        "torch.cuda.is_available", "torch.cuda.device_count", "torch.xpu.is_available", "torch.mps.is_available",
        "torch.accelerator.is_available", "torch.accelerator.device_count", "torch.backends.mps.is_available",
    }
)  # fmt: skip
#: Settings that may change between two calls: attributes of what lies in `torch.backends`.
_SETTINGS = frozenset(
    {
        "enabled", "deterministic", "benchmark", "benchmark_limit", "allow_tf32", "fp32_precision", "strategy", "engine",
        "immediate", "allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation", "get_fastpath_enabled", "flash_sdp_enabled", "math_sdp_enabled", "cudnn_sdp_enabled",
        "mem_efficient_sdp_enabled", "fp16_bf16_reduction_math_sdp_allowed", "preferred_linalg_library",
        "preferred_blas_library",
    }
)  # fmt: skip
_LAST = frozenset(name.rpartition(".")[2] for name in THREADS | _MACHINE) | _SETTINGS
#: Without one of these names, code asks nothing but through what its globals stand for.
_HINTS = _LAST | {"distributed", "torch.distributed"}

_KINDS = {"LOAD_ATTR": "ATTR", "LOAD_METHOD": "ATTR", "IMPORT_NAME": "IMPORT", "IMPORT_FROM": "FROM"}
_OF_NAMES = (
    "LOAD_GLOBAL",
    "LOAD_NAME",
    "LOAD_FAST",
    "LOAD_DEREF",
    "STORE_FAST",
    "STORE_NAME",
    "STORE_DEREF",
    "STORE_GLOBAL",
)


def is_distributed(name: str) -> bool:
    """Whether a module, function or class of this full name is of torch.distributed."""
    return name.startswith(_DISTRIBUTED)


def is_setting(name: str) -> bool:
    """Whether the answer to this question may change while the process lives."""
    return name.startswith("torch.backends.") and name.rpartition(".")[2] in _SETTINGS


def full_name(value: Any) -> str:
    """The full name of a module, function or class; empty for anything else, which is not asked."""
    if isinstance(value, types.ModuleType):
        return str(value.__name__)
    if type(value) in (types.FunctionType, types.BuiltinFunctionType) or isinstance(value, type):
        return f"{value.__module__}.{value.__name__}"
    return ""


def asked(code: types.CodeType, scope: dict[str, Any], names: frozenset[str]) -> Iterator[tuple[str, int]]:
    """The full names of all that code asks, by what its names stand for in `scope`, each with its line.

    `names` are all names in the code.
    """
    for name in names & scope.keys():
        whole = full_name(scope[name])
        if _is_question(whole):
            yield whole, _line_of(code, name)
    if names.isdisjoint(_HINTS):
        return
    for base, attributes, line in _chains(code):
        held = scope.get(base)
        start = base if base.startswith("torch") and held is None else full_name(held)
        for count in range(1, len(attributes) + 1):
            whole = ".".join((start, *attributes[:count]))
            if _is_question(whole):
                yield whole, line
                break
        else:
            if not attributes and _is_question(start):
                yield start, line


def answer(name: str) -> str:
    """What torch answers now, in words."""
    value: Any = sys.modules["torch"]
    try:
        for part in name.split(".")[1:]:
            value = getattr(value, part)
        return str(value() if callable(value) else value)
    except Exception as error:  # an attribute that this torch does not have, a driver that fails
        return type(error).__name__


def _is_question(name: str) -> bool:
    return is_distributed(name) or name in THREADS or name in _MACHINE or is_setting(name)


def _line_of(code: types.CodeType, name: str) -> int:
    """Where code first names something; where it begins, if that is not found."""
    for each in _with_inner(code):
        if name in each.co_names:
            line = each.co_firstlineno
            for step in dis.get_instructions(each):
                line = _line(step, line)
                if step.argval == name:
                    return line
    return code.co_firstlineno


@functools.lru_cache(maxsize=1024)
def _chains(code: types.CodeType) -> tuple[tuple[str, tuple[str, ...], int], ...]:
    """Each name that code takes attributes of, with those attributes in turn; what it imports goes by its full name."""
    found: list[tuple[str, tuple[str, ...], int]] = []
    for each in _with_inner(code):
        base, begun = "", 0
        attributes: list[str] = []
        bound: dict[str, str] = {}
        imported = taken = ""
        for kind, name, line in _steps(each):
            if kind == "ATTR" and base:
                attributes.append(name)
                continue
            if base:
                found.append((base, tuple(attributes), begun))
            base = ""
            if kind == "IMPORT":
                imported = taken = name
                found.append((imported, (), line))
            elif kind == "FROM":
                taken = imported if imported.endswith(f".{name}") else f"{imported}.{name}"
                found.append((taken, (), line))
            elif kind == "STORE" and taken:
                # `import torch.backends` binds `torch`.
                bound[name] = taken if taken != imported else imported.partition(".")[0]
                taken = ""
            elif kind == "LOAD":
                base, begun, attributes = bound.get(name, name), line, []
        if base:
            found.append((base, tuple(attributes), begun))
    return tuple(found)


def _steps(code: types.CodeType) -> Iterator[tuple[str, str, int]]:
    """What byte code does with names, in order: what kind of step it is, the name, and the line."""
    line = code.co_firstlineno
    for step in dis.get_instructions(code):
        if step.opname in ("EXTENDED_ARG", "CACHE"):
            continue
        line = _line(step, line)
        if step.opname in _KINDS:
            yield _KINDS[step.opname], step.argval, line
        elif not step.opname.startswith(_OF_NAMES):
            yield "", "", line
        elif isinstance(step.argval, tuple):  # since Python 3.13 one step may do two: STORE_FAST_LOAD_FAST
            yield step.opname.partition("_")[0], step.argval[0], line
            yield "STORE" if step.opname.endswith("STORE_FAST") else "LOAD", step.argval[1], line
        else:
            yield step.opname.partition("_")[0], step.argval, line


def _with_inner(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _with_inner(const)


def _line(step: dis.Instruction, before: int) -> int:
    line = getattr(step, "line_number", None)  # since Python 3.13, where starts_line is a bool
    if line is None and type(step.starts_line) is int:
        line = step.starts_line
    return before if line is None else line
