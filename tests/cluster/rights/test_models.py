"""Who may write CompiledModels, what a template may ask for, who writes status and index, and all that the controller may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from apiserver import chart
from apiserver.fixtures import eventually, example

if TYPE_CHECKING:
    from apiserver.server import Answer

    from .conftest import Installation

pytestmark = pytest.mark.cluster

API = "/apis/preheat.dev/v1alpha1/namespaces/rights-test"
MODELS = f"{API}/compiledmodels"
INDICES = f"{API}/compiledmodelindices"
INDEX = {
    "apiVersion": "preheat.dev/v1alpha1", "kind": "CompiledModelIndex", "metadata": {"name": "preheat"}, "models": "\n\n",
}  # fmt: skip
CLEANERS = ("namespace-controller", "generic-garbage-collector")


def model(**spec: Any) -> dict[str, Any]:
    document = example()
    document["metadata"]["namespace"] = "rights-test"
    document["spec"].update(spec)
    return document


def with_template(*, container: dict[str, Any] | None = None, **pod: Any) -> dict[str, Any]:
    document = model()
    del document["spec"]["workloadRef"]
    containers = [{"name": "server", "image": "r/x:1", **(container or {})}]
    document["spec"]["template"] = {"spec": {"containers": containers, **pod}}
    return document


@pytest.fixture(scope="module")
def stored(installation: Installation) -> str:
    """Path of a stored CompiledModel."""
    document = model()
    document["metadata"]["name"] = "stored"
    answer = installation.server.request("POST", MODELS, document, user="alice")
    assert answer.ok, answer.message
    return f"{MODELS}/stored"


def test_who_may_not_create_jobs_may_not_create_models(installation: Installation) -> None:
    def create() -> Answer:
        return installation.server.request("POST", f"{MODELS}?dryRun=All", model(), user="bob")

    installation.refused_only_by(
        "preheat-authors", create, says="bob must be allowed to create jobs in namespace rights-test"
    )


def test_nor_change_what_they_run(installation: Installation, stored: str) -> None:
    def change() -> Answer:
        body = {"spec": {"torch": {"factory": "evil:load"}}}
        return installation.server.request("PATCH", f"{stored}?dryRun=All", body, user="bob")

    installation.refused_only_by("preheat-authors", change, says="bob must be allowed to create jobs")


@pytest.mark.parametrize("annotation", ["preheat.dev/rebuild", "preheat.dev/pin"])
def test_nor_ask_for_a_compile_or_say_what_pods_get(installation: Installation, stored: str, annotation: str) -> None:
    def ask() -> Answer:
        body = {"metadata": {"annotations": {annotation: "x"}}}
        return installation.server.request("PATCH", f"{stored}?dryRun=All", body, user="bob")

    installation.refused_only_by("preheat-authors", ask, says="bob must be allowed to create jobs")


def test_metadata_runs_nothing(installation: Installation, stored: str) -> None:
    body = {"metadata": {"labels": {"team": "a"}, "annotations": {"team": "a"}, "finalizers": ["foregroundDeletion"]}}
    answer = installation.server.request("PATCH", f"{stored}?dryRun=All", body, user="bob")
    assert answer.ok, answer.message


def test_who_may_create_jobs_may_create_models(installation: Installation) -> None:
    answer = installation.server.request("POST", f"{MODELS}?dryRun=All", model(), user="alice")
    assert answer.ok, answer.message


TEMPLATES = {
    "privileged": (with_template(container={"securityContext": {"privileged": True}}), "securityContext.privileged"),
    "privileged init container": (
        with_template(initContainers=[{"name": "i", "image": "x", "securityContext": {"privileged": True}}]),
        "securityContext.privileged",
    ),
    "hostPath": (with_template(volumes=[{"name": "v", "hostPath": {"path": "/"}}]), "hostPath"),
    "hostNetwork": (with_template(hostNetwork=True), "hostNetwork"),
    "hostPID": (with_template(hostPID=True), "hostPID"),
    "hostIPC": (with_template(hostIPC=True), "hostIPC"),
    "service account": (with_template(serviceAccountName="builder"), "serviceAccountName"),
    "service account by its old name": (with_template(serviceAccount="builder"), "serviceAccountName"),
    "service account by both names": (
        with_template(serviceAccountName="default", serviceAccount="builder"),
        "serviceAccountName",
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_a_template_may_not_ask_for(installation: Installation, name: str) -> None:
    document, says = TEMPLATES[name]
    for user in ("alice", None):

        def create(user: str | None = user) -> Answer:
            return installation.server.request("POST", f"{MODELS}?dryRun=All", document, user=user)

        answer = create()
        assert answer.status == 403, answer
        assert "spec.template" in answer.message
        assert says in answer.message
        assert "templatePolicy." in answer.message
    installation.refused_only_by("preheat-authors", create, says=says)


def test_an_ordinary_template_is_allowed(installation: Installation) -> None:
    document = with_template(
        container={"securityContext": {"privileged": False}},
        serviceAccountName="default",
        hostNetwork=False,
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    answer = installation.server.request("POST", f"{MODELS}?dryRun=All", document, user="alice")
    assert answer.ok, answer.message


def test_the_values_can_allow_it(installation: Installation) -> None:
    chart.install(
        installation.server,
        "templatePolicy.allowPrivileged=true",
        "templatePolicy.allowHostPath=true",
        "templatePolicy.allowHostNamespaces=true",
        "templatePolicy.serviceAccountNames={builder}",
    )
    try:
        for name, (document, _) in TEMPLATES.items():
            eventually(
                lambda document=document: (
                    installation.server.request("POST", f"{MODELS}?dryRun=All", document, user="alice").ok
                ),
                what=f"{name} is allowed by the values",
            )
        other = with_template(serviceAccountName="other")
        assert installation.server.request("POST", f"{MODELS}?dryRun=All", other, user="alice").status == 403
    finally:
        chart.install(installation.server)
    document, _ = TEMPLATES["hostPath"]
    eventually(
        lambda: installation.server.request("POST", f"{MODELS}?dryRun=All", document, user="alice").status == 403,
        what="the values forbid it again",
    )


def test_status_is_the_controller_s(installation: Installation, stored: str) -> None:
    def write(user: str = "alice") -> Answer:
        body = {"status": {"kept": "1/1"}}
        return installation.server.request("PATCH", f"{stored}/status?dryRun=All", body, user=user)

    assert write(installation.controller).ok, write(installation.controller)
    installation.refused_only_by("preheat-writers", write, says="written by the Preheat controller only, not by alice")


def test_the_index_is_the_controller_s(installation: Installation) -> None:
    def create(user: str = "alice") -> Answer:
        return installation.server.request("POST", f"{INDICES}?dryRun=All", INDEX, user=user)

    assert create(installation.controller).ok, create(installation.controller)
    installation.refused_only_by("preheat-writers", create, says="written by the Preheat controller only, not by alice")


def test_nobody_else_changes_or_deletes_it(installation: Installation) -> None:
    server = installation.server
    assert server.request("POST", INDICES, INDEX, user=installation.controller).ok
    path = f"{INDICES}/preheat?dryRun=All"
    try:

        def change() -> Answer:
            return server.request("PATCH", path, {"models": "\nx Cold 0 -\n"}, user="alice")

        def delete() -> Answer:
            return server.request("DELETE", path, user="alice")

        installation.refused_only_by("preheat-writers", change, says="not by alice")
        installation.refused_only_by("preheat-writers", delete, says="not by alice")
        for cleaner in CLEANERS:
            answer = server.request("DELETE", path, user=f"system:serviceaccount:kube-system:{cleaner}")
            assert answer.ok, answer.message
    finally:
        assert server.request("DELETE", f"{INDICES}/preheat", user=installation.controller).ok


@pytest.mark.parametrize("cleaner", CLEANERS)
def test_kubernetes_may_delete_models(installation: Installation, stored: str, cleaner: str) -> None:
    user = f"system:serviceaccount:kube-system:{cleaner}"
    assert installation.server.request("DELETE", f"{stored}?dryRun=All", user=user).ok


VERBS = {
    ("", "secrets", "get"): False,
    ("", "secrets", "list"): False,
    ("", "configmaps", "get"): False,
    ("", "nodes", "list"): False,
    ("", "namespaces", "list"): False,
    ("", "pods", "create"): False,
    ("", "pods/exec", "create"): False,
    ("", "serviceaccounts/token", "create"): False,
    ("apps", "deployments", "patch"): True,
    ("apps", "deployments", "update"): False,
    ("apps", "deployments", "delete"): False,
    ("apps", "deployments/scale", "patch"): False,
    ("apps", "replicasets", "patch"): False,
    ("apps", "daemonsets", "patch"): False,
    ("rbac.authorization.k8s.io", "clusterroles", "escalate"): False,
    ("preheat.dev", "compiledmodels", "create"): False,
    ("preheat.dev", "compiledmodels", "patch"): False,
    ("preheat.dev", "compiledmodels", "delete"): False,
    ("preheat.dev", "compiledmodels/status", "patch"): True,
    ("preheat.dev", "compiledmodelindices", "patch"): True,
    ("batch", "jobs", "create"): True,
    ("", "pods", "patch"): True,
    ("", "events", "create"): True,
    ("", "events", "list"): True,
    ("apps", "statefulsets", "watch"): True,
}


@pytest.mark.parametrize(("group", "resource", "verb"), VERBS)
def test_least_privilege(installation: Installation, group: str, resource: str, verb: str) -> None:
    name, _, subresource = resource.partition("/")
    attributes = {
        "group": group,
        "resource": name,
        "subresource": subresource,
        "verb": verb,
        "namespace": "rights-test",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": installation.controller, "resourceAttributes": attributes},
    }
    answer = installation.server.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    assert answer.body["status"]["allowed"] is VERBS[group, resource, verb]
