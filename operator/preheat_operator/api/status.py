"""What the controller reports: a bounded summary. Figures and fingerprints live in the manifest, in the store."""

from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field

from preheat_operator.api.base import ApiModel, atomic_list, list_map
from preheat_operator.api.enums import HardwareState, RestartState, RevisionState, Verdict, WhenMissing
from preheat_operator.api.spec import MAX_HARDWARE, MAX_TARGETS

Digest = Annotated[str, Field(max_length=71, pattern="^sha256:[0-9a-f]{64}$")]
DecimalText = Annotated[str, Field(max_length=32, pattern=r"^[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$")]
MAX_TARGET_MESSAGE: Final = 512
ShortName = Annotated[str, Field(max_length=63)]


class Condition(ApiModel):
    """One condition, as every Kubernetes object has them."""

    type: str = Field(max_length=316, description="Ready, Progressing or Degraded.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    observed_generation: int | None = Field(
        default=None, ge=0, description="metadata.generation the condition speaks of."
    )
    last_transition_time: datetime = Field(description="When status last changed.")
    reason: str = Field(
        max_length=1024,
        pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        description="Why, as one word of a closed list; see docs/conditions.md.",
    )
    message: str = Field(max_length=32768, description="Why, for people, with what to do about it.")


class RevisionHardware(ApiModel):
    """Where one hardware profile of a revision stands."""

    name: ShortName = Field(description="Name of the hardware profile.")
    state: HardwareState = Field(
        default=HardwareState.PENDING, description="Pending, Compiling or Terminal. Default: Pending."
    )
    kept: int = Field(default=0, ge=0, description="Targets Kept. Default: 0.")
    rejected: int = Field(default=0, ge=0, description="Targets Rejected. Default: 0.")
    failed: int = Field(default=0, ge=0, description="Targets Failed. Default: 0.")
    no_capacity: int = Field(default=0, ge=0, description="Targets without a node to compile on. Default: 0.")
    carried: int = Field(
        default=0, ge=0, description="Targets Kept that an earlier revision had, checked and not compiled. Default: 0."
    )
    attempt: int = Field(default=1, ge=0, description="Which attempt is the last one, counted from 1. Default: 1.")
    manifest: Digest | None = Field(default=None, description="Digest of the manifest this profile's Job published.")


class RevisionServed(ApiModel):
    """How many pods were given a revision, and how those that exist say they were served."""

    pods: int = Field(default=0, ge=0, description="Pods that run with it now. Default: 0.")
    most: int = Field(default=0, ge=0, description="The most that ran with it at once. Default: 0.")
    hot: int = Field(
        default=0, ge=0, description="Of pods, those that report a first answer from a package. Default: 0."
    )
    warm: int = Field(default=0, ge=0, description="From compiler caches. Default: 0.")
    eager: int = Field(default=0, ge=0, description="From the module itself. Default: 0.")
    cold: int = Field(default=0, ge=0, description="Compiled from nothing. Default: 0.")
    wrong: int = Field(default=0, ge=0, description="Of pods, those that report a wrong answer. Default: 0.")
    crashed: int = Field(
        default=0,
        ge=0,
        description="Of pods, those whose container was ended by a fault of its code lately. Default: 0.",
    )


class TakenBack(ApiModel):
    """Why pods are no longer given a revision: what was so when that was decided. It stays, also when the pods are gone."""

    at: datetime = Field(description="When it was decided.")
    pods: int = Field(ge=0, description="Pods that ran with the revision then.")
    wrong: int = Field(default=0, ge=0, description="Of those, the ones that reported a wrong answer. Default: 0.")
    crashed: int = Field(
        default=0, ge=0, description="Of those, the ones whose container was ended by a fault of its code. Default: 0."
    )
    targets: tuple[Annotated[str, Field(max_length=191)], ...] = Field(
        default=(),
        max_length=4,
        json_schema_extra=atomic_list(),
        description="Which packages answered wrong, as module/bucket/hardware. Default: none.",
    )


class Notice(ApiModel):
    """What pods say of a revision that needs a person, and changes nothing by itself."""

    reason: str = Field(max_length=63, description="What it is: one of the reasons of the condition Degraded.")
    since: datetime = Field(description="Since when it is so.")
    message: str = Field(max_length=1024, description="The numbers, with what to do about it.")


class RevisionRestart(ApiModel):
    """The one restart of the workload that a revision was worth (spec.rollout.restart)."""

    since: datetime = Field(description="When it became due; the workload's restartedAt is set to it.")
    state: RestartState = Field(description="Pending, or Done: the workload was restarted since.")


