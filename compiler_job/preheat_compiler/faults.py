"""Turns exceptions of users' code, of torch and of compilers into the closed reasons and words for people.

Why it exists: a user reads the verdict in `kubectl describe`, without the Job's log. So the message has to hold the
exception, the user's own file and line, and the remedy; and it must not hold secrets that the exception quotes.
"""

from __future__ import annotations

import errno
import re
import sys
import sysconfig
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from preheat_compiler.verdict import TargetError
from preheat_runtime.hook import words_of
from preheat_runtime.redaction import printable, redact

#: What torch, its allocators and CUDA's libraries say when a device's memory is out.
_DEVICE_MEMORY = re.compile(
    r"(CUDA|HIP)\b.{0,20}out of memory|CUDA ran out of memory|would exceed allowed memory|"
    r"(CUBLAS|CUDNN|CUSOLVER|CUSPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED",
    re.IGNORECASE,
)
#: What torch, allocators and compilers say when memory is out.
_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|out of memory|std::bad_alloc|Killed signal terminated program|"
    r"virtual memory exhausted|ENOMEM",
    re.IGNORECASE,
)
_DISK = re.compile(r"No space left on device|ENOSPC|Disk quota exceeded", re.IGNORECASE)
_DEVICE = re.compile(
    r"No CUDA GPUs are available|Found no NVIDIA driver|not compiled with CUDA|No HIP GPUs|invalid device ordinal|"
    r"Attempting to deserialize object on (a )?CUDA device|no CUDA-capable device is detected|\b0 active drivers",
    re.IGNORECASE,
)
#: What torch and CUDA say of a driver that is older than what torch was built with, or is of another installation.
_DRIVER = re.compile(
    r"NVIDIA driver on your system is too old|driver version is insufficient|driver is a stub library|"
    r"forward compatibility was attempted|unsupported display driver|compiled with an unsupported toolchain|"
    r"not supported in the installed CUDA driver",
    re.IGNORECASE,
)
#: … of a GPU that nothing in a library was compiled for.
_KERNELS = re.compile(r"no kernel image is available|device kernel image is invalid", re.IGNORECASE)
#: … of a GPU that is there and cannot be used.
_BROKEN = re.compile(
    r"CUDA driver initialization failed|CUDA unknown error|CUDA (driver )?error: unknown error|"
    r"Unexpected error from cudaGetDeviceCount|device\(s\) is/are busy or unavailable|device already in use|"
    r"system not yet initialized|uncorrectable ECC error",
    re.IGNORECASE,
)

REMEDIES = {
    "OutOfMemory": "Raise the memory limit in hardware[].resources.",
    "DiskFull": "Give the compile pod more ephemeral storage (resources of hardware[], or the node's disk).",
    "DeviceMissing": "Choose nodes with the device (hardware[].nodeSelector) and request it (hardware[].resources).",
}


@dataclass(frozen=True)
class Fault:
    """What can come up anywhere: its reason, and the remedy in a sentence, which may say `{cuda}`, what torch was built with."""

    reason: str
    said: str

    @property
    def remedy(self) -> str:
        """What to do, in a sentence."""
        torch: Any = sys.modules.get("torch")
        version = getattr(getattr(torch, "version", None), "cuda", None)
        return self.said.replace("{cuda}", f"CUDA {version}" if version else "a newer CUDA")


