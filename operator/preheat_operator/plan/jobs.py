"""Compile Jobs: their names, how one is recognised as ours, and their manifests.

A Job's name is a function of what it compiles, so creating it twice is refused by the API server and a crash between
any two steps is harmless. A name can be guessed, though: a Job is ours only if its owner's uid and its full target key
agree as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.template import Errand, compile_pod, lookup_pod, merge_pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.hardware import Hardware
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.objects import JobView
    from preheat_operator.plan.revision import Wanted
    from preheat_operator.plan.termination import TargetName
    from preheat_operator.plan.workload import Serving

# Stands for "all profiles" where a Job's hardware profile is named; a profile's name cannot hold a dot.
MERGE: Final = "merge.all"

# How often the Job controller itself starts a pod again, before the attempt counts as ended.
_BACKOFF_LIMIT = 2
# What an attempt may take beyond compiling: pulling images, the workload's init containers, the upload.
_SLACK_SECONDS = 1800
# A look at weights; the next one comes in any case.
_LOOKUP_SECONDS = 300
# Endings that another pod would only repeat. 137 is the kernel's kill, most often for memory: the next attempt leaves
# out the target that was running, which the Job controller cannot do.
_FINAL_EXITS = list(range(64, 79))
_KILLED = 137


@dataclass(frozen=True, kw_only=True)
class JobKey:
    """What a Job compiles: one hardware profile of one revision, for the n-th time."""

    uid: str
    want: Wanted
    hardware: str
    attempt: int

    @property
    def target_key(self) -> str:
        """The full key, 64 hex digits."""
        return revisions.digest(
            {
                "uid": self.uid,
                "revision": self.want.name,
                "specHash": self.want.spec_hash,
                "image": self.want.image,
                "hardware": self.hardware,
                "attempt": self.attempt,
            }
        )

    def name(self, model: str) -> str:
        """The Job's name: the model's name, at most 40 characters of it, and ten digits of the key."""
        return f"{revisions.prefix(model)}-{self.target_key[:10]}"


def is_ours(job: JobView, key: JobKey) -> bool:
    """Whether an existing Job is the one this key stands for, whatever its name says."""
    return job.owner_uid == key.uid and job.target_key == key.target_key


def compile_job(
    *, model: CompiledModel, key: JobKey, hardware: Hardware, serving: Serving, installation: Installation,
    targets: Sequence[TargetName], recover_job: str, parts: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """The Job that compiles `targets` on one hardware profile."""
    errand = Errand(
        request=compile_request(model=model, key=key, hardware=hardware, targets=targets),
        recover_job=recover_job,
        parts=tuple(parts),
    )
    pod = compile_pod(
        spec=model.spec, hardware=hardware, serving=serving, installation=installation,
        namespace=model.metadata.namespace, model=model.metadata.name, errand=errand,
    )  # fmt: skip
    ours = [names.CONTAINER_TOOLKIT, names.CONTAINER_COMPILE, names.CONTAINER_PUBLISH]
    job = _job(model=model, key=key, pod=pod, containers=ours)
    job["metadata"]["annotations"][names.ANNOTATION_TEMPLATE_HASH] = template_hash(
        model=model, hardware=hardware, serving=serving, installation=installation
    )
    return job


def merge_job(
    *,
    model: CompiledModel,
    key: JobKey,
    serving: Serving,
    installation: Installation,
    parts: Sequence[str],
    recover_job: str,
) -> dict[str, Any]:
    """The Job that joins the manifests of several hardware profiles into the revision's one."""
    errand = Errand(
        request=compile_request(model=model, key=key, hardware=None, targets=()),
        recover_job=recover_job,
        parts=tuple(parts),
    )
    pod = merge_pod(
        serving=serving, installation=installation, namespace=model.metadata.namespace, model=model.metadata.name,
        errand=errand,
    )  # fmt: skip
    return _job(model=model, key=key, pod=pod, containers=[names.CONTAINER_PUBLISH])


