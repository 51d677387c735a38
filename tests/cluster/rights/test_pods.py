"""Who writes our annotations on pods, and how little of a pod the controller may change."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from apiserver.fixtures import eventually
from injection_pods import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from apiserver.server import Answer

    from .conftest import Installation

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/rights-test/pods"
JOBS = "/apis/batch/v1/namespaces/rights-test/jobs"
DIGEST = "sha256:" + "6" * 64
FORGED = {"preheat.dev/manifest": DIGEST, "preheat.dev/injected": "yes"}
OURS = ("preheat.dev/manifest", "preheat.dev/injected", "preheat.dev/wait-seconds")


def labelled(name: str, labels: dict[str, str], **metadata: Any) -> dict[str, Any]:
    document = pod(namespace="rights-test")
    document["metadata"] = {"name": name, "labels": labels, **metadata}
    return document


@pytest.fixture(scope="module")
def pods(installation: Installation) -> Iterator[dict[str, str]]:
    """Paths of stored pods: one that serves, one that compiles, one that has nothing to do with us."""
    documents = {
        "serving": labelled("serving", {"preheat.dev/model": "vision"}, annotations={"team": "a"}),
        "compiling": labelled("compiling", {"preheat.dev/compiledmodel": "vision"}, finalizers=["preheat.dev/result"]),
        "foreign": labelled("foreign", {"app": "x"}),
    }
    for document in documents.values():
        answer = installation.server.request("POST", PODS, document)
        assert answer.ok, answer.message
    yield {name: f"{PODS}/{name}" for name in documents}
    installation.server.request("PATCH", f"{PODS}/compiling", {"metadata": {"finalizers": None}})
    for name in documents:
        installation.server.request("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


@pytest.mark.parametrize("annotation", OURS)
@pytest.mark.parametrize("subresource", ["", "/status"])
def test_users_do_not_change_our_annotations(
    installation: Installation, pods: dict[str, str], annotation: str, subresource: str
) -> None:
    def write(user: str = "alice") -> Answer:
        body = {"metadata": {"annotations": {annotation: DIGEST}}}
        return installation.server.request("PATCH", f"{pods['serving']}{subresource}?dryRun=All", body, user=user)

    installation.refused_only_by("preheat-pod-annotations", write, says="not by alice")


def test_nor_remove_them(installation: Installation, pods: dict[str, str]) -> None:
    body = {"metadata": {"annotations": {"preheat.dev/manifest": "none"}}}
    assert installation.server.request("PATCH", pods["serving"], body, user=installation.controller).ok

    def remove() -> Answer:
        gone = {"metadata": {"annotations": {"preheat.dev/manifest": None}}}
        return installation.server.request("PATCH", f"{pods['serving']}?dryRun=All", gone, user="alice")

    installation.refused_only_by("preheat-pod-annotations", remove, says="not by alice")


def test_a_binding_does_not_bring_them(installation: Installation, pods: dict[str, str]) -> None:
    def bind(annotations: dict[str, str] = FORGED) -> Answer:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "foreign", "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
        }
        return installation.server.request("POST", f"{pods['foreign']}/binding?dryRun=All", body, user="alice")

    assert bind({}).ok, bind({})
    installation.refused_only_by("preheat-pod-annotations", bind, says="not by alice")


def test_users_change_everything_else(installation: Installation, pods: dict[str, str]) -> None:
    body = {"metadata": {"annotations": {"team": "b"}, "labels": {"x": "y"}}}
    answer = installation.server.request("PATCH", f"{pods['serving']}?dryRun=All", body, user="alice")
    assert answer.ok, answer.message


FORGERIES = {
    "no label": labelled("p", {}, annotations=FORGED),
    "opted out": labelled("p", {"preheat.dev/model": "vision", "preheat.dev/inject": "disabled"}, annotations=FORGED),
    "labelled, no index": labelled("p", {"preheat.dev/model": "vision"}, annotations=FORGED),
    "only the manifest": labelled("p", {}, annotations={"preheat.dev/manifest": DIGEST}),
    "with a fetch container, not labelled": labelled("p", {}, annotations=FORGED)
    | {
        "spec": {
            "containers": [{"name": "c", "image": "x"}],
            "initContainers": [{"name": "preheat-fetch", "image": "x"}],
        }
    },
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_pod_s_author_does_not_choose_the_manifest(installation: Installation, name: str) -> None:
    document = copy.deepcopy(FORGERIES[name])

    def given() -> dict[str, str]:
        answer = installation.server.request("POST", f"{PODS}?dryRun=All", document, user="alice")
        assert answer.ok, answer.message
        annotations: dict[str, str] = answer.body["metadata"]["annotations"]
        return annotations

    assert given()["preheat.dev/manifest"] == "none"
    assert given()["preheat.dev/injected"].startswith("no: ")
    with installation.without("preheat-pod-authors"):
        eventually(lambda: given().get("preheat.dev/manifest") == DIGEST, what="without the policy it stays")
    eventually(lambda: given()["preheat.dev/manifest"] == "none", what="the policy is back")


def test_with_an_index_the_author_s_choice_is_replaced_by_the_right_one(installation: Installation) -> None:
    """Both mutating policies see such a pod, in whatever order; the outcome is the index's."""
    right = "sha256:" + "a" * 64
    index = {
        "apiVersion": "preheat.dev/v1alpha1",
        "kind": "CompiledModelIndex",
        "metadata": {"name": "preheat"},
        "models": f"\nvision Cold 0 -\nvision|{pod(namespace='x')['spec']['containers'][0]['image']}={right} -\n",
    }
    indices = "/apis/preheat.dev/v1alpha1/namespaces/rights-test/compiledmodelindices"
    assert installation.server.request("POST", indices, index, user=installation.controller).ok
    document = labelled("p", {"preheat.dev/model": "vision"}, annotations=FORGED)

    def given() -> dict[str, str]:
        annotations: dict[str, str] = installation.server.request("POST", f"{PODS}?dryRun=All", document).body[
            "metadata"
        ]["annotations"]
        return annotations

    try:
        eventually(lambda: given()["preheat.dev/manifest"] == right, what="the index decides")
        assert given()["preheat.dev/injected"] == "yes"
    finally:
        assert installation.server.request("DELETE", f"{indices}/preheat", user=installation.controller).ok
        eventually(lambda: given()["preheat.dev/manifest"] == "none", what="the index is gone")


