"""The pod of a compile Job, made from the pod that serves the model.

Compiling must happen where serving happens: same image, environment, mounts, user. What would make the compile pod
*act* as the workload is left behind: labels (a Service must not route to it), ports, probes, hooks, sidecars, host
namespaces, priority. The store's credentials are mounted into our own two containers and never into the user's.
"""

from __future__ import annotations

import copy
import json
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from preheat_operator.api import names
from preheat_operator.api.enums import ServiceAccountToken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from preheat_operator.api.hardware import Hardware
    from preheat_operator.api.spec import CompiledModelSpec
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.workload import Serving

_COPIED_FROM_CONTAINER = (
    "env", "envFrom", "workingDir", "volumeMounts", "volumeDevices", "resources", "securityContext",
)  # fmt: skip
_COPIED_FROM_INIT_CONTAINER = (*_COPIED_FROM_CONTAINER, "name", "image", "imagePullPolicy", "command", "args")
_COPIED_FROM_POD = (
    "imagePullSecrets", "runtimeClassName", "tolerations", "serviceAccountName", "securityContext", "nodeSelector",
)  # fmt: skip
_OURS = (names.CONTAINER_TOOLKIT, names.CONTAINER_COMPILE, names.CONTAINER_PUBLISH, names.CONTAINER_FETCH)
# Variables by which clients of S3 and of Hugging Face are told where to look, as whom, and by which way.
_OF_CLIENTS = ("AWS_", "HF_", "HUGGING_FACE_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy",
               "no_proxy", "SSL_CERT_")  # fmt: skip
_TOOLKIT = posixpath.join(names.MOUNT_PREHEAT, "toolkit")
# The Job's own uid, which the Job controller writes on every pod it makes.
_JOB_UID_FIELD = "metadata.labels['batch.kubernetes.io/controller-uid']"


@dataclass(frozen=True, kw_only=True)
class Errand:
    """What differs between the Jobs of one revision: the request, the Job to recover from, the parts to join."""

    request: Mapping[str, Any]
    recover_job: str = ""
    parts: Sequence[str] = ()


def compile_pod(
    *, spec: CompiledModelSpec, hardware: Hardware, serving: Serving, installation: Installation, namespace: str,
    model: str, errand: Errand,
) -> dict[str, Any]:  # fmt: skip
    """The pod spec of a Job that compiles on one hardware profile.

    Containers in order: toolkit, the workload's init containers (they may fetch weights), compile; then publish.
    """
    source: Mapping[str, Any] = serving.template.get("spec") or {}
    initial = [
        _init_container(c)
        for c in source.get("initContainers") or ()
        if isinstance(c, dict) and c.get("restartPolicy") != "Always" and c.get("name") != names.CONTAINER_FETCH
    ]
    compile_container = _compile_container(serving=serving, hardware=hardware)
    pod = _pod(
        installation=installation,
        init_containers=[
            _own_container(names.CONTAINER_TOOLKIT, installation, namespace, model, errand, memory="256Mi"),
            *initial,
            compile_container,
        ],
        publish=_own_container(names.CONTAINER_PUBLISH, installation, namespace, model, errand, memory="1Gi"),
    )
    own_pull_secrets = pod.get("imagePullSecrets", [])
    with_token = spec.compile.service_account_token == ServiceAccountToken.WORKLOAD
    pod |= {key: copy.deepcopy(source[key]) for key in _COPIED_FROM_POD if source.get(key) is not None}
    if own_pull_secrets:
        theirs = pod["imagePullSecrets"]
        pod["imagePullSecrets"] = [*theirs, *(s for s in own_pull_secrets if s not in theirs)]
    pod["automountServiceAccountToken"] = with_token
    used = {m.get("name") for c in (*initial, compile_container) for m in _mounts(c)}
    pod["volumes"] = [
        *(_volume(v, with_token=with_token) for v in source.get("volumes") or () if v.get("name") in used),
        *({"name": claim, "emptyDir": {}} for claim in sorted(serving.claims & used)),
        *pod["volumes"],
    ]
    if hardware.node_selector is not None:
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), **hardware.node_selector}
    if hardware.tolerations is not None:
        pod["tolerations"] = [*pod.get("tolerations", []), *(t.to_api() for t in hardware.tolerations)]
    if hardware.runtime_class_name is not None:
        pod["runtimeClassName"] = hardware.runtime_class_name
    return pod


