"""Where the objects Preheat reads and writes are, as URL paths."""

from __future__ import annotations

from preheat_operator.api import names
from preheat_operator.api.enums import WorkloadKind
from preheat_operator.cluster.client import path_of

_WORKLOADS = {WorkloadKind.DEPLOYMENT: "deployments", WorkloadKind.STATEFUL_SET: "statefulsets"}


def compiled_models(namespace: str = "", name: str = "", sub: str = "") -> str:
    """CompiledModels of a namespace (or all), one of them, or its subresource."""
    return path_of(
        group=names.GROUP, version=names.VERSION, plural=names.COMPILED_MODEL_PLURAL, namespace=namespace, name=name,
        sub=sub,
    )  # fmt: skip


def indices(namespace: str = "") -> str:
    """Every CompiledModelIndex."""
    return path_of(
        group=names.GROUP, version=names.VERSION, plural=names.COMPILED_MODEL_INDEX_PLURAL, namespace=namespace
    )


def index(namespace: str) -> str:
    """The CompiledModelIndex of a namespace."""
    return path_of(
        group=names.GROUP, version=names.VERSION, plural=names.COMPILED_MODEL_INDEX_PLURAL, namespace=namespace,
        name=names.INDEX_NAME,
    )  # fmt: skip


def workload(kind: WorkloadKind, namespace: str, name: str) -> str:
    """A Deployment or StatefulSet."""
    return path_of(group="apps", plural=_WORKLOADS[kind], namespace=namespace, name=name)


def jobs(namespace: str = "", name: str = "") -> str:
    """Jobs of a namespace (or all), or one of them."""
    return path_of(group="batch", plural="jobs", namespace=namespace, name=name)


def pods(namespace: str = "", name: str = "") -> str:
    """Pods of a namespace (or all), or one of them."""
    return path_of(plural="pods", namespace=namespace, name=name)


def events(namespace: str) -> str:
    """Events of a namespace."""
    return path_of(plural="events", namespace=namespace)


def deployment(namespace: str, name: str, sub: str = "") -> str:
    """A Deployment, or its scale."""
    return path_of(group="apps", plural="deployments", namespace=namespace, name=name, sub=sub)