OUT_OF_MEMORY, _DISK_FULL, _DEVICE_MISSING = (Fault(reason, said) for reason, said in REMEDIES.items())
#: No limit of a container is about a device's memory.
_DEVICE_OUT_OF_MEMORY = Fault(
    "OutOfMemory",
    "It is the GPU's memory: choose nodes whose GPU has more (hardware[].nodeSelector), or give the bucket smaller sizes.",
)
_DRIVER_TOO_OLD = Fault(
    "DeviceMissing",
    "The image's torch was built with {cuda}, which the node's NVIDIA driver must support: choose nodes with a newer driver "
    "(hardware[].nodeSelector), or an image whose torch was built with an older CUDA.",
)
_NO_KERNELS = Fault(
    "DeviceMissing",
    "The image's torch, or a library in it, has no code for the node's GPU: choose nodes with another GPU "
    "(hardware[].nodeSelector), or an image that was built for this one (torch.cuda.get_arch_list()).",
)
_DEVICE_BROKEN = Fault(
    "DeviceMissing",
    "The node's GPU cannot be used: look at it with nvidia-smi (driver, MIG, exclusive mode, other processes), "
    "or choose other nodes (hardware[].nodeSelector).",
)
#: By what is said; the first that fits counts. CUDA's own words come after torch's ("Unexpected error … Error 804: …").
_SAID = (
    (_DEVICE_MEMORY, _DEVICE_OUT_OF_MEMORY),
    (_MEMORY, OUT_OF_MEMORY),
    (_DISK, _DISK_FULL),
    (_DRIVER, _DRIVER_TOO_OLD),
    (_KERNELS, _NO_KERNELS),
    (_DEVICE, _DEVICE_MISSING),
    (_BROKEN, _DEVICE_BROKEN),
)


def common_reason(error: BaseException) -> str | None:
    """The reason that `error` has wherever it comes up: OutOfMemory, DiskFull or DeviceMissing; else None."""
    fault = common_fault(error)
    return fault.reason if fault is not None else None


def common_fault(error: BaseException) -> Fault | None:
    """What `error` is wherever it comes up; None for what is a fault of what was being done."""
    chain = _chain(error)
    for each in chain:
        if type(each).__name__ == "OutOfMemoryError":  # torch's, and cupy's: of devices alone
            return _DEVICE_OUT_OF_MEMORY
        if isinstance(each, MemoryError):
            return OUT_OF_MEMORY
        if isinstance(each, OSError) and each.errno in {errno.ENOSPC, errno.EDQUOT}:
            return _DISK_FULL
        if isinstance(each, OSError) and each.errno == errno.ENOMEM:
            return OUT_OF_MEMORY
    return fault_in("\n".join(words_of(each) for each in chain))


def fault_in(text: str) -> Fault | None:
    """What can come up anywhere, by what was said of it."""
    return next((fault for pattern, fault in _SAID if pattern.search(text)), None)


def failed(reason: str, doing: str, error: BaseException, *, remedy: str) -> TargetError:
    """`error`, which came up while `doing`, as a TargetError: memory, disk and device first, else `reason`."""
    common = common_fault(error) or Fault(reason, remedy)
    return TargetError(common.reason, redact(f"{doing}: {describe(error)}. {common.remedy}"))


def describe(error: BaseException, *, limit: int = 700) -> str:
    """`ImportError: no module named x (model.py:3)`: the exception, and where in the user's code it came from; no secrets."""
    # Before anything is folded or cut: of what is left then a secret can no longer be told for sure.
    text = " ".join(redact(words_of(error)).split())
    if len(text) > limit:
        text = f"{text[:limit].rstrip()} ..."
    where = user_frame(error)
    return printable(f"{type(error).__name__}{': ' if text else ''}{text}{f' ({where})' if where else ''}")


def user_frame(error: BaseException) -> str | None:
    """`file:line` of the deepest frame in the user's own code, else of the deepest in a library; None without any.

    The user's own code is what lies outside the standard library, site-packages and this package. A SyntaxError
    says its own place.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno}"
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    foreign = [frame for frame in frames if not frame[0].startswith("<") and not _within(frame[0], _OURS)]
    own = [frame for frame in foreign if not is_library(frame[0])]
    best = (own or foreign)[-1:]
    return f"{_short(best[0][0])}:{best[0][1]}" if best else None


def print_traceback() -> None:
    """The exception that is being handled, into the log, where whoever sees the pod can read it, so without secrets."""
    with suppress(OSError, ValueError):  # nobody reads it any more
        print(redact(traceback.format_exc()), end="", file=sys.stderr, flush=True)  # noqa: T201


def is_library(file: str) -> bool:
    """Whether a file is of the standard library or lies in site-packages."""
    if "/site-packages/" in file or "/dist-packages/" in file:
        return True
    return any(_within(file, sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


_OURS = str(Path(__file__).resolve().parent)


def _within(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip("/") + "/")


def _short(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def _chain(error: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain and len(chain) < 20:
        chain.append(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return chain
