"""Pods that injection must get right, by what is special about each; used by the unit and the cluster tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preheat_operator.api.enums import Admission
from preheat_operator.api.index import ImageEntry, ModelEntry, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

IMAGE = "registry.example:5000/vision:1.4"
DIGEST = "sha256:" + "a" * 64
#: Of an index that is used with these pods; of the last ones some pods wait, or fail.
MODELS = (
    ModelEntry(model="vision"),
    ModelEntry(model="vision-2", container="second"),
    ModelEntry(model="paused", when_missing=Admission.PAUSED),
    ModelEntry(model="lost", container="gone"),
    ModelEntry(model="strict", serving="onMiss=Fail,verify=Before"),
    ModelEntry(
        model="waits", when_missing=Admission.WAIT, wait_seconds=90, waiting=Waiting(known=True, python_path="/app")
    ),
    ModelEntry(
        model="waits-dollar", when_missing=Admission.WAIT, wait_seconds=90, serving="verify=Before",
        waiting=Waiting(known=True, python_path="/$(X)/lib"),
    ),
    ModelEntry(model="waits-first", when_missing=Admission.WAIT, wait_seconds=480, waiting=Waiting()),
    ModelEntry(
        model="auto", when_missing=Admission.AUTO, wait_seconds=480,
        waiting=Waiting(known=True, deployment="vision"),
    ),
    ModelEntry(model="auto-alone", when_missing=Admission.AUTO, wait_seconds=480, waiting=Waiting(known=True)),
    ModelEntry(model="fails", when_missing=Admission.FAIL, wait_seconds=480, waiting=Waiting()),
)  # fmt: skip
#: Of those whose pods wait, or fail.
WAITING_IMAGES = (
    ImageEntry(model="waits", image=IMAGE, manifest=DIGEST, python_path="/app"),
    ImageEntry(model="waits", image="failed:1", manifest="none"),
    ImageEntry(model="auto", image=IMAGE, manifest=DIGEST),
    ImageEntry(model="fails", image=IMAGE, manifest=DIGEST),
    ImageEntry(model="fails", image="failed:1", manifest="none"),
)


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


def _new(namespace: str, model: str = "waits", *, owner: str | None = None, kind: str = "ReplicaSet") -> dict[str, Any]:
    """A pod of an image that nothing is ready for."""
    document = _labels(namespace, model=model)
    document["spec"]["containers"][0]["image"] = "registry.example:5000/vision:2"
    if owner is not None:
        document["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": "u", "controller": True}
        ]
    return document


def _asked(document: dict[str, Any], when_missing: str) -> dict[str, Any]:
    return _annotated(document, **{"when-missing": when_missing})


def _gated(document: dict[str, Any], *gates: str) -> dict[str, Any]:
    document["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]
    return document


def _copied(namespace: str) -> dict[str, Any]:
    """A pod written from one that waited: annotations, fetch container and gate are there already."""
    document = _look_alike(namespace)
    document["metadata"]["labels"]["preheat.dev/model"] = "waits"
    document["spec"]["containers"][0]["image"] = "registry.example:5000/vision:2"
    _annotated(document, manifest="pending", injected="yes", **{"wait-seconds": "99999"})
    return _gated(document, "preheat.dev/artifact")


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
    "waits": lambda ns: _new(ns),
    "waits, its image is ready": lambda ns: _labels(ns, model="waits"),
    "waits no more, nothing will come for its image": lambda ns: (
        lambda p: p["spec"]["containers"][0].update(image="failed:1") or p
    )(_new(ns)),
    "waits, with a PYTHONPATH of its own": lambda ns: (
        lambda p: p["spec"]["containers"][0].update(env=[{"name": "PYTHONPATH", "value": "/own"}]) or p
    )(_new(ns)),
    "waits, for the PYTHONPATH of an image with a dollar": lambda ns: _new(ns, "waits-dollar"),
    "waits, and nothing is known of its PYTHONPATH": lambda ns: _new(ns, "waits-first"),
    "waits, nothing is known but it sets its own": lambda ns: (
        lambda p: p["spec"]["containers"][0].update(env=[{"name": "PYTHONPATH", "value": "/own"}]) or p
    )(_new(ns, "waits-first")),
    "waits, among the gates of others": lambda ns: _gated(_new(ns), "kueue.x-k8s.io/admission"),
    "waits, and is gated already": lambda ns: _gated(_new(ns), "a.example/b", "preheat.dev/artifact"),
    "waits, copied from another": _copied,
    "waits, but cannot be injected": lambda ns: (
        lambda p: p["spec"].update(volumes=[{"name": "preheat", "emptyDir": {}}]) or p
    )(_new(ns)),
    "waits, but asked to start cold": lambda ns: _asked(_new(ns), "Cold"),
    "waits, but asked to fail": lambda ns: _asked(_new(ns), "Fail"),
    "waits, asked in a word that is none": lambda ns: _asked(_new(ns), "wait"),
    "waits automatically": lambda ns: _new(ns, "auto", owner="vision-6d4cf56db6"),
    "automatically, of another Deployment": lambda ns: _new(ns, "auto", owner="vision-b-6d4cf56db6"),
    "automatically, of a Deployment with the beginning of its name": lambda ns: _new(
        ns, "auto", owner="visio-6d4cf56db"
    ),
    "automatically, of a StatefulSet": lambda ns: _new(ns, "auto", owner="vision-x", kind="StatefulSet"),
    "automatically, of nobody": lambda ns: _new(ns, "auto"),
    "automatically, but the model follows no Deployment": lambda ns: _new(ns, "auto-alone", owner="-x"),
    "asked to wait, by a model that starts cold": lambda ns: _asked(_new(ns, "vision"), "Wait"),
    "asked to wait, while injection is paused": lambda ns: _asked(_new(ns, "paused"), "Wait"),
    "fails": lambda ns: _new(ns, "fails"),
    "fails, its image is ready": lambda ns: _labels(ns, model="fails"),
    "fails, nothing will come for its image": lambda ns: (
        lambda p: p["spec"]["containers"][0].update(image="failed:1") or p
    )(_new(ns, "fails")),
    "other annotations": lambda ns: (lambda p: p["metadata"].update(annotations={"a/b": "c"}) or p)(pod(namespace=ns)),
}
