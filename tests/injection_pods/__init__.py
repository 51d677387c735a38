"""Pods that injection must get right, by what is special about each; used by the unit and the cluster tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE = "registry.example:5000/vision:1.4"
DIGEST = "sha256:" + "a" * 64


def pod(*, namespace: str, image: str = IMAGE, **container: Any) -> dict[str, Any]:
    """A labelled pod of one container."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": namespace, "labels": {"preheat.dev/model": "vision"}},
        # Elsewhere an admission plugin sees to it before the policies.
        "spec": {"serviceAccountName": "default", "containers": [{"name": "server", "image": image, **container}]},
    }


def _labels(namespace: str, **labels: str) -> dict[str, Any]:
    document = pod(namespace=namespace)
    document["metadata"]["labels"] = {f"preheat.dev/{key}": value for key, value in labels.items()}
    return document


def _annotated(document: dict[str, Any], **annotations: str) -> dict[str, Any]:
    document["metadata"]["annotations"] = {f"preheat.dev/{key}": value for key, value in annotations.items()}
    return document


def _spec(namespace: str, **fields: Any) -> dict[str, Any]:
    document = pod(namespace=namespace)
    document["spec"].update(fields)
    return document


def _two(namespace: str, model: str = "vision-2") -> dict[str, Any]:
    document = _labels(namespace, model=model)
    document["spec"]["containers"].append(
        {"name": "second", "image": IMAGE, "env": [{"name": "PYTHONPATH", "value": "/x:/y"}], "resources": {}}
    )
    return document


def _look_alike(namespace: str) -> dict[str, Any]:
    document = _spec(
        namespace,
        initContainers=[
            {"name": "preheat-fetch", "image": "evil", "command": ["python3", "-m", "preheat_operator.fetch"]}
        ],
    )
    return _annotated(document, manifest="sha256:" + "6" * 64, injected="yes")


def _rewritten_later(namespace: str) -> dict[str, Any]:
    """What a second call sees when another webhook changed the image after the first."""
    document = _look_alike(namespace)
    document["spec"]["containers"][0]["image"] = "mirror.example/vision:1.4"
    return _annotated(document, manifest=DIGEST, injected="yes")


