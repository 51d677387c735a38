"""Who takes our scheduling gate off a pod, and that nothing else of the pod, or of its workload, changes with it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from apiserver import chart
from injection_pods import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from apiserver.server import Answer

    from .conftest import Installation

pytestmark = pytest.mark.cluster

NAMESPACE = "rights-test"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SERVER = f"system:serviceaccount:{chart.NAMESPACE}:preheat-server"
DIGEST = "sha256:" + "6" * 64
OTHERS, OURS = {"name": "kueue.x-k8s.io/admission"}, {"name": "preheat.dev/artifact"}
HELD = {"preheat.dev/manifest": "pending", "preheat.dev/injected": "no: it waits", "preheat.dev/wait-seconds": "90"}

Operations = list[dict[str, Any]]


def gated(name: str, labels: dict[str, str]) -> dict[str, Any]:
    document = pod(namespace=NAMESPACE)
    document["metadata"] = {"name": name, "labels": labels, "annotations": dict(HELD)}
    document["spec"]["schedulingGates"] = [OTHERS, OURS]
    return document


@pytest.fixture(scope="module")
def held(installation: Installation) -> Iterator[dict[str, str]]:
    """Paths of pods behind two gates, of which one is ours: labelled for us, and not."""
    documents = [gated("held", {"preheat.dev/model": "vision"}), gated("foreign", {"app": "x"})]
    for document in documents:
        answer = installation.server.request("POST", PODS, document)
        assert answer.ok, answer.message
    yield {document["metadata"]["name"]: f"{PODS}/{document['metadata']['name']}" for document in documents}
    for document in documents:
        installation.server.request("DELETE", f"{PODS}/{document['metadata']['name']}?gracePeriodSeconds=0")


def annotate(manifest: str) -> Operations:
    return [
        {"op": "add", "path": "/metadata/annotations/preheat.dev~1manifest", "value": manifest},
        {"op": "add", "path": "/metadata/annotations/preheat.dev~1injected", "value": "yes"},
    ]


TAKE_OFF: Operations = [
    {"op": "test", "path": "/spec/schedulingGates/1/name", "value": OURS["name"]},
    {"op": "remove", "path": "/spec/schedulingGates/1"},
]


def patch(installation: Installation, path: str, operations: Operations, user: str) -> Answer:
    return installation.server.request(
        "PATCH", f"{path}?dryRun=All", copy.deepcopy(operations), user=user, content_type="application/json-patch+json"
    )


def test_a_pod_that_waits_keeps_what_admission_said_whoever_made_it(
    installation: Installation, held: dict[str, str]
) -> None:
    kept = installation.server.request("GET", held["held"]).body["metadata"]["annotations"]
    assert kept == HELD, "the policy on forged annotations leaves it alone"
    foreign = installation.server.request("GET", held["foreign"]).body["metadata"]["annotations"]
    assert foreign["preheat.dev/manifest"] == "none"


def test_controller_server_and_uninstall_hook_take_our_gate_off_and_leave_the_others(
    installation: Installation, held: dict[str, str]
) -> None:
    for user, manifest in (
        (installation.controller, DIGEST), (installation.controller, "none"),
        (installation.uninstaller, "none"), (SERVER, "none"),
    ):  # fmt: skip
        answer = patch(installation, held["held"], [*annotate(manifest), *TAKE_OFF], user)
        if user == installation.uninstaller and answer.status == 403:
            # Its rights exist only while the hook runs.
            assert "RBAC" in answer.message or "cannot patch" in answer.message
            continue
        assert answer.ok, answer.message
        assert answer.body["spec"]["schedulingGates"] == [OTHERS]


TERM = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
REPLACE_IMAGE = {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}
MORE: dict[str, Operations] = {
    "another's gate": [{"op": "remove", "path": "/spec/schedulingGates/0"}],
    "both gates": [{"op": "remove", "path": "/spec/schedulingGates"}],
    "the gate and an image": [*TAKE_OFF, REPLACE_IMAGE],
    "the gate and a node selector": [*TAKE_OFF, {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}],
    "the gate and a toleration": [
        *TAKE_OFF, {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}},
    ],
    "the gate and an affinity": [*TAKE_OFF, {"op": "add", "path": "/spec/affinity", "value": AFFINITY}],
    "the gate and a deadline": [*TAKE_OFF, {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 5}],
}  # fmt: skip


@pytest.mark.parametrize("name", MORE)
def test_nothing_else_of_the_spec_changes_with_it(installation: Installation, held: dict[str, str], name: str) -> None:
    installation.refused_only_by(
        "preheat-controller-pods",
        lambda: patch(installation, held["held"], MORE[name], installation.controller),
        says="never changes a pod's spec, but for taking off its gate",
    )


def test_nor_a_label_with_it(installation: Installation, held: dict[str, str]) -> None:
    operations = [*TAKE_OFF, {"op": "add", "path": "/metadata/labels/app", "value": "x"}]
    installation.refused_only_by(
        "preheat-controller-pods",
        lambda: patch(installation, held["held"], operations, installation.controller),
        says="never changes a pod's spec, status, labels or owners",
    )


BEYOND: dict[str, Operations] = {
    "a digest": [*annotate(DIGEST), *TAKE_OFF],
    "the gate alone": TAKE_OFF,
    "a finalizer": [*annotate("none"), *TAKE_OFF, {"op": "add", "path": "/metadata/finalizers", "value": ["preheat.dev/result"]}],
}  # fmt: skip


@pytest.mark.parametrize("name", BEYOND)
def test_the_server_gives_a_pod_leave_to_start_and_nothing_to_start_with(
    installation: Installation, held: dict[str, str], name: str
) -> None:
    installation.refused_only_by(
        "preheat-controller-pods",
        lambda: patch(installation, held["held"], BEYOND[name], SERVER),
        says="only lets pods go on without artifacts",
    )


def test_nor_does_it_tell_a_pod_so_without_letting_it_go_on(installation: Installation, held: dict[str, str]) -> None:
    installation.refused_only_by(
        "preheat-server-pods",
        lambda: patch(installation, held["held"], annotate("none"), SERVER),
        says="changes only the annotation preheat.dev/served",
    )


@pytest.mark.parametrize("user", ["controller", "server"])
def test_the_gate_of_a_pod_that_is_not_labelled_is_nobodys_business(
    installation: Installation, held: dict[str, str], user: str
) -> None:
    who = installation.controller if user == "controller" else SERVER
    answer = patch(installation, held["foreign"], [*annotate("none"), *TAKE_OFF], who)
    assert answer.status == 403
    assert "changes only pods labelled" in answer.message


def test_the_server_deletes_no_pod(installation: Installation, held: dict[str, str]) -> None:
    assert installation.server.request("DELETE", f"{held['held']}?dryRun=All", user=SERVER).status == 403


def template(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app": "w"}, "annotations": {"team": "a", **annotations}},
        "spec": {"containers": [{"name": "c", "image": "x:1"}]},
    }


WORKLOADS: dict[str, dict[str, Any]] = {
    "deployments": {"kind": "Deployment", "spec": {"strategy": {"type": "RollingUpdate"}}},
    "statefulsets": {"kind": "StatefulSet", "spec": {"serviceName": "w"}},
}


@pytest.fixture(scope="module", params=WORKLOADS)
def workload(installation: Installation, request: pytest.FixtureRequest) -> Iterator[str]:
    """Path of a workload of a user's."""
    more = WORKLOADS[request.param]
    document = {
        "apiVersion": "apps/v1", "kind": more["kind"], "metadata": {"name": "w", "namespace": NAMESPACE},
        "spec": {"selector": {"matchLabels": {"app": "w"}}, "template": template(), **more["spec"]},
    }  # fmt: skip
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{request.param}"
    answer = installation.server.request("POST", path, document)
    assert answer.ok, answer.message
    yield f"{path}/w"
    installation.server.request("DELETE", f"{path}/w?propagationPolicy=Background")


