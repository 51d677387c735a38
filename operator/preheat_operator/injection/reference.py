"""The pure function that makes the same pod as the admission policy: what the policy is tested against.

It is also what a webhook would answer with on clusters that have no MutatingAdmissionPolicy.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.injection.additions import (
    Input,
    Maybe,
    fetch_container,
    reports_env,
    served_env,
    served_mounts,
    volumes,
)
from preheat_operator.injection.reading import Reading
from preheat_operator.injection.refusals import REFUSALS

if TYPE_CHECKING:
    from preheat_operator.injection.settings import InjectionSettings

WAITS: Final = "no: it waits for what is being compiled for image {image}, at most {waitSeconds} s"
FAILS: Final = "no: nothing is ready for image {image}, and whenMissing is Fail"
MIRROR_ANNOTATION = "kubernetes.io/config.mirror"


def inject(pod: dict[str, Any], index_text: str | None, settings: InjectionSettings) -> dict[str, Any]:
    """The pod as admission leaves it; the one passed in is not changed.

    Args:
        pod: a v1 Pod about to be created, with its namespace in `metadata.namespace`.
        index_text: `models` of the CompiledModelIndex of that namespace; None when there is none.
        settings: those of the installation.
    """
    if index_text is None or not concerns(pod, settings):
        return pod
    reading = Reading(pod, index_text, gating=settings.gating)
    why = refusal(reading)
    if reading.keeps:
        return _annotated(pod, manifest=reading.annotations[names.ANNOTATION_MANIFEST], injected=names.INJECTED_YES)
    if why is not None:
        return _annotated(pod, manifest=names.MANIFEST_NONE, injected=f"{names.INJECTED_NO_PREFIX}{why}")
    if reading.waits or reading.fails:
        result = _annotated(pod, manifest=names.MANIFEST_PENDING, injected=_holding(reading))
    else:
        result = _annotated(pod, manifest=reading.digest, injected=names.INJECTED_YES)
    if reading.waits:
        _hold_back(result, reading)
    if not reading.already and not reading.plainly:
        _add(result["spec"], reading, inputs(reading, settings))
    return result


def concerns(pod: dict[str, Any], settings: InjectionSettings) -> bool:
    """Whether a pod is Preheat's business at all: labelled, not opted out, not in an excluded namespace."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    return (
        names.LABEL_MODEL in labels
        and labels.get(names.LABEL_INJECT) != names.INJECT_DISABLED
        and metadata.get("namespace") not in settings.excluded_namespaces
        and MIRROR_ANNOTATION not in (metadata.get("annotations") or {})
    )


def _holding(reading: Reading) -> str:
    words = WAITS if reading.waits else FAILS
    return words.format(image=reading.image, waitSeconds=reading.wait_seconds)


def _hold_back(pod: dict[str, Any], reading: Reading) -> None:
    pod["metadata"]["annotations"][names.ANNOTATION_WAIT_SECONDS] = reading.wait_seconds
    gates = pod["spec"].get("schedulingGates") or []
    if {"name": names.GATE} not in gates:
        pod["spec"]["schedulingGates"] = [*gates, {"name": names.GATE}]


def refusal(reading: Reading) -> str | None:
    """The first reason not to inject, in words; None when there is none."""
    for entry in REFUSALS:
        if entry.holds(reading):
            return entry.why.format(model=reading.model, container=reading.container, image=reading.image)
    return None