_FIELD = {"fieldRef": {"fieldPath": "metadata.name"}}
PODS: dict[str, Callable[[str], dict[str, Any]]] = {
    "plain": lambda ns: pod(namespace=ns),
    "no label": lambda ns: _labels(ns),
    "opted out": lambda ns: _labels(ns, model="vision", inject="disabled"),
    "another word in the opt-out": lambda ns: _labels(ns, model="vision", inject="enabled"),
    "model unknown": lambda ns: _labels(ns, model="visio"),
    "model is the end of a name": lambda ns: _labels(ns, model="sion"),
    "injection paused": lambda ns: _labels(ns, model="paused"),
    "image without a line": lambda ns: pod(namespace=ns, image="registry.example:5000/vision:1"),
    "PYTHONPATH of the image": lambda ns: pod(namespace=ns, image="with-path:1"),
    "own PYTHONPATH": lambda ns: pod(
        namespace=ns,
        image="with-path:1",
        env=[
            {"name": "ROOT", "value": "/r"},
            {"name": "PYTHONPATH", "value": "$(ROOT)/lib"},
            {"name": "LATER", "value": "$(PYTHONPATH)"},
        ],
    ),
    "empty PYTHONPATH": lambda ns: pod(namespace=ns, image="with-path:1", env=[{"name": "PYTHONPATH", "value": ""}]),
    "PYTHONPATH twice": lambda ns: pod(
        namespace=ns, env=[{"name": "PYTHONPATH", "value": "/a"}, {"name": "PYTHONPATH", "value": "/b"}]
    ),
    "PYTHONPATH from elsewhere": lambda ns: pod(namespace=ns, env=[{"name": "PYTHONPATH", "valueFrom": _FIELD}]),
    "own variables": lambda ns: pod(
        namespace=ns, env=[{"name": "PREHEAT_DIR", "value": "/mine"}, {"name": "PREHEAT_DISABLE", "value": "1"}]
    ),
    "serving of the model's line": lambda ns: _labels(ns, model="strict"),
    "own serving": lambda ns: (
        lambda p: p["spec"]["containers"][0].update(env=[{"name": "PREHEAT_SERVING", "value": "onMiss=Eager"}]) or p
    )(_labels(ns, model="strict")),
    "container of the model's line": lambda ns: _two(ns),
    "first container of two": lambda ns: _two(ns, model="vision"),
    "container of the annotation": lambda ns: _annotated(_two(ns, model="vision"), container="second"),
    "container missing": lambda ns: _labels(ns, model="lost"),
    "container of the annotation missing": lambda ns: _annotated(pod(namespace=ns), container="nope"),
    "own init containers and volumes": lambda ns: _spec(
        ns,
        initContainers=[{"name": "weights", "image": "w"}, {"name": "proxy", "image": "s", "restartPolicy": "Always"}],
        volumes=[{"name": "data", "emptyDir": {}}],
        imagePullSecrets=[{"name": "mine"}],
    ),
    "pull secret there already": lambda ns: _spec(ns, imagePullSecrets=[{"name": "regcred"}]),
    "own volume of our name": lambda ns: _spec(ns, volumes=[{"name": "preheat-work", "emptyDir": {}}]),
    "own volume of the reports' name": lambda ns: _spec(ns, volumes=[{"name": "preheat-reports", "emptyDir": {}}]),
    "no service account": lambda ns: (lambda p: p["spec"].pop("serviceAccountName") and p)(pod(namespace=ns)),
    "reports switched off": lambda ns: pod(namespace=ns, env=[{"name": "PREHEAT_REPORTS_URL", "value": ""}]),
    "own container of our name": lambda ns: _spec(
        ns, containers=[{"name": "server", "image": IMAGE}, {"name": "preheat-fetch", "image": "x"}]
    ),
    "own init container of our name": lambda ns: _spec(ns, initContainers=[{"name": "preheat-fetch", "image": "x"}]),
    "own mount below ours": lambda ns: _spec(
        ns,
        containers=[
            {"name": "server", "image": IMAGE, "volumeMounts": [{"name": "data", "mountPath": "/opt/preheat/mine"}]}
        ],
        volumes=[{"name": "data", "emptyDir": {}}],
    ),
    "own mount beside ours": lambda ns: _spec(
        ns,
        containers=[
            {"name": "server", "image": IMAGE, "volumeMounts": [{"name": "data", "mountPath": "/opt/preheat2"}]}
        ],
        volumes=[{"name": "data", "emptyDir": {}}],
    ),
    "resources with a device": lambda ns: pod(
        namespace=ns,
        resources={
            "limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"},
            "requests": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": 1},
        },
    ),
    "requests only": lambda ns: pod(namespace=ns, resources={"requests": {"memory": "64Mi"}}),
    "a resource claim": lambda ns: _spec(
        ns,
        containers=[{"name": "server", "image": IMAGE, "resources": {"claims": [{"name": "gpu", "request": "one"}]}}],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    ),
    "users and groups of the pod": lambda ns: _spec(
        ns,
        securityContext={"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 2000, "runAsNonRoot": True},
        hostUsers=False,
    ),
    "Windows": lambda ns: _spec(ns, os={"name": "windows"}),
    "scheduling gates of others": lambda ns: _spec(ns, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
    "a manifest of the author's choice": lambda ns: _annotated(
        pod(namespace=ns), manifest="sha256:" + "6" * 64, injected="yes"
    ),
    "a look-alike with a forged manifest": _look_alike,
    "a second call after the image was rewritten": _rewritten_later,
    "other annotations": lambda ns: (lambda p: p["metadata"].update(annotations={"a/b": "c"}) or p)(pod(namespace=ns)),
}
