"""Says whether the image's torch can build and serve packages, by looking for what they need.

Why it exists: version numbers lie (nightlies, vendors' builds), and a compile that fails after ten minutes for want of
one symbol helps nobody. Every target's process looks first: what it has to import for that, compiling needs as well.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from preheat_compiler.faults import describe
from preheat_compiler.progress import say

if TYPE_CHECKING:
    from pathlib import Path

#: What was found, below a target's work folder; it tells the driver that importing torch is not what went wrong.
FILE = "torch.json"

#: (module, attribute, what it is needed for); an empty attribute is the module itself.
NEEDED = (
    ("torch", "compile", "torch.compile"),
    ("torch", "_import_device_backends", "loading a backend by entry point (torch.backends)"),
    ("torch.export", "export", "exporting a module"),
    ("torch.export", "Dim", "ranges of sizes"),
    ("torch.utils._pytree", "treespec_loads", "reading a call's structure"),
    ("torch._C._aoti", "unsafe_alloc_void_ptrs_from_tensors", "calling a package without the interpreter's lock"),
    ("torch._C._aoti", "alloc_tensors_by_stealing_from_void_ptrs", "calling a package without the interpreter's lock"),
    ("torch._inductor", "aot_compile", "building a package"),
    ("torch._inductor.config", "always_keep_tensor_constants", "packages without weights"),
    ("torch._inductor.config", "joint_graph_constant_folding", "packages without weights"),
    ("torch._inductor.config", "aot_inductor.package_constants_in_so", "packages without weights"),
    # Without it code is for the building CPU, and an older one dies of it.
    ("torch._inductor.config", "cpp.march", "code for a class of CPUs"),
)


@dataclass(frozen=True, kw_only=True)
class Torch:
    """What there is; `reason` is None when packages can be built, else TorchMissing or TorchUnsupported."""

    version: str | None
    reason: str | None
    message: str


def find() -> Torch:
    """Import torch and look for everything in NEEDED."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name == "torch":
            return Torch(
                version=None,
                reason="TorchMissing",
                message=f"{sys.executable} cannot import torch: is it the Python that serves the model?",
            )
        return Torch(version=None, reason="TorchUnsupported", message=f"importing torch: {describe(error)}")
    except Exception as error:
        return Torch(version=None, reason="TorchUnsupported", message=f"importing torch: {describe(error)}")
    version = str(torch.__version__)
    # Set in the image it is seen nowhere else; without this it would show as a proof that fails.
    autoload = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1")
    if autoload != "1":
        return Torch(
            version=version,
            reason="TorchUnsupported",
            message=f"TORCH_DEVICE_BACKEND_AUTOLOAD={autoload} is set, so torch loads no Preheat in pods either. "
            "Remove it from the image or the pod template, or set it to 1.",
        )
    missing = [f"{module}.{name} ({purpose})" for module, name, purpose in NEEDED if not _has(module, name)]
    if missing:
        return Torch(
            version=version,
            reason="TorchUnsupported",
            message=f"torch {version} lacks {'; '.join(missing)}. Use torch 2.13 or later.",
        )
    if absent := _absent_for_compiling():
        return Torch(
            version=version,
            reason="TorchUnsupported",
            message=f"torch {version} cannot compile here: it imports {absent}, which the image lacks. "
            f"Install it in the image (pip install {absent}); pods do not need it.",
        )
    return Torch(version=version, reason=None, message=f"torch {version}")


def _absent_for_compiling() -> str | None:
    """The package without which torch builds no C++ code: until 2.10 its wheels did not ask for setuptools."""
    try:
        importlib.import_module("torch.utils.cpp_extension")
    except ModuleNotFoundError as error:
        return error.name
    return None


def _has(module: str, name: str) -> bool:
    parts = module.split(".")
    found: object = importlib.import_module(parts[0])
    for part in parts[1:]:
        # torch._C._aoti is an attribute that cannot be imported; others are modules not yet imported.
        if not hasattr(found, part):
            try:
                importlib.import_module(f"{found.__name__}.{part}")  # type: ignore[attr-defined]
            except ImportError:
                return False
        found = getattr(found, part)
    for part in name.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def tell(file: Path) -> bool:
    """Write what was found to `file`, for the driver, and say it; returns whether packages can be built."""
    found = find()
    file.write_text(json.dumps(asdict(found)), encoding="utf-8")
    if found.reason is None:
        say(found.message)
    return found.reason is None
