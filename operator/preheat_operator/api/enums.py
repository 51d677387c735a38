"""The closed vocabularies of the API: what a value may be is decided here and nowhere else.

Never `On` and `Off` as values: YAML 1.1 makes them booleans, and the schema then refuses what the docs say.
"""

from __future__ import annotations

from enum import StrEnum


class WorkloadKind(StrEnum):
    """Kinds whose pod template is read from the workload itself; that of others is learned from their pods."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"


class Dtype(StrEnum):
    """Element types of an input tensor, by their names in torch."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"


class ConstType(StrEnum):
    """Python type of a constant argument."""

    INT = "Int"
    FLOAT = "Float"
    STRING = "String"
    BOOL = "Bool"
    NONE = "None"


class Mode(StrEnum):
    """Modes of torch.compile."""

    DEFAULT = "Default"
    REDUCE_OVERHEAD = "ReduceOverhead"
    MAX_AUTOTUNE = "MaxAutotune"
    MAX_AUTOTUNE_NO_CUDAGRAPHS = "MaxAutotuneNoCudagraphs"


class Fullgraph(StrEnum):
    """Whether a module may be compiled in several graphs."""

    AUTO = "Auto"
    REQUIRED = "Required"


class Autocast(StrEnum):
    """Element types torch.autocast may compute in, by their names in torch."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class CpuIsa(StrEnum):
    """Class of x86-64 processors CPU code is built for; `Native` is the compile node's own."""

    X86_64_V3 = "X86_64_V3"
    X86_64_V4 = "X86_64_V4"
    NATIVE = "Native"


class ServiceAccountToken(StrEnum):
    """Which service account token the user's code sees while compiling."""

    NONE = "None"
    WORKLOAD = "Workload"


class OnMiss(StrEnum):
    """What a pod does with a call that no artifact answers."""

    COMPILE = "Compile"
    EAGER = "Eager"
    FAIL = "Fail"


class OnReject(StrEnum):
    """What a pod does with a call whose artifact is not good enough: Rejected, or found wrong in the pod."""

    EAGER = "Eager"
    COMPILE = "Compile"


class Verify(StrEnum):
    """When the first answer of a package is compared with eager's."""

    BEFORE = "Before"
    AFTER = "After"
    NEVER = "Never"


class Suspend(StrEnum):
    """Whether new compile Jobs are held back."""

    DISABLED = "Disabled"
    ENABLED = "Enabled"


class Cause(StrEnum):
    """What made a revision necessary; docs/revisions.md tells each."""

    CREATED = "Created"
    SPEC_CHANGED = "SpecChanged"
    IMAGE_CHANGED = "ImageChanged"
    IMAGE_MOVED = "ImageMoved"
    TEMPLATE_CHANGED = "TemplateChanged"
    WEIGHTS_CHANGED = "WeightsChanged"
    TORCH_CHANGED = "TorchChanged"
    HARDWARE_CHANGED = "HardwareChanged"
    FORMAT_CHANGED = "FormatChanged"
    REBUILD = "Rebuild"


class RevisionState(StrEnum):
    """Where a revision stands; Ready, Failed and TakenBack are final. TakenBack was Ready, until its pods were wrong or crashed."""

    PENDING = "Pending"
    COMPILING = "Compiling"
    READY = "Ready"
    FAILED = "Failed"
    TAKEN_BACK = "TakenBack"


class HardwareState(StrEnum):
    """Where one hardware profile of a revision stands; Terminal means every target has a verdict."""

    PENDING = "Pending"
    COMPILING = "Compiling"
    TERMINAL = "Terminal"


class WhenMissing(StrEnum):
    """What a pod whose image has no ready revision does."""

    AUTO = "Auto"
    COLD = "Cold"
    WAIT = "Wait"
    FAIL = "Fail"


class Admission(StrEnum):
    """What admission does with a pod whose image has no ready revision, as the index says it.

    Auto: pods of the workload's own ReplicaSets wait, others start cold. Paused also stops injecting ready ones.
    """

    AUTO = "Auto"
    COLD = "Cold"
    WAIT = "Wait"
    FAIL = "Fail"
    PAUSED = "Paused"


class Restart(StrEnum):
    """Whether a workload is restarted for a revision that its own template does not ask for."""

    NEVER = "Never"
    ROLLOUT = "Rollout"


class RestartState(StrEnum):
    """Whether a restart that is due has been asked of the workload."""

    PENDING = "Pending"
    DONE = "Done"


class Verdict(StrEnum):
    """The end of a target; all four are terminal."""

    KEPT = "Kept"
    REJECTED = "Rejected"
    FAILED = "Failed"
    NO_CAPACITY = "NoCapacity"


class VerdictReason(StrEnum):
    """Why a target ended as it did."""

    FASTER = "Faster"
    GATES_MET = "GatesMet"
    NO_DIFFERENCE = "NoDifference"
    SPEEDUP_BELOW_MINIMUM = "SpeedupBelowMinimum"
    ERROR_ABOVE_MAXIMUM = "ErrorAboveMaximum"
    GRAPH_BREAKS_ABOVE_MAXIMUM = "GraphBreaksAboveMaximum"
    RECOMPILES_ABOVE_MAXIMUM = "RecompilesAboveMaximum"
    MEMORY_ABOVE_MAXIMUM = "MemoryAboveMaximum"
    FACTORY_FAILED = "FactoryFailed"
    MODULE_NOT_FOUND = "ModuleNotFound"
    INPUTS_REFUSED = "InputsRefused"
    OPTION_REFUSED = "OptionRefused"
    COMPILE_FAILED = "CompileFailed"
    COMPILER_MISSING = "CompilerMissing"
    PROOF_FAILED = "ProofFailed"
    NONDETERMINISTIC = "Nondeterministic"
    OUT_OF_MEMORY = "OutOfMemory"
    DISK_FULL = "DiskFull"
    TIMEOUT = "Timeout"
    KILLED = "Killed"
    DEVICE_MISSING = "DeviceMissing"
    TORCH_MISSING = "TorchMissing"
    TORCH_UNSUPPORTED = "TorchUnsupported"
    INTERNAL = "Internal"
    IMAGE_UNAVAILABLE = "ImageUnavailable"
    STORE_UNAVAILABLE = "StoreUnavailable"
    RESULT_LOST = "ResultLost"
    TEMPLATE_REFUSED = "TemplateRefused"
    UNSCHEDULABLE = "Unschedulable"


# Which reasons a verdict may carry; closed, as in docs/contracts.md.
REASONS_OF_VERDICT: dict[Verdict, frozenset[VerdictReason]] = {
    Verdict.KEPT: frozenset({VerdictReason.FASTER, VerdictReason.GATES_MET, VerdictReason.NO_DIFFERENCE}),
    Verdict.REJECTED: frozenset(
        {
            VerdictReason.SPEEDUP_BELOW_MINIMUM,
            VerdictReason.NO_DIFFERENCE,
            VerdictReason.ERROR_ABOVE_MAXIMUM,
            VerdictReason.GRAPH_BREAKS_ABOVE_MAXIMUM,
            VerdictReason.RECOMPILES_ABOVE_MAXIMUM,
            VerdictReason.MEMORY_ABOVE_MAXIMUM,
        }
    ),
    Verdict.NO_CAPACITY: frozenset({VerdictReason.UNSCHEDULABLE}),
}
REASONS_OF_VERDICT[Verdict.FAILED] = frozenset(VerdictReason).difference(*REASONS_OF_VERDICT.values())
