"""Holds a package against its module in all that comparing values does not show.

Why it exists: a package answers and does nothing else, in whatever mode it is called. Whether that is all the module does
is asked of one that is to be built, before the compiler runs, and of one that an earlier revision had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_runtime.bind import Mismatch
from preheat_runtime.opened import OpenPackage
from preheat_runtime.package import TARGET_FILE, Target

from .levers import as_served
from .package_call import plan_call
from .package_effects import answer_alone
from .package_errors import NotPackageable
from .package_found import left_as_found
from .package_modes import require_one_answer
from .package_proof import compare_forms, form_of

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from preheat_runtime.levers import Levers

    from .package_call import ExampleCall, PlannedCall
    from .package_proof import Form


def check_package(directory: Path, module: torch.nn.Module, example: ExampleCall, *, levers: Levers) -> None:
    """Look at what comparing values does not show, of a package that was not built just now.

    Raises NotPackageable for a module that does more than answer or answers otherwise in another mode, and for a package
    whose answer has another form.
    """
    call = plan_call(module, example, None)
    eager = form_of_eager(module, call, levers)
    with as_served(levers, "cpu"):
        compare(module, call, directory, eager)


def check_region(block: torch.nn.Module, example: ExampleCall, *, levers: Levers) -> None:
    """As `check_package`, of a submodule whose code lies in the package of its module; the code itself is not looked at."""
    form_of_eager(block, plan_call(block, example, None), levers)


def form_of_eager(module: torch.nn.Module, call: PlannedCall, levers: Levers) -> Form:
    """The form of eager's answer. Raises NotPackageable for a module that does more than answer, or not always the same."""
    with as_served(levers, "cpu"):
        with left_as_found(module):
            eager = form_of(module, call, answer_alone(module, call))
        require_one_answer(module, call)
    return eager


def compare(module: torch.nn.Module, call: PlannedCall, directory: Path, eager: Form) -> None:
    """Hold the package in `directory` against the form of eager's answer; raises NotPackageable."""
    try:
        compare_forms(module, call, OpenPackage(Target.read(directory / TARGET_FILE), directory, module), eager)
    except Mismatch as error:
        # Tracing ran the module's Python; what it left behind would not be there before a pod's first call.
        raise NotPackageable(
            f"once it has run, the module would not be taken for the one that was compiled: {error}"
        ) from error