def inputs(reading: Reading, settings: InjectionSettings) -> dict[str, Any]:
    """Values of the placeholders in the additions, for one pod."""
    return {
        "fetchImage": settings.image,
        "pullPolicy": settings.image_pull_policy,
        "model": reading.model,
        "serving": reading.serving,
        "storeEndpoint": settings.store_endpoint,
        "storeBucket": settings.store_bucket,
        "storeRegion": settings.store_region,
        "storeSecret": settings.store_secret,
        "storeCaConfigMap": settings.store_ca_config_map or None,
        "storeCa": names.STORE_CA_FILE if settings.store_ca_config_map else "",
        "tenant": f"{settings.cluster_id}.{reading.metadata['namespace']}",
        "fetchTimeout": str(settings.fetch_timeout_seconds),
        "mustFetch": "Fail" if reading.missing == "Fail" else None,
        "assumed": reading.assumed,
        "runAsUser": settings.run_as_user,
        "pullSecrets": settings.image_pull_secrets,
        "reports": (settings.reports_url or None) if reading.may_report else None,
        "reportsAuthority": (settings.reports_ca or None) if reading.may_report else None,
    }


def filled(value: Any, given: dict[str, Any]) -> Any:
    """`value` with its placeholders replaced, and what is absent left out."""
    if isinstance(value, Input):
        return given[value.name]
    if isinstance(value, Maybe):
        return filled(value.value, given)
    if isinstance(value, dict):
        return {key: filled(item, given) for key, item in value.items() if not _absent(item, given)}
    if isinstance(value, list):
        return [filled(item, given) for item in value if not _absent(item, given)]
    return value


def _absent(value: Any, given: dict[str, Any]) -> bool:
    return isinstance(value, Maybe) and given[value.given.name] is None


def _annotated(pod: dict[str, Any], *, manifest: str, injected: str) -> dict[str, Any]:
    result = copy.deepcopy(pod)
    annotations = result["metadata"].setdefault("annotations", None) or {}
    result["metadata"]["annotations"] = annotations | {
        names.ANNOTATION_MANIFEST: manifest,
        names.ANNOTATION_INJECTED: injected,
    }
    return result


def _add(spec: dict[str, Any], reading: Reading, given: dict[str, Any]) -> None:
    served = spec["containers"][reading.position]
    fetch = filled(fetch_container(), given)
    if reading.served.get("resources"):
        fetch["resources"] = copy.deepcopy(reading.served["resources"])
    spec["initContainers"] = [fetch, *(spec.get("initContainers") or [])]
    spec["volumes"] = [*(spec.get("volumes") or []), *filled(volumes(), given)]
    served["volumeMounts"] = [*(served.get("volumeMounts") or []), *filled(served_mounts(), given)]
    ours = filled([*served_env(), *reports_env()], given)
    served["env"] = serving_environment(served.get("env") or [], ours, reading.image_path)
    secrets = spec.get("imagePullSecrets") or []
    there = {entry.get("name") for entry in secrets}
    new = [{"name": name} for name in given["pullSecrets"] if name not in there]
    if new:
        spec["imagePullSecrets"] = [*secrets, *new]


def serving_environment(
    env: list[dict[str, Any]], ours: list[dict[str, Any]], image_path: str = "", *, site: str = names.SITE_DIRECTORY
) -> list[dict[str, Any]]:
    """The environment of the process that serves: `env` with PYTHONPATH prefixed by `site`, and `ours` after it."""
    env = list(env)
    _prefix_python_path(env, image_path=image_path, site=site)
    present = {entry["name"] for entry in env}
    return [*env, *(entry for entry in ours if entry["name"] not in present)]


def _prefix_python_path(env: list[dict[str, Any]], *, image_path: str, site: str) -> None:
    """Put our directory first; what the container or the image set comes after it, and stays where it was.

    The position matters: `$(NAME)` in a later variable refers to one before it. An empty value adds nothing, because
    an empty entry would mean the working directory.
    """
    positions = [position for position, entry in enumerate(env) if entry["name"] == names.ENV_PYTHONPATH]
    # Of a name set twice, Kubernetes takes the last.
    own = env[positions[-1]].get("value", "") if positions else image_path
    value = f"{site}:{own}" if own else site
    if positions:
        env[positions[-1]] = {"name": names.ENV_PYTHONPATH, "value": value}
    else:
        env.append({"name": names.ENV_PYTHONPATH, "value": value})
