"""Packages for the experiments, built once and laid out as a pod would have them: a library and its device code."""

from __future__ import annotations

import json
import time
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

import torch

#: What the product sets on a CPU so that no weight ends up in the code (preheat_compiler/package.py).
WEIGHTLESS = {
    "aot_inductor.package_constants_in_so": False,
    "always_keep_tensor_constants": True,
    "joint_graph_constant_folding": False,
}
#: What torch's documentation offers for it.
DOCUMENTED = {"aot_inductor.package_constants_in_so": False}


def build(net: torch.nn.Module, x: torch.Tensor, folder: Path, *, options: dict[str, Any] | None = None) -> Path:
    """Build the package of `net` for inputs like `x` into `folder`; returns the archive."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = folder / "model.pt2"
    asked = WEIGHTLESS if options is None else options
    known = {name: value for name, value in asked.items() if _known(name)}
    begin = time.monotonic()
    with torch.no_grad():
        program = torch.export.export(net, (x,))
        exported = time.monotonic()
        torch._inductor.aoti_compile_and_package(program, package_path=str(archive), inductor_configs=known)
    facts = {
        "exportSeconds": exported - begin,
        "compileSeconds": time.monotonic() - exported,
        "optionsThisTorchLacks": sorted(asked.keys() - known.keys()),
    }
    (folder / "build.json").write_text(json.dumps(facts))
    return archive


def _known(option: str) -> bool:
    import torch._inductor.config as found

    for part in option.split("."):
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def unpack(archive: Path, folder: Path) -> tuple[Path, Path]:
    """The library, and the folder of its device code (the library's own: torch puts both side by side)."""
    with zipfile.ZipFile(archive) as package:
        package.extractall(folder)
    (library,) = folder.rglob("*.so")
    return library, library.parent


def contents(archive: Path) -> dict[str, Any]:
    """What is in the archive: sizes by kind of file, its metadata, and what the device code says it is for."""
    kinds: dict[str, list[int]] = {}
    metadata: dict[str, Any] = {}
    codes = []
    with zipfile.ZipFile(archive) as package:
        for entry in package.infolist():
            suffix = PurePosixPath(entry.filename).suffix or "none"
            kinds.setdefault(suffix, []).append(entry.file_size)
            if entry.filename.endswith("metadata.json"):
                metadata.update(json.loads(package.read(entry)))
            if suffix in (".cubin", ".ptx", ".fatbin"):
                codes.append(device_code(PurePosixPath(entry.filename).suffix, package.read(entry)))
    return {
        "files": {suffix: {"count": len(sizes), "bytes": sum(sizes)} for suffix, sizes in sorted(kinds.items())},
        "metadata": metadata,
        "deviceCode": sorted(set(codes)),
    }


def device_code(suffix: str, data: bytes) -> str:
    """What one file of device code is, in a word: its kind, and of an ELF its machine and flags, uninterpreted."""
    if data[:4] == b"\x7fELF":
        flags = int.from_bytes(data[48:52], "little")
        return f"{suffix} ELF machine {int.from_bytes(data[18:20], 'little')} e_flags {flags:#x}"
    target = next((line for line in data[:4000].splitlines() if line.startswith(b".target")), b"")
    return f"{suffix} {target.decode(errors='replace') or data[:8].hex()}"


def weights_of(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by path."""
    return dict([*net.named_parameters(), *net.named_buffers()])


def randomise(net: torch.nn.Module, seed: int) -> None:
    """Other floating weights, in place; variances stay positive."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, tensor in weights_of(net).items():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.1 if name.endswith("var") else torch.randn_like(tensor) * 0.1)