def merge_pod(
    *, serving: Serving, installation: Installation, namespace: str, model: str, errand: Errand
) -> dict[str, Any]:
    """The pod spec of a Job that only joins the manifests of several hardware profiles: no user's code runs in it."""
    pod = _pod(
        installation=installation,
        init_containers=[],
        publish=_own_container(names.CONTAINER_PUBLISH, installation, namespace, model, errand, memory="1Gi"),
    )
    # The store may know us by the workload's service account (web identity) rather than by a Secret.
    account = (serving.template.get("spec") or {}).get("serviceAccountName")
    if account:
        pod["serviceAccountName"] = account
    pod["automountServiceAccountToken"] = False
    return pod


def lookup_pod(*, serving: Serving, installation: Installation, what: Mapping[str, Any]) -> dict[str, Any]:
    """The pod spec of a Job that looks which weights there are, as the serving container would be allowed to.

    Of its variables those that such clients read are taken over, by reference where they come from Secrets. Where a
    whole Secret or ConfigMap is taken over, what would change our own Python is set back.
    """
    source: Mapping[str, Any] = serving.template.get("spec") or {}
    environment = [
        copy.deepcopy(e) for e in serving.container.get("env") or () if str(e.get("name", "")).startswith(_OF_CLIENTS)
    ]
    neutral = [{"name": name, "value": ""} for name in ("PYTHONPATH", "PYTHONHOME", "LD_PRELOAD", "LD_LIBRARY_PATH")]
    text = json.dumps(what, sort_keys=True, separators=(",", ":")).replace("$(", "$$(")
    user = {} if installation.run_as_user is None else {"runAsUser": installation.run_as_user}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": names.CONTAINER_LOOKUP,
                "image": installation.image,
                "imagePullPolicy": installation.image_pull_policy,
                "command": ["python3", "-m", "preheat_operator.lookup"],
                "env": [*neutral, *environment, {"name": names.ENV_LOOKUP, "value": text}],
                "envFrom": copy.deepcopy(list(serving.container.get("envFrom") or ())),
                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}},
                "securityContext": _restricted(user),
            }
        ],
    }
    for field in ("serviceAccountName", "imagePullSecrets", "tolerations", "nodeSelector"):
        if source.get(field):
            pod[field] = copy.deepcopy(source[field])
    own = [{"name": name} for name in installation.image_pull_secrets]
    if own:
        theirs = pod.get("imagePullSecrets", [])
        pod["imagePullSecrets"] = [*theirs, *(s for s in own if s not in theirs)]
    return pod


def _restricted(user: Mapping[str, int]) -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        **user,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def _pod(
    *, installation: Installation, init_containers: list[dict[str, Any]], publish: dict[str, Any]
) -> dict[str, Any]:
    # Optional throughout: that credentials are missing is for `publish` to say, in a message the controller reads.
    sources: list[dict[str, Any]] = [{"secret": {"name": installation.publish_secret, "optional": True}}]
    if installation.store_ca_config_map:
        sources.append({"configMap": {"name": installation.store_ca_config_map, "optional": True}})
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "initContainers": init_containers,
        "containers": [publish],
        "volumes": [
            {"name": names.VOLUME_PREHEAT, "emptyDir": {}},
            {"name": names.VOLUME_STORE, "projected": {"sources": sources}},
        ],
    }
    if installation.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in installation.image_pull_secrets]
    if installation.priority_class:
        pod["priorityClassName"] = installation.priority_class
    return pod


