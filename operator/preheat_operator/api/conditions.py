"""Condition types and their reasons: a closed list, so alerts and scripts can rely on every word.

What each means and what to do about it is in docs/conditions.md; a unit test holds the two together. Verdict reasons
of single targets are another list: `enums.VerdictReason`.
"""

from __future__ import annotations

from enum import StrEnum


class ConditionType(StrEnum):
    """Conditions of a CompiledModel."""

    READY = "Ready"
    """Pods of the newest image get what was compiled for it, as far as it was worth keeping."""
    PROGRESSING = "Progressing"
    """Compile Jobs are under way, or will be without anybody's help."""
    DEGRADED = "Degraded"
    """Something needs a person; what is ready goes on being served."""


class ConditionReason(StrEnum):
    """Why a condition has its status."""

    # All is well.
    REVISION_READY = "RevisionReady"
    NOTHING_KEPT = "NothingKept"
    PINNED = "Pinned"
    COMPLETE = "Complete"
    AS_EXPECTED = "AsExpected"

    # Under way.
    COMPILING = "Compiling"
    RETRYING = "Retrying"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    PUBLISHING = "Publishing"
    WAITING_FOR_POD = "WaitingForPod"
    LOOKING_UP_WEIGHTS = "LookingUpWeights"

    # Held back on purpose.
    SUSPENDED = "Suspended"

    # The CompiledModel or its workload must be changed.
    INVALID_SPEC = "InvalidSpec"
    WORKLOAD_NOT_FOUND = "WorkloadNotFound"
    CONTAINER_NOT_FOUND = "ContainerNotFound"
    TEMPLATE_REFUSED = "TemplateRefused"
    JOB_REFUSED = "JobRefused"
    PIN_NOT_FOUND = "PinNotFound"
    VOLUME_NOT_SHAREABLE = "VolumeNotShareable"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    IMAGE_PYTHON_PATH_UNSUPPORTED = "ImagePythonPathUnsupported"
    TARGETS_FAILED = "TargetsFailed"
    ALL_TARGETS_FAILED = "AllTargetsFailed"

    # What pods say of what they got.
    REVISION_TAKEN_BACK = "RevisionTakenBack"
    PODS_MISS = "PodsMiss"
    FIRST_ANSWERS_SLOW = "FirstAnswersSlow"
    ANSWERS_SLOW = "AnswersSlow"
    SHAPES_NOT_COVERED = "ShapesNotCovered"
    HARDWARE_NOT_COVERED = "HardwareNotCovered"

    # The cluster, the store or Preheat's installation must be looked at.
    NO_CAPACITY = "NoCapacity"
    STORE_CREDENTIALS_MISSING = "StoreCredentialsMissing"
    STORE_DENIED = "StoreDenied"
    STORE_UNREACHABLE = "StoreUnreachable"
    WEIGHTS_UNKNOWN = "WeightsUnknown"
    JOB_CONFLICT = "JobConflict"
    RESULT_LOST = "ResultLost"
    INJECTION_PAUSED = "InjectionPaused"
    INDEX_FULL = "IndexFull"
    WAIT_TOO_LONG = "WaitTooLong"
    WAIT_UNAVAILABLE = "WaitUnavailable"
    INTERNAL = "Internal"


_BLOCKED = frozenset(
    {
        ConditionReason.INVALID_SPEC,
        ConditionReason.WORKLOAD_NOT_FOUND,
        ConditionReason.CONTAINER_NOT_FOUND,
        ConditionReason.TEMPLATE_REFUSED,
        ConditionReason.JOB_REFUSED,
        ConditionReason.IMAGE_UNAVAILABLE,
        ConditionReason.ALL_TARGETS_FAILED,
        ConditionReason.NO_CAPACITY,
        ConditionReason.STORE_CREDENTIALS_MISSING,
        ConditionReason.STORE_DENIED,
        ConditionReason.STORE_UNREACHABLE,
        ConditionReason.RESULT_LOST,
        ConditionReason.INTERNAL,
    }
)
_UNDER_WAY = frozenset(
    {
        ConditionReason.COMPILING,
        ConditionReason.RETRYING,
        ConditionReason.WAITING_FOR_CAPACITY,
        ConditionReason.PUBLISHING,
        ConditionReason.WAITING_FOR_POD,
        ConditionReason.LOOKING_UP_WEIGHTS,
    }
)
_HELD_BACK = frozenset({ConditionReason.SUSPENDED})
# The Job goes on waiting for it, and its time limit ends that.
_WAITED_FOR = frozenset({ConditionReason.VOLUME_NOT_SHAREABLE, ConditionReason.VOLUME_UNAVAILABLE})

NOTICES = (
    ConditionReason.HARDWARE_NOT_COVERED,
    ConditionReason.PODS_MISS,
    ConditionReason.SHAPES_NOT_COVERED,
    ConditionReason.FIRST_ANSWERS_SLOW,
    ConditionReason.ANSWERS_SLOW,
)
"""What pods say that needs a person and changes nothing by itself, what matters most first."""

# Which reasons a condition may carry with a status.
REASONS_OF_CONDITION: dict[tuple[ConditionType, str], frozenset[ConditionReason]] = {
    (ConditionType.READY, "True"): frozenset(
        {ConditionReason.REVISION_READY, ConditionReason.NOTHING_KEPT, ConditionReason.PINNED}
    ),
    (ConditionType.READY, "False"): _BLOCKED
    | _UNDER_WAY
    | _HELD_BACK
    | _WAITED_FOR
    | {
        ConditionReason.IMAGE_PYTHON_PATH_UNSUPPORTED,
        ConditionReason.INJECTION_PAUSED,
        ConditionReason.INDEX_FULL,
        ConditionReason.REVISION_TAKEN_BACK,
    },
    (ConditionType.PROGRESSING, "True"): _UNDER_WAY,
    (ConditionType.PROGRESSING, "False"): _BLOCKED | _HELD_BACK | {ConditionReason.COMPLETE},
    (ConditionType.DEGRADED, "True"): _BLOCKED
    | _WAITED_FOR
    | {
        ConditionReason.JOB_CONFLICT,
        ConditionReason.TARGETS_FAILED,
        ConditionReason.PIN_NOT_FOUND,
        ConditionReason.WEIGHTS_UNKNOWN,
        ConditionReason.IMAGE_PYTHON_PATH_UNSUPPORTED,
        ConditionReason.INJECTION_PAUSED,
        ConditionReason.INDEX_FULL,
        ConditionReason.REVISION_TAKEN_BACK,
        *NOTICES,
        ConditionReason.WAIT_TOO_LONG,
        ConditionReason.WAIT_UNAVAILABLE,
    },
    (ConditionType.DEGRADED, "False"): frozenset({ConditionReason.AS_EXPECTED}),
}
