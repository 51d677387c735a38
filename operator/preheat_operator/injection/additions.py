"""What is added to a pod, said once: plain data with placeholders, rendered as CEL and applied by the reference.

A placeholder names an input: a setting of the installation, or something read from the pod and the index. Whoever
renders supplies the inputs; neither the policy nor the reference knows what a fetch container looks like.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from preheat_operator.api import names

FETCH_COMMAND: Final = ("python3", "-m", "preheat_operator.fetch")


@dataclass(frozen=True)
class Input:
    """A value known only for one pod or one installation; `optional` when it may be absent (then inside a Maybe)."""

    name: str
    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Maybe:
    """`value`, left out of its list or object when `given` has none: an absent setting."""

    given: Input
    value: Any


RUN_AS_USER: Final = Input("runAsUser", optional=True)
SERVING: Final = Input("serving", optional=True)
STORE_CA_CONFIG_MAP: Final = Input("storeCaConfigMap", optional=True)
# Why the pod's artifacts must be there, and what was assumed so that they can come later.
MUST_FETCH: Final = Input("mustFetch", optional=True)
ASSUMED: Final = Input("assumed", optional=True)
REPORTS_URL: Final = Input("reports", optional=True)
REPORTS_CA: Final = Input("reportsAuthority", optional=True)


def fetch_container() -> dict[str, Any]:
    """The init container that brings artifacts.

    It meets the restricted Pod Security Standard by itself, whatever the pod's own security context is. Its
    resources, copied from the served container, are not here: so quota, LimitRange and QoS class never change.
    """
    return {
        "name": names.CONTAINER_FETCH,
        "image": Input("fetchImage"),
        "imagePullPolicy": Input("pullPolicy"),
        "command": list(FETCH_COMMAND),
        "env": [
            {"name": names.ENV_MANIFEST, "valueFrom": _field(f"metadata.annotations['{names.ANNOTATION_MANIFEST}']")},
            {"name": names.ENV_NAMESPACE, "valueFrom": _field("metadata.namespace")},
            {"name": names.ENV_MODEL, "value": Input("model")},
            {"name": names.ENV_STORE_ENDPOINT, "value": Input("storeEndpoint")},
            {"name": names.ENV_STORE_BUCKET, "value": Input("storeBucket")},
            {"name": names.ENV_STORE_REGION, "value": Input("storeRegion")},
            {"name": names.ENV_STORE_TENANT, "value": Input("tenant")},
            {"name": names.ENV_STORE_CREDENTIALS, "value": names.MOUNT_STORE},
            {"name": names.ENV_STORE_CA, "value": Input("storeCa")},
            {"name": names.ENV_FETCH_TIMEOUT, "value": Input("fetchTimeout")},
            Maybe(given=MUST_FETCH, value={"name": names.ENV_WHEN_MISSING, "value": MUST_FETCH}),
            Maybe(given=ASSUMED, value={"name": names.ENV_ASSUMED_PYTHON_PATH, "value": ASSUMED}),
        ],
        "volumeMounts": [
            {"name": names.VOLUME_PREHEAT, "mountPath": names.MOUNT_PREHEAT},
            {"name": names.VOLUME_STORE, "mountPath": names.MOUNT_STORE, "readOnly": True},
        ],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": Maybe(given=RUN_AS_USER, value=RUN_AS_USER),
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }


def volumes() -> list[dict[str, Any] | Maybe]:
    """The pod's new volumes. The store's is optional throughout: a missing Secret must not keep a pod from starting."""
    certificate = {"configMap": {"name": STORE_CA_CONFIG_MAP, "optional": True}}
    sources = [
        {"secret": {"name": Input("storeSecret"), "optional": True}},
        Maybe(given=STORE_CA_CONFIG_MAP, value=certificate),
    ]
    return [
        {"name": names.VOLUME_PREHEAT, "emptyDir": {}},
        {"name": names.VOLUME_WORK, "emptyDir": {}},
        {"name": names.VOLUME_STORE, "projected": {"sources": sources}},
        Maybe(given=REPORTS_URL, value={"name": names.VOLUME_REPORTS, "projected": {"sources": [_reports_token()]}}),
    ]


def _reports_token() -> dict[str, Any]:
    """A token that says which pod reports, and opens nothing: no API server takes it for its own."""
    return {
        "serviceAccountToken": {
            "audience": names.REPORTS_AUDIENCE,
            "expirationSeconds": names.REPORTS_TOKEN_SECONDS,
            "path": names.REPORTS_TOKEN_KEY,
        }
    }


def served_mounts() -> list[dict[str, Any] | Maybe]:
    """What is mounted into the container that serves; artifacts are read-only there."""
    return [
        {"name": names.VOLUME_PREHEAT, "mountPath": names.MOUNT_PREHEAT, "readOnly": True},
        {"name": names.VOLUME_WORK, "mountPath": names.MOUNT_WORK},
        Maybe(
            given=REPORTS_URL,
            value={"name": names.VOLUME_REPORTS, "mountPath": names.MOUNT_REPORTS, "readOnly": True},
        ),
    ]


def served_env(*, directory: str = names.MOUNT_PREHEAT, work: str = names.MOUNT_WORK) -> list[Any]:
    """Variables of the container that serves, beside PYTHONPATH; one that is set already stays as it is.

    The folders differ only outside a pod (`preheat run`).
    """
    return [
        {"name": names.ENV_DIR, "value": directory},
        {"name": names.ENV_WORK_DIR, "value": work},
        {"name": names.ENV_MODEL, "value": Input("model")},
        Maybe(given=SERVING, value={"name": names.ENV_SERVING, "value": SERVING}),
    ]


def reports_env() -> list[Maybe]:
    """Where the container that serves reports to, in installations that count it."""
    return [
        Maybe(given=REPORTS_URL, value={"name": names.ENV_REPORTS_URL, "value": REPORTS_URL}),
        Maybe(given=REPORTS_URL, value={"name": names.ENV_REPORTS_TOKEN, "value": names.REPORTS_TOKEN_FILE}),
        Maybe(given=REPORTS_CA, value={"name": names.ENV_REPORTS_CA, "value": REPORTS_CA}),
    ]


def _field(path: str) -> dict[str, Any]:
    return {"fieldRef": {"fieldPath": path}}