def lookup_job(
    *, model: CompiledModel, key: JobKey, what: dict[str, Any], serving: Serving, installation: Installation
) -> dict[str, Any]:
    """The Job that looks which weights there are."""
    pod = lookup_pod(serving=serving, installation=installation, what=what)
    job = _job(model=model, key=key, pod=pod, containers=[names.CONTAINER_LOOKUP])
    job["spec"] |= {"activeDeadlineSeconds": _LOOKUP_SECONDS, "backoffLimit": 0}
    return job


def template_hash(*, model: CompiledModel, hardware: Hardware, serving: Serving, installation: Installation) -> str:
    """Hash of what users can change about a Job: when it differs from a failed Job's, trying again makes sense.

    Our own image and store settings are not part of it: an upgrade of Preheat must not start every failed Job again.
    """
    neutral = type(installation)(
        image="", image_pull_policy="", cluster_id="", store_endpoint="", store_bucket="", store_region=""
    )
    pod = compile_pod(
        spec=model.spec, hardware=hardware, serving=replace(serving, digest=None), installation=neutral,
        namespace=model.metadata.namespace, model=model.metadata.name, errand=Errand(request={}),
    )  # fmt: skip
    return revisions.digest([pod, model.spec.compile.to_api()])[:16]


def compile_request(
    *, model: CompiledModel, key: JobKey, hardware: Hardware | None, targets: Sequence[TargetName]
) -> dict[str, Any]:
    """What request.json holds (docs/contracts.md, 4); without `hardware`, of a Job that only merges."""
    spec = model.spec.to_api()
    # Of a Job that only merges, there is nothing to check.
    base = key.want.base if targets else None
    return {
        **({} if base is None else {"base": base}),
        "formatVersion": revisions.FORMAT_VERSION,
        "namespace": model.metadata.namespace,
        "name": model.metadata.name,
        "uid": model.metadata.uid,
        "revision": key.want.name,
        "image": key.want.image,
        "hardware": key.hardware if hardware is None else hardware.name,
        "cpuIsa": "" if hardware is None else hardware.cpu_isa.value,
        "torch": spec["torch"],
        "keepIf": spec["keepIf"],
        "targets": [{"module": t.module, "bucket": t.bucket} for t in targets],
        "timeoutSeconds": model.spec.compile.timeout_seconds,
    }


def _job(*, model: CompiledModel, key: JobKey, pod: dict[str, Any], containers: Sequence[str]) -> dict[str, Any]:
    labels = {
        names.LABEL_COMPILED_MODEL: model.metadata.name,
        names.LABEL_COMPILED_MODEL_UID: model.metadata.uid,
        names.LABEL_REVISION: key.want.name,
        names.LABEL_HARDWARE: key.hardware,
        names.LABEL_ATTEMPT: str(key.attempt),
    }
    rules: list[dict[str, Any]] = [
        # First: a pod that had to make room is no failure, whatever its containers' exit codes are.
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    ]
    for container in containers:
        codes = [*_FINAL_EXITS, _KILLED] if container == names.CONTAINER_COMPILE else _FINAL_EXITS
        on = {"containerName": container, "operator": "In", "values": codes}
        rules.append({"action": "FailJob", "onExitCodes": on})
    settings = model.spec.compile
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": key.name(model.metadata.name),
            "namespace": model.metadata.namespace,
            "labels": labels,
            "annotations": {names.ANNOTATION_TARGET_KEY: key.target_key},
            "ownerReferences": [
                {
                    "apiVersion": names.API_VERSION,
                    "kind": names.COMPILED_MODEL,
                    "name": model.metadata.name,
                    "uid": model.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "spec": {
            "activeDeadlineSeconds": settings.timeout_seconds + settings.schedule_timeout_seconds + _SLACK_SECONDS,
            "backoffLimit": _BACKOFF_LIMIT,
            # Never two pods of one Job at a time: they would compete for one accelerator.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": rules},
            "template": {
                "metadata": {"labels": labels, "finalizers": [names.FINALIZER_RESULT]},
                "spec": pod,
            },
        },
    }
