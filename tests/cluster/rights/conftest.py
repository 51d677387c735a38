from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from apiserver import admission, chart
from apiserver.fixtures import apiserver, eventually, example

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from apiserver.server import Answer, ApiServer

__all__ = ["apiserver"]

TENANT = "rights-test"


@dataclass(frozen=True)
class Installation:
    """The chart on the API server, and how to look at it without one of its policies."""

    server: ApiServer
    namespace: str = TENANT
    controller: str = f"system:serviceaccount:{chart.NAMESPACE}:preheat-controller"
    uninstaller: str = f"system:serviceaccount:{chart.NAMESPACE}:preheat-uninstall"

    @contextmanager
    def without(self, policy: str) -> Iterator[None]:
        """Take a policy's binding away, for a control."""
        kinds = ("validatingadmissionpolicybindings", "mutatingadmissionpolicybindings")
        for kind in kinds:
            path = f"/apis/admissionregistration.k8s.io/v1/{kind}"
            found = self.server.request("GET", f"{path}/{policy}")
            if found.ok:
                break
        else:
            raise AssertionError(f"there is no policy {policy}")
        assert self.server.request("DELETE", f"{path}/{policy}").ok
        try:
            yield
        finally:
            for name in ("resourceVersion", "uid", "creationTimestamp", "managedFields", "generation"):
                found.body["metadata"].pop(name, None)
            assert self.server.request("POST", path, found.body).ok

    def refused_only_by(self, policy: str, action: Callable[[], Answer], *, says: str) -> None:
        """Assert that `policy`, and nothing else, refuses the action; it must be repeatable (a dry run)."""
        answer = action()
        assert answer.status == 403, answer
        assert f"'{policy}'" in answer.message
        assert says in answer.message
        with self.without(policy):
            eventually(lambda: action().ok, what=f"it is allowed without {policy}: {action()}")
        eventually(lambda: action().status == 403, what=f"{policy} refuses again")


@pytest.fixture(scope="module")
def installation(apiserver: ApiServer) -> Iterator[Installation]:
    """The chart, installed by Helm; a namespace; alice who may do everything, bob who may only write models."""
    chart.install(apiserver)
    apiserver.namespace(TENANT)
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["preheat.dev"], "resources": ["compiledmodels"], "verbs": ["*"]}]
    apiserver.apply(
        {
            "apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "writes-models"}, "rules": rules,
        },
        *(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"test-{user}"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
            }
            for user, role in (("alice", "cluster-admin"), ("bob", "writes-models"))
        ),
    )  # fmt: skip
    result = Installation(apiserver)
    path = f"/apis/preheat.dev/v1alpha1/namespaces/{TENANT}/compiledmodels?dryRun=All"
    document = example() | {"metadata": {"name": "probe", "namespace": TENANT}}
    eventually(lambda: apiserver.request("POST", path, document, user="alice").ok, what="RBAC knows alice")
    eventually(lambda: apiserver.request("GET", path, user="bob").ok, what="RBAC knows bob")
    admission.settle(apiserver)
    yield result
    chart.uninstall(apiserver)
    eventually(lambda: apiserver.request("POST", path, document, user="bob").ok, what="the policies are gone")
