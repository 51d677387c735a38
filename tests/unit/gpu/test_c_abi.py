"""What ctypes calls is what torch's own header declares: a wrong type would only show as a crash, and on a GPU."""

from __future__ import annotations

import ctypes
import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from preheat_runtime import native

if TYPE_CHECKING:
    import pytest

GPU = Path(__file__).parents[2] / "gpu"
HEADER = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_runtime/interface.h"


def declared() -> dict[str, list[str]]:
    """Every function of the header, with the types of its arguments."""
    text = re.sub(r"//[^\n]*", "", HEADER.read_text())
    found = re.findall(r"AOTIRuntimeError\s+(AOTInductor\w+)\s*\(([^)]*)\)", text)
    return {
        name: [re.sub(r"\s*\w+$", "", " ".join(each.split())) for each in arguments.split(",")]
        for name, arguments in found
    }


def as_ctypes(declaration: str) -> object:
    if declaration == "const char*":
        return ctypes.c_char_p
    if declaration.endswith(("*", "Handle")):
        return ctypes.c_void_p
    return {"size_t": ctypes.c_size_t, "bool": ctypes.c_bool}[declaration]


def test_the_experiments_call_what_the_header_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GPU))
    signatures = importlib.import_module("c_abi").SIGNATURES
    functions = declared()
    assert "AOTInductorGetLastError" in functions
    for name, types in signatures.items():
        assert types == [as_ctypes(each) for each in functions[f"AOTInductorModelContainer{name}"]], name


def test_the_runtime_calls_what_the_header_declares() -> None:
    functions = declared()
    for name in native._FUNCTIONS:
        assert f"AOTInductorModelContainer{name}" in functions
    # In the order in which Library.run and Library.bind give them.
    assert functions["AOTInductorModelContainerRun"] == [
        "AOTInductorModelContainerHandle", "AtenTensorHandle*", "size_t", "AtenTensorHandle*", "size_t",
        "AOTInductorStreamHandle", "AOTIProxyExecutorHandle",
    ]  # fmt: skip
    assert functions["AOTInductorModelContainerUpdateUserManagedConstantBufferPairs"] == [
        "AOTInductorModelContainerHandle", "const AOTInductorConstantMapEntry*", "size_t", "bool", "bool",
    ]  # fmt: skip
    assert functions["AOTInductorModelContainerCreateWithDevice"] == [
        "AOTInductorModelContainerHandle*", "size_t", "const char*", "const char*",
    ]  # fmt: skip


def test_an_entry_is_laid_out_as_in_the_header() -> None:
    (fields,) = re.findall(r"struct AOTInductorConstantMapEntry \{([^}]*)\}", HEADER.read_text())
    assert [" ".join(each.split()) for each in fields.split(";") if each.strip()] == [
        "const char* name",
        "AtenTensorHandle handle",
    ]
    assert [name for name, _ in native._ConstantEntry._fields_] == ["name", "handle"]