ALLOWED = {
    "our annotations of a serving pod": ("serving", {"metadata": {"annotations": FORGED}}),
    "our finalizer of a compile pod": ("compiling", {"metadata": {"finalizers": []}}),
    "our annotations of a compile pod": ("compiling", {"metadata": {"annotations": FORGED}}),
}
FORBIDDEN = {
    "a foreign pod": ("foreign", {"metadata": {"annotations": FORGED}}, "changes only pods labelled"),
    "another annotation": ("serving", {"metadata": {"annotations": {"team": "b"}}}, "changes only the annotations"),
    "a new annotation": ("serving", {"metadata": {"annotations": {"x": "b"}}}, "changes only the annotations"),
    "removing an annotation": (
        "serving",
        {"metadata": {"annotations": {"team": None}}},
        "changes only the annotations",
    ),
    "a label": ("serving", {"metadata": {"labels": {"app": "b"}}}, "never changes a pod's spec"),
    "taking our label": (
        "serving",
        {"metadata": {"labels": {"preheat.dev/model": None}}},
        "never changes a pod's spec",
    ),
    "labelling a foreign pod": ("foreign", {"metadata": {"labels": {"preheat.dev/model": "x"}}}, "pods labelled"),
    "another finalizer": (
        "compiling",
        {"metadata": {"finalizers": ["preheat.dev/result", "a/b"]}},
        "only the finalizer",
    ),
    "an image": (
        "serving",
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}],
        "never changes a pod's spec",
    ),
    "an owner": (
        "serving",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}]}},
        "never changes a pod's spec",
    ),
}


def _patch(installation: Installation, path: str, body: Any) -> Answer:
    kind = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
    return installation.server.request(
        "PATCH", f"{path}?dryRun=All", body, user=installation.controller, content_type=kind
    )


@pytest.mark.parametrize("name", ALLOWED)
def test_what_the_controller_changes_in_pods(installation: Installation, pods: dict[str, str], name: str) -> None:
    which, body = ALLOWED[name]
    answer = _patch(installation, pods[which], body)
    assert answer.ok, answer.message


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_the_controller_cannot_change_in_pods(installation: Installation, pods: dict[str, str], name: str) -> None:
    which, body, says = FORBIDDEN[name]
    installation.refused_only_by("preheat-controller-pods", lambda: _patch(installation, pods[which], body), says=says)


def test_the_controller_deletes_labelled_pods_only(installation: Installation, pods: dict[str, str]) -> None:
    def delete(which: str) -> Answer:
        return installation.server.request("DELETE", f"{pods[which]}?dryRun=All", user=installation.controller)

    assert delete("serving").ok, delete("serving")
    installation.refused_only_by(
        "preheat-controller-pods", lambda: delete("foreign"), says="changes only pods labelled"
    )


def test_kubernetes_deletes_pods_that_carry_our_annotations(installation: Installation, pods: dict[str, str]) -> None:
    for cleaner in ("namespace-controller", "generic-garbage-collector"):
        user = f"system:serviceaccount:kube-system:{cleaner}"
        assert installation.server.request("DELETE", f"{pods['serving']}?dryRun=All", user=user).ok


def job(labels: dict[str, str]) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels},
        "spec": {"template": template},
    }


def test_the_controller_makes_and_deletes_its_own_jobs_only(installation: Installation) -> None:
    def create(labels: dict[str, str]) -> Answer:
        return installation.server.request("POST", f"{JOBS}?dryRun=All", job(labels), user=installation.controller)

    assert create({"preheat.dev/compiledmodel": "vision"}).ok
    installation.refused_only_by("preheat-controller-jobs", lambda: create({}), says="Jobs labelled")
    assert installation.server.request("POST", JOBS, job({})).ok
    try:
        path = f"{JOBS}/j?dryRun=All"
        installation.refused_only_by(
            "preheat-controller-jobs",
            lambda: installation.server.request("DELETE", path, user=installation.controller),
            says="Jobs labelled",
        )
    finally:
        installation.server.request("DELETE", f"{JOBS}/j?propagationPolicy=Background")