def merge(installation: Installation, path: str, spec: dict[str, Any], **metadata: Any) -> Answer:
    body = {"spec": spec} | ({"metadata": metadata} if metadata else {})
    return installation.server.request("PATCH", f"{path}?dryRun=All", body, user=installation.controller)


RESTART = {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}}}}


def test_the_controller_restarts_a_workload(installation: Installation, workload: str) -> None:
    answer = merge(installation, workload, RESTART)
    assert answer.ok, answer.message
    annotations = answer.body["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"team": "a", "kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}


def _with(**more: Any) -> dict[str, Any]:
    changed = copy.deepcopy(RESTART)
    for key, value in more.items():
        if key == "template":
            changed["template"] = value
        else:
            changed[key] = value  # type: ignore[assignment]
    return changed


CHANGES: dict[str, dict[str, Any]] = {
    "replicas": _with(replicas=5),
    "nothing but replicas": {"replicas": 5},
    "an image": {"template": {"spec": {"containers": [{"name": "c", "image": "evil"}]}}},
    "an image with a restart": _with(
        template={**RESTART["template"], "spec": {"containers": [{"name": "c", "image": "evil"}]}}
    ),
    "another annotation": {"template": {"metadata": {"annotations": {"team": "b"}}}},
    "an annotation less": _with(
        template={"metadata": {"annotations": {"team": None, "kubectl.kubernetes.io/restartedAt": "x"}}}
    ),
    "a label": {"template": {"metadata": {"labels": {"preheat.dev/model": "x"}}}},
    "how many old ones are kept": _with(revisionHistoryLimit=1),
    "when a pod is ready": _with(minReadySeconds=9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_and_changes_nothing_else_of_it(installation: Installation, workload: str, name: str) -> None:
    installation.refused_only_by(
        "preheat-controller-workloads",
        lambda: merge(installation, workload, CHANGES[name]),
        says="changes nothing of a workload but the annotation",
    )


@pytest.mark.parametrize(
    ("plural", "spec"),
    [
        ("deployments", {"paused": True}), ("deployments", {"progressDeadlineSeconds": 9}),
        ("deployments", {"strategy": {"type": "Recreate", "rollingUpdate": None}}),
        ("statefulsets", {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}), ("statefulsets", {"ordinals": {"start": 3}}),
    ],
)  # fmt: skip
def test_nor_how_it_is_rolled_out(installation: Installation, workload: str, plural: str, spec: dict[str, Any]) -> None:
    if f"/{plural}/" not in workload:
        return
    installation.refused_only_by(
        "preheat-controller-workloads",
        lambda: merge(installation, workload, _with(**spec)),
        says="changes nothing of a workload but the annotation",
    )
