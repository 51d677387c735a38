from __future__ import annotations

import errno
import importlib.util
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from preheat_compiler.faults import common_reason, describe, failed, user_frame

if TYPE_CHECKING:
    from pathlib import Path


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "OutOfMemory"),
        (OutOfMemoryError("CUDA"), "OutOfMemory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "OutOfMemory"),
        (RuntimeError("g++: fatal error: Killed signal terminated program cc1plus"), "OutOfMemory"),
        (OSError(errno.ENOSPC, "No space left on device"), "DiskFull"),
        (RuntimeError("/tmp/x.cpp: fatal error: error writing: No space left on device"), "DiskFull"),
        (RuntimeError("No CUDA GPUs are available"), "DeviceMissing"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "OutOfMemory"),
        (ValueError("shape"), None),
    ],
)
def test_reasons_that_can_come_up_anywhere(error: BaseException, reason: str | None) -> None:
    assert common_reason(error) == reason
    wrapper = RuntimeError("while compiling")
    wrapper.__cause__ = error
    assert common_reason(wrapper) == reason


def test_the_remedy_is_the_reasons_own() -> None:
    ended = failed("CompileFailed", "building", MemoryError("big"), remedy="Ask somebody.")
    assert ended.reason == "OutOfMemory"
    assert "memory limit" in str(ended)
    assert "Ask somebody" not in str(ended)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."), "choose nodes whose GPU has more"),
        (OutOfMemoryError("Allocation on device 0 would exceed allowed memory."), "choose nodes whose GPU has more"),
        (RuntimeError("CUDA error: out of memory"), "choose nodes whose GPU has more"),
        (RuntimeError("Triton Error [CUDA]: out of memory"), "choose nodes whose GPU has more"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "choose nodes whose GPU has more"),
        (MemoryError("big"), "Raise the memory limit"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "Raise the memory limit"),
        (
            RuntimeError("the model of CUDA tutorials asked for much; then the host was out of memory"),
            "Raise the memory",
        ),
    ],
)
def test_no_limit_of_a_container_is_said_to_help_where_it_is_the_gpus_memory(error: BaseException, words: str) -> None:
    ended = failed("CompileFailed", "building", error, remedy="Ask somebody.")
    assert ended.reason == "OutOfMemory"
    assert words in str(ended)


COUNT = (
    "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might "
    "have already set an error?"
)
#: What torch 2.15 and libcudart 13 hold of it, word by word.
DEVICES = [
    ("CUDA error: no CUDA-capable device is detected", "request it"),
    ("Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU", "request it"),
    ("Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False.", "request it"),
    ("Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1.", "request it"),
    ("0 active drivers ([]). There should only be one.", "request it"),
    (
        "The NVIDIA driver on your system is too old (found version 12020). Please update your GPU driver",
        "newer driver",
    ),
    ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "newer driver"),
    ("CUDA error: the provided PTX was compiled with an unsupported toolchain.", "newer driver"),
    (
        f"{COUNT} Error 804: forward compatibility was attempted on non supported HW",
        "newer driver",
    ),
    ("CUDA error: system has unsupported display driver / cuda driver combination", "newer driver"),
    ("CUDA error: no kernel image is available for execution on the device", "has no code for the node's GPU"),
    ("CUDA error: device kernel image is invalid", "has no code for the node's GPU"),
    ("CUDA driver initialization failed, you might not have a CUDA gpu.", "nvidia-smi"),
    (
        "CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable",
        "nvidia-smi",
    ),
    (
        f"{COUNT} Error 802: system not yet initialized",
        "nvidia-smi",
    ),
    ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "nvidia-smi"),
    ("CUDA error: uncorrectable ECC error encountered", "nvidia-smi"),
]


@pytest.mark.parametrize(("text", "words"), DEVICES, ids=[text[:60] for text, _ in DEVICES])
def test_a_device_that_cannot_be_used_is_missing_with_a_remedy_of_its_own(text: str, words: str) -> None:
    ended = failed("FactoryFailed", "calling the factory", RuntimeError(text), remedy="Look at model.py.")
    assert ended.reason == "DeviceMissing"
    assert words in str(ended)
    assert "Look at model.py" not in str(ended)


def test_the_remedy_for_an_old_driver_says_what_torch_was_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("The NVIDIA driver on your system is too old (found version 12020).")
    torch = SimpleNamespace(version=SimpleNamespace(cuda="13.2"))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    assert "was built with CUDA 13.2, which" in str(failed("FactoryFailed", "loading", error, remedy=""))
    torch.version.cuda = None
    assert "was built with a newer CUDA, which" in str(failed("FactoryFailed", "loading", error, remedy=""))


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: device-side assert triggered",
        "CUDA error: an illegal memory access was encountered",
        "Cannot re-initialize CUDA in forked subprocess.",
    ],
)
def test_what_a_model_does_to_a_device_is_not_the_devices_fault(text: str) -> None:
    assert common_reason(RuntimeError(text)) is None


def test_the_users_own_line_is_named_not_a_librarys(tmp_path: Path) -> None:
    file = tmp_path / "theirs.py"
    file.write_text("import json\ndef load():\n    return json.loads('{')\n")
    spec = importlib.util.spec_from_file_location("theirs", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(ValueError, match="Expecting") as refused:
        module.load()
    assert user_frame(refused.value) == f"{file}:3"
    assert describe(refused.value).startswith("JSONDecodeError: Expecting")
    assert f"{file}:3" in describe(refused.value)


def test_an_exception_whose_words_raise_in_turn_is_named_all_the_same() -> None:
    class Wordless(Exception):
        def __str__(self) -> str:
            raise IndexError

    said = failed("FactoryFailed", "running the factory", Wordless(), remedy="See the log.")
    assert said.reason == "FactoryFailed"
    assert "running the factory: Wordless: (its __str__ raises IndexError)" in str(said)


def test_a_syntax_error_says_where_it_is() -> None:
    with pytest.raises(SyntaxError) as refused:
        compile("x =", "model.py", "exec")
    assert user_frame(refused.value) == "model.py:1"