SERVED = "preheat.dev/served"
SERVER = "system:serviceaccount:preheat-system:preheat-server"


def note(installation: Installation, path: str, text: str | None, user: str) -> Answer:
    body = {"metadata": {"annotations": {SERVED: text}}}
    return installation.server.request("PATCH", f"{path}?dryRun=All", body, user=user)


@pytest.fixture
def noted(installation: Installation, pods: dict[str, str]) -> str:
    """The path of a serving pod that has reported."""
    body = {"metadata": {"annotations": {SERVED: '{"v":1}'}}}
    answer = installation.server.request("PATCH", pods["serving"], body, user=SERVER)
    assert answer.ok, answer.message
    return pods["serving"]


@pytest.mark.parametrize("text", ['{"v":1,"wrong":["a/b/c"]}', None])
@pytest.mark.parametrize("who", ["alice", "controller"])
def test_nobody_but_the_server_says_what_a_pod_reported(
    installation: Installation, noted: str, who: str, text: str | None
) -> None:
    user = installation.controller if who == "controller" else who
    answer = note(installation, noted, text, user)
    assert answer.status == 403, answer
    # The controller is held back by two rules: this one, and the one on all that it changes.
    if who == "alice":
        installation.refused_only_by(
            "preheat-pod-served", lambda: note(installation, noted, text, user), says="not by alice"
        )
    assert note(installation, noted, text, SERVER).ok


def test_nor_does_a_binding_or_a_status(installation: Installation, pods: dict[str, str], noted: str) -> None:
    body = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "foreign", "annotations": {SERVED: "x"}},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n"},
    }  # fmt: skip
    bind = f"{pods['foreign']}/binding?dryRun=All"
    installation.refused_only_by(
        "preheat-pod-served", lambda: installation.server.request("POST", bind, body, user="alice"), says="not by alice"
    )
    written = {"metadata": {"annotations": {SERVED: "x"}}}
    installation.refused_only_by(
        "preheat-pod-served",
        lambda: installation.server.request("PATCH", f"{noted}/status?dryRun=All", written, user="alice"),
        says="not by alice",
    )


def test_a_new_pod_has_reported_nothing(installation: Installation) -> None:
    def given() -> dict[str, str]:
        document = labelled(
            "p", {"preheat.dev/model": "vision"}, annotations={SERVED: '{"v":1,"wrong":["a/b/c"]}', "x": "y"}
        )
        answer = installation.server.request("POST", f"{PODS}?dryRun=All", document, user="alice")
        assert answer.ok, answer.message
        annotations: dict[str, str] = answer.body["metadata"]["annotations"]
        return annotations

    assert SERVED not in given()
    assert given()["x"] == "y"
    with installation.without("preheat-pod-claims"):
        eventually(lambda: SERVED in given(), what="without the policy it stays")
    eventually(lambda: SERVED not in given(), what="the policy is back")


SERVER_FORBIDDEN = {
    "a foreign pod": ("foreign", {"metadata": {"annotations": {SERVED: "x"}}}, "changes only pods labelled"),
    "a compile pod": ("compiling", {"metadata": {"annotations": {SERVED: "x"}}}, "changes only pods labelled"),
    "another annotation": ("serving", {"metadata": {"annotations": {"team": "b"}}}, "changes only the annotation"),
    "removing an annotation": ("serving", {"metadata": {"annotations": {"team": None}}}, "changes only the annotation"),
    "a label": ("serving", {"metadata": {"labels": {"app": "b"}}}, "never changes a pod's spec"),
    "a finalizer": ("serving", {"metadata": {"finalizers": ["a/b"]}}, "never changes a pod's spec"),
    "an image": (
        "serving",
        [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}],
        "never changes a pod's spec",
    ),
    "too much": ("serving", {"metadata": {"annotations": {SERVED: "x" * 4097}}}, "at most 4096"),
}


@pytest.mark.parametrize("name", SERVER_FORBIDDEN)
def test_what_the_server_cannot_change_in_pods(installation: Installation, pods: dict[str, str], name: str) -> None:
    which, body, says = SERVER_FORBIDDEN[name]
    kind = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
    installation.refused_only_by(
        "preheat-server-pods",
        lambda: installation.server.request("PATCH", f"{pods[which]}?dryRun=All", body, user=SERVER, content_type=kind),
        says=says,
    )


@pytest.mark.parametrize("annotation", OURS)
def test_nor_does_it_choose_the_manifest(installation: Installation, pods: dict[str, str], annotation: str) -> None:
    body = {"metadata": {"annotations": {annotation: DIGEST}}}
    answer = installation.server.request("PATCH", f"{pods['serving']}?dryRun=All", body, user=SERVER)
    assert answer.status == 403
    assert "preheat-" in answer.message
