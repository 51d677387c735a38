"""Learning the pod template from pods, for kinds of workload that Preheat does not know.

An Argo Rollout, a LeaderWorkerSet, a Knative or KServe service: each keeps its pod template in another place, and some
make it up. What they all make is pods, and a labelled pod carries the final spec. So the template is read from pods,
without what admission and controllers add to each of them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.api.enums import WorkloadKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from preheat_operator.api.spec import WorkloadRef

Raw = dict[str, Any]

_OURS: Final = frozenset({names.VOLUME_PREHEAT, names.VOLUME_WORK, names.VOLUME_STORE, names.VOLUME_REPORTS})
_TOKEN: Final = "kube-api-access-"  # noqa: S105 - the beginning of a volume's name
# What controllers write into each pod or group of pods: it says which pod it is, not what it runs.
_OF_ONE_POD: Final = ("PREHEAT_", "LWS_", "K_REVISION", "K_CONFIGURATION", "K_SERVICE")
_MOST: Final = 8


def is_read(reference: WorkloadRef) -> bool:
    """Whether the workload itself is read: its pod template is where Preheat knows it."""
    return reference.api_version == "apps/v1" and reference.kind in set(WorkloadKind)


def learned(pods: Sequence[Raw], *, reference: WorkloadRef, image_paths: Mapping[str, str | None]) -> tuple[Raw, ...]:
    """What stands for the workload, once for each different template among its labelled pods, that of the newest first.

    `pods` are raw ones with the model's label, `image_paths` the PYTHONPATH set inside of known images.
    """
    found: list[Raw] = []
    ours = [pod for pod in pods if _belongs(pod, reference)]
    for pod in sorted(ours, key=_age, reverse=True):
        body = _workload(pod, image_paths)
        if body not in found:
            found.append(body)
        if len(found) == _MOST:
            break
    return tuple(found)


def _belongs(pod: Raw, reference: WorkloadRef) -> bool:
    metadata = pod.get("metadata") or {}
    owners = [o for o in metadata.get("ownerReferences") or () if isinstance(o, dict) and o.get("controller")]
    called = [str(metadata.get("name", "")), *(str(o.get("name", "")) for o in owners)]
    named = any(name == reference.name or name.startswith(f"{reference.name}-") for name in called)
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return named and not ended and not metadata.get("deletionTimestamp")


def _age(pod: Raw) -> tuple[str, str]:
    metadata = pod["metadata"]
    return str(metadata.get("creationTimestamp", "")), str(metadata.get("name", ""))


def _workload(pod: Raw, image_paths: Mapping[str, str | None]) -> Raw:
    spec = copy.deepcopy(pod.get("spec") or {})
    name = str(pod["metadata"].get("name", ""))
    # As of a StatefulSet: a claim of this pod alone, which no other pod can have.
    claims = [v["name"] for v in _dicts(spec.get("volumes")) if _claim(v).endswith(f"-{name}")]
    spec["volumes"] = [v for v in _dicts(spec.get("volumes")) if not _added(v) and v["name"] not in claims]
    initial = [c for c in _dicts(spec.get("initContainers")) if c.get("name") != names.CONTAINER_FETCH]
    spec["initContainers"] = [_container(c, image_paths) for c in initial]
    spec["containers"] = [_container(c, image_paths) for c in _dicts(spec.get("containers"))]
    # Where this pod runs, and what the scheduler and the node's state have added.
    for field in ("nodeName", "schedulingGates", "hostname", "subdomain", "priority", "overhead"):
        spec.pop(field, None)
    tolerations = [
        t for t in _dicts(spec.get("tolerations")) if not str(t.get("key", "")).startswith("node.kubernetes.io/")
    ]
    spec["tolerations"] = tolerations
    return {"spec": {"template": {"spec": spec}, "volumeClaimTemplates": [{"metadata": {"name": c}} for c in claims]}}


def _container(container: Raw, image_paths: Mapping[str, str | None]) -> Raw:
    container = {**container, "volumeMounts": [m for m in _dicts(container.get("volumeMounts")) if not _added(m)]}
    env = []
    for entry in _dicts(container.get("env")):
        if str(entry.get("name", "")).startswith(_OF_ONE_POD):
            continue
        if entry.get("name") == names.ENV_PYTHONPATH and str(entry.get("value", "")).startswith(names.SITE_DIRECTORY):
            own = str(entry["value"]).removeprefix(names.SITE_DIRECTORY).removeprefix(":")
            # Injection puts the image's own after ours; the container itself had none.
            if not own or own == image_paths.get(str(container.get("image", ""))):
                continue
            entry = {"name": names.ENV_PYTHONPATH, "value": own}
        env.append(entry)
    return {**container, "env": env}


def _added(item: Raw) -> bool:
    name = str(item.get("name", ""))
    return name in _OURS or name.startswith(_TOKEN)


def _claim(volume: Raw) -> str:
    return str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))


def _dicts(value: Any) -> list[Raw]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
