"""The classes of reasons for how a call was answered: a closed list, for metrics and for `preheat why`.

Why it exists: the words of a reason name versions, shapes and submodules, so that a person can act on them; counted by
word there would be a new time series with each. A class is what can be counted, and what has one remedy. It is found
from the words, in one place, so that those who write them need not know who counts.

Of a miss it is the class of why no artifact answered, whoever answered then: an image without a compiler is not the reason
why its CPU is another. That torch could not compile counts only where nothing else is to be mended.
"""

from __future__ import annotations

import re
from typing import Final

from .fallback import EAGERLY, NO_C_COMPILER, NO_COMPILER
from .room import NO_ROOM

OTHER: Final = "Other"
_FAILED: Final = "LibraryFailed"

#: How a reason begins that is a fault of ours, or of the package's code.
FAILED: Final = "Preheat failed: "

#: Each class, and how its words begin or what is in them; the first that fits is taken.
_PATTERNS: Final = (
    # Of what fetch brought.
    ("NoRevision", r"^no revision was ready|^there is no revision in "),
    ("StoreUnreachable", r"^fetch: Failed, (StoreUnreachable|DeadlineExceeded)\b"),
    ("StoreDenied", r"^fetch: Failed, (StoreDenied|StoreCredentialsMissing)\b"),
    ("Corrupt", r"^fetch: Failed, (ManifestMissing|ManifestCorrupt|PieceMissing|PieceCorrupt|UnknownFormat)\b"),
    ("Corrupt", r"^the manifest cannot be read"),
    ("FetchFailed", r"\bfiles cannot be read by user "),
    ("FetchFailed", r"^fetch: "),
    # Of the process that the artifact would run in.
    ("TorchDiffers", r"\btorch \S+ in the pod, artifact has "),
    ("PythonDiffers", r"\bPython \S+ in the pod, artifact has "),
    (
        "CpuDiffers",
        r"\bCPU lacks |\bmachine \S+ in the pod|\bneeds CPU class |caches were filled for Native on another CPU",
    ),
    ("NotExecutable", r"\bis mounted noexec, so no code"),
    ("GpuDiffers", r"\bno GPU in the pod|\b(GPU|GPU capability|CUDA|triton) \S.* in the pod, artifact has "),
    # Of the call of torch.compile.
    ("NotAModule", r"^it is not a module's own call"),
    ("CompileOff", r"^TORCH\w+_DISABLE=1 is set|\bset_stance\b"),
    ("CompileArguments", r"^torch\.compile was called with|: torch\.compile was called with"),
    # Of what each single call finds.
    (
        "ProcessState",
        (
            r"\bgrad is enabled\b|\bautocast is \w+|\bis active\b|\bis being traced\b|\bglobal module hooks\b"
            r"|\bforward-mode gradients\b"
        ),
    ),
    ("ProcessState", r"\b\w+ is \S+ in the pod, artifact has "),
    (_FAILED, r"\bits library failed repeatedly\b"),
    ("CallNotCovered", r"^no bucket answers this call: "),
    ("CachesNotUsed", r"\bthe compiler caches did not hold it|\bcaches cannot be copied|\bPREHEAT_WORK_DIR is not set"),
    ("CachesNotUsed", r"\bthe pod sets \S.* itself"),
    (
        "ModelDiffers",
        r"^no artifact is for this |^the module changes with every call|\bthe module is not on a GPU, artifact is for ",
    ),
    ("TargetsFailed", r"^\S+: (Failed|NoCapacity), |^the revision has no targets"),
)
#: Why torch cannot compile what nothing answers, and how its words begin.
_UNABLE: Final = {"NoCompiler": (NO_COMPILER, NO_C_COMPILER), "NoRoom": (NO_ROOM,)}
_REJECTED: Final = "Rejected"
_WRONG: Final = "PackageWrong"
_OF_OUTCOME: Final = {"hot": "Package", "warm": "Caches"}

CLASSES: Final = (
    *_OF_OUTCOME.values(),
    _REJECTED,
    _WRONG,
    *_UNABLE,
    *dict.fromkeys(name for name, _ in _PATTERNS),
    OTHER,
)
"""Every class there is."""

OUTCOMES: Final = (*_OF_OUTCOME, "eager", "cold", "refused")
"""Every outcome there is."""

#: What the policy (`spec.serving`) adds to a reason.
ON_MISS_EAGER: Final = "; onMiss is Eager"
ON_REJECT_COMPILE: Final = "; onReject is Compile"

_BUCKET: Final = r"^[^:|]*: "
_OF_ARGUMENTS: Final = ("argument ", "the arguments do not fit forward")
_NO_BUCKET: Final = "no bucket answers this call: "


def class_of(outcome: str | None, reason: str) -> str:
    """The class of a reason that stands in a record, one of CLASSES."""
    if outcome in ("hot", "warm"):
        return _OF_OUTCOME[outcome]
    if reason.startswith("its answer differed from eager's"):
        return _WRONG
    if reason.startswith(FAILED):
        return _FAILED
    unable = unable_to_compile(reason) if outcome == "eager" else None
    if unable is not None:
        found = _of_cause(reason[: max(reason.rfind(words) for words in _UNABLE[unable])].removesuffix("; "))
        # Caches that need a compiler to be found, or what `onReject` has compiled: an artifact is for this call.
        return unable if found in (_REJECTED, OTHER) else found
    if outcome == "eager" and not reason.endswith(ON_MISS_EAGER):
        return _REJECTED
    return _of_cause(reason.removesuffix(ON_MISS_EAGER))


def unable_to_compile(reason: str) -> str | None:
    """The class of what kept torch from compiling a miss, so that eager answered; None where that is not why."""
    if not reason.endswith(EAGERLY):
        return None
    return next((name for name, said in _UNABLE.items() if any(words in reason for words in said)), None)


def _of_cause(reason: str) -> str:
    if reason.endswith(ON_REJECT_COMPILE):
        return _REJECTED
    if reason.startswith(_NO_BUCKET):
        return _of_buckets(reason[len(_NO_BUCKET) :])
    return _of_words(reason)


def _of_words(words: str) -> str:
    # A hot first answer needs none of these, so they are compiled when the first is searched for; `re` keeps them.
    return next((name for name, pattern in _PATTERNS if re.search(pattern, words)), OTHER)


def _of_buckets(said: str) -> str:
    """One bucket took the call, and something else forbids it: that is what to mend, whatever the other buckets say."""
    for part in said.split(" | "):
        words = re.sub(_BUCKET, "", part, count=1)
        if not words.startswith(_OF_ARGUMENTS):
            found = _of_words(words)
            if found != OTHER:
                return found
    return "CallNotCovered"