class Revision(ApiModel):
    """The artifacts and verdicts of one spec and one image; immutable once Ready."""

    name: ShortName = Field(description="Name of the revision: the CompiledModel's name and a hash.")
    image: str = Field(max_length=1024, description="Image it was compiled in, as the workload writes it.")
    manifest: Digest | None = Field(
        default=None, description="Digest of the manifest pods get. Absent: nothing ready yet."
    )
    created: datetime = Field(description="When the revision was first seen to be needed.")
    cause: str = Field(
        max_length=63,
        description="What made it necessary, as one word of the closed list in docs/revisions.md, such as ImageChanged.",
    )
    image_digest: Digest | None = Field(
        default=None, description="Digest of the image it was compiled in. Absent: not known."
    )
    template_hash: str | None = Field(
        default=None, max_length=64, description="Hash of what of the pod template decides what is compiled."
    )
    weights: str | None = Field(
        default=None, max_length=256, description="Revision of the weights it was checked with. Absent: none was named."
    )
    rebuild: str | None = Field(
        default=None, max_length=63, description="The token of preheat.dev/rebuild that asked for it. Absent: none did."
    )
    environment: str | None = Field(
        default=None,
        max_length=256,
        description="What pods said they run on when it was needed for that. Absent: it was not.",
    )
    format_version: int = Field(default=1, ge=1, description="Format of what was asked of its Jobs. Default: 1.")
    finished: datetime | None = Field(default=None, description="When it became Ready or Failed. Absent: not yet.")
    state: RevisionState = Field(
        default=RevisionState.PENDING, description="Pending, Compiling, Ready, Failed or TakenBack. Default: Pending."
    )
    spec_hash: str = Field(max_length=64, description="Hash of the parts of the spec that decide what is compiled.")
    python_path: str | None = Field(
        default=None,
        max_length=4096,
        description="PYTHONPATH set inside the image; injection keeps it. Absent: not set.",
    )
    hardware: tuple[RevisionHardware, ...] = Field(
        default=(),
        max_length=MAX_HARDWARE,
        json_schema_extra=list_map("name"),
        description="One entry a hardware profile. Default: none.",
    )
    served: RevisionServed | None = Field(
        default=None, description="How its pods are served. Absent: it never had any."
    )
    taken_back: TakenBack | None = Field(default=None, description="Why it was taken back. Absent: it was not.")
    restart: RevisionRestart | None = Field(
        default=None, description="Restart of the workload for this revision. Absent: none was due."
    )


class Target(ApiModel):
    """The end of one module, bucket and hardware profile of the newest revision."""

    module: ShortName = Field(description="Name of the module.")
    bucket: ShortName = Field(description="Name of the bucket.")
    hardware: ShortName = Field(description="Name of the hardware profile.")
    verdict: Verdict = Field(description="Kept, Rejected, Failed or NoCapacity.")
    reason: str = Field(max_length=63, description="Why, as one word of the closed list in docs/contracts.md.")
    speedup: DecimalText | None = Field(
        default=None, description="Eager's median time over the compiled one's. Absent: not measured."
    )
    first_answer: DecimalText | None = Field(
        default=None,
        description="Seconds to the first answer of a fresh process from the artifact. Absent: not measured.",
    )
    size: int | None = Field(default=None, ge=0, description="Bytes of the artifact. Absent: there is none.")
    message: str | None = Field(
        default=None,
        max_length=MAX_TARGET_MESSAGE,
        description="What the compile Job says of a target that is not Kept, cut to its length. Absent: nothing more.",
    )


class WeightsLookup(ApiModel):
    """What was seen of weights that are looked up."""

    source: str = Field(max_length=64, description="Hash of where they are, as spec.weights says.")
    revision: str | None = Field(
        default=None, max_length=256, description="What was seen there last. Absent: nothing yet."
    )
    looks: int = Field(default=0, ge=0, description="How often was looked. Default: 0.")
    looked: datetime | None = Field(default=None, description="When was looked last. Absent: not yet.")
    trouble: str | None = Field(
        default=None, max_length=512, description="Why the last look saw nothing. Absent: it did."
    )


class CompiledModelStatus(ApiModel):
    """What the controller observed and did."""

    observed_generation: int | None = Field(default=None, ge=0, description="metadata.generation the status speaks of.")
    kept: str | None = Field(
        default=None, max_length=15, description="Targets kept, of all targets of the newest revision, such as 2/3."
    )
    rebuild: str | None = Field(
        default=None, max_length=63, description="Last token of the annotation preheat.dev/rebuild that was acted on."
    )
    weights: WeightsLookup | None = Field(
        default=None, description="Of weights in S3 or on Hugging Face, what was seen there. Absent: they are not."
    )
    pinned: ShortName | None = Field(
        default=None,
        description="Revision that the annotation preheat.dev/pin holds pods of its image to. Absent: none is held.",
    )
    when_missing: WhenMissing | None = Field(
        default=None,
        description="What pods do now whose image has no ready revision: Cold, Wait or Fail; what "
        "spec.rollout.whenMissing comes to. Absent: Cold.",
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        json_schema_extra=list_map("type"),
        description="Ready: pods of the newest image get what was compiled for it. Progressing: compile Jobs are "
        "under way. Degraded: something needs a person.",
    )
    revisions: tuple[Revision, ...] = Field(
        default=(),
        max_length=32,
        json_schema_extra=list_map("name"),
        description="The wanted one first, then the others, what was wanted last first.",
    )
    targets: tuple[Target, ...] = Field(
        default=(),
        max_length=MAX_TARGETS,
        json_schema_extra=list_map("module", "bucket", "hardware"),
        description="Verdicts of the newest revision.",
    )
    notices: tuple[Notice, ...] = Field(
        default=(),
        max_length=8,
        json_schema_extra=list_map("reason"),
        description="What pods say that needs a person. Default: nothing.",
    )