def _own_container(
    name: str, installation: Installation, namespace: str, model: str, errand: Errand, *, memory: str
) -> dict[str, Any]:
    user = {} if installation.run_as_user is None else {"runAsUser": installation.run_as_user}
    environment = {
        names.ENV_MODEL: model,
        names.ENV_NAMESPACE: namespace,
        names.ENV_STORE_ENDPOINT: installation.store_endpoint,
        names.ENV_STORE_BUCKET: installation.store_bucket,
        names.ENV_STORE_REGION: installation.store_region,
        names.ENV_STORE_TENANT: installation.tenant(namespace),
        names.ENV_STORE_CREDENTIALS: names.MOUNT_STORE,
        names.ENV_STORE_CA: names.STORE_CA_FILE if installation.store_ca_config_map else "",
        names.ENV_REQUEST: json.dumps(errand.request, sort_keys=True, separators=(",", ":")),
        names.ENV_RECOVER_JOB: errand.recover_job,
        names.ENV_PARTS: ",".join(errand.parts),
    }
    return {
        "name": name,
        "image": installation.image,
        "imagePullPolicy": installation.image_pull_policy,
        "command": ["python3", "-m", f"preheat_operator.{name}"],
        "env": [
            # Kubernetes expands $(NAME) in values: a request that holds such text must arrive as it is.
            *({"name": key, "value": value.replace("$(", "$$(")} for key, value in environment.items()),
            {"name": names.ENV_JOB_UID, "valueFrom": {"fieldRef": {"fieldPath": _JOB_UID_FIELD}}},
        ],
        "volumeMounts": [
            {"name": names.VOLUME_PREHEAT, "mountPath": names.MOUNT_PREHEAT},
            {"name": names.VOLUME_STORE, "mountPath": names.MOUNT_STORE, "readOnly": True},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": memory}},
        "securityContext": _restricted(user),
    }


def _compile_container(*, serving: Serving, hardware: Hardware) -> dict[str, Any]:
    source = serving.container
    container = {k: copy.deepcopy(source[k]) for k in _COPIED_FROM_CONTAINER if source.get(k) is not None}
    if hardware.resources is not None:
        container["resources"] = hardware.resources.to_api()
    container["volumeMounts"] = [
        *container.get("volumeMounts", []),
        {"name": names.VOLUME_PREHEAT, "mountPath": names.MOUNT_PREHEAT},
    ]
    arguments = [
        "--request", posixpath.join(names.MOUNT_PREHEAT, "request.json"),
        "--out", posixpath.join(names.MOUNT_PREHEAT, "out"),
    ]  # fmt: skip
    container |= {
        "name": names.CONTAINER_COMPILE,
        "image": serving.compile_image,
        "imagePullPolicy": _pull_policy(source, serving.compile_image),
        "command": [*_driver(source), *arguments],
        "terminationMessagePolicy": "File",
    }
    return container


def _driver(container: Mapping[str, Any]) -> list[str]:
    """How the compile driver is started: with the workload's own Python, when its command names one."""
    command = container.get("command") or [""]
    if posixpath.basename(str(command[0])).startswith("python"):
        return [str(command[0]), posixpath.join(_TOOLKIT, "compile.py")]
    return ["/bin/sh", posixpath.join(_TOOLKIT, "compile.sh")]


def _pull_policy(container: Mapping[str, Any], image: str) -> str:
    """Always, unless the image cannot have moved (a digest) or must not be pulled (the workload says Never)."""
    policy = container.get("imagePullPolicy")
    if policy == "Never":
        return "Never"
    return "IfNotPresent" if "@sha256:" in image else "Always"


def _init_container(source: Mapping[str, Any]) -> dict[str, Any]:
    container = {k: copy.deepcopy(source[k]) for k in _COPIED_FROM_INIT_CONTAINER if source.get(k) is not None}
    if container.get("name") in _OURS:
        container["name"] = f"workload-{container['name']}"
    return container


def _mounts(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*container.get("volumeMounts", ()), *container.get("volumeDevices", ())]


def _volume(source: Mapping[str, Any], *, with_token: bool) -> dict[str, Any]:
    """A volume of the workload; without its service account token, unless that was asked for."""
    volume = copy.deepcopy(dict(source))
    sources = (volume.get("projected") or {}).get("sources")
    if with_token or not sources:
        return volume
    volume["projected"]["sources"] = [s for s in sources if "serviceAccountToken" not in s]
    return volume if volume["projected"]["sources"] else {"name": volume["name"], "emptyDir": {}}
