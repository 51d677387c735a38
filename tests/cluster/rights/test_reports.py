"""Who may report how a pod was served, by the API server's own TokenReview; and how little the server itself may do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import yaml

from apiserver import chart
from apiserver.fixtures import eventually
from preheat_operator.api import names
from preheat_operator.cluster.client import connect
from preheat_operator.server import Server
from preheat_operator.settings import ServerSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from .conftest import Installation

pytestmark = pytest.mark.cluster

NAMESPACE = "rights-test"
SERVER = f"system:serviceaccount:{chart.NAMESPACE}:preheat-server"
REPORT = {
    "v": 1, "model": "vision",
    "records": [{"event": "preheat", "when": "first-answer", "outcome": "hot", "reasonClass": "Package"}],
}  # fmt: skip
COUNTED = f'preheat_first_answers_total{{model="vision",namespace="{NAMESPACE}",outcome="hot",reason="Package"}}'


def issued(
    installation: Installation, *, audiences: list[str], pod: dict[str, Any] | None = None, namespace: str = NAMESPACE,
    account: str = "default",
) -> str:  # fmt: skip
    """A token that the API server itself issued, bound to a pod where one is given."""
    bound = pod and {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    body = {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"audiences": audiences, "expirationSeconds": 600, **({"boundObjectRef": bound} if bound else {})},
    }  # fmt: skip
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    answer = installation.server.request("POST", path, body)
    assert answer.ok, answer.message
    token: str = answer.body["status"]["token"]
    return token


@pytest.fixture
def pod(installation: Installation) -> Iterator[dict[str, Any]]:
    """A pod of the namespace's default service account."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    installation.server.apply(account)
    document = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "reports", "namespace": NAMESPACE},
        "spec": {"serviceAccountName": "default", "containers": [{"name": "server", "image": "x"}]},
    }  # fmt: skip
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    answer = installation.server.request("POST", path, document)
    assert answer.ok, answer.message
    yield answer.body
    installation.server.request("DELETE", f"{path}/reports?gracePeriodSeconds=0")


@pytest.fixture
def as_the_server(installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has the rights that the chart gives to the server, and no others."""
    token = issued(
        installation, audiences=["https://kubernetes.default.svc"], namespace=chart.NAMESPACE, account="preheat-server"
    )
    config = yaml.safe_load(installation.server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))


@asynccontextmanager
async def running() -> AsyncIterator[tuple[str, str]]:
    """The server on loopback: where to report, and where its metrics are."""
    async with connect() as api:
        server = Server(ServerSettings(reports_port=0, metrics_port=0, drain_seconds=0), api, host="127.0.0.1")
        reports, metrics = await server.start()
        try:
            yield f"http://127.0.0.1:{reports}/v1/reports", f"http://127.0.0.1:{metrics}/metrics"
        finally:
            await server.stop()


async def report(url: str, token: str, body: dict[str, Any] = REPORT) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as client, client.post(url, json=body, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.usefixtures("as_the_server")
async def test_a_pod_reports(installation: Installation, pod: dict[str, Any]) -> None:
    token = issued(installation, audiences=[names.REPORTS_AUDIENCE], pod=pod)
    async with running() as (reports, metrics):
        assert await report(reports, token) == (204, "")
        async with aiohttp.ClientSession() as client, client.get(metrics) as answer:
            assert f"{COUNTED} 1.0" in (await answer.text()).splitlines()


@pytest.mark.usefixtures("as_the_server")
async def test_a_wrong_answer_is_noted_on_the_pod_that_the_token_is_bound_to_and_on_no_other(
    installation: Installation, pod: dict[str, Any]
) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/reports"
    record = {"event": "preheat-mismatch", "module": "main", "bucket": "one", "hardware": "cpu"}
    wrong = {"v": 1, "model": "vision", "records": [record]}
    token = issued(installation, audiences=[names.REPORTS_AUDIENCE], pod=pod)

    def noted() -> dict[str, str]:
        found: dict[str, str] = installation.server.request("GET", path).body["metadata"].get("annotations", {})
        return found

    async with running() as (reports, _):
        assert await report(reports, token, wrong) == (204, "")
        assert names.ANNOTATION_SERVED not in noted(), "it asks for no model"
        label = {"metadata": {"labels": {"preheat.dev/model": "vision"}}}
        assert installation.server.request("PATCH", path, label).ok
        assert await report(reports, token, wrong | {"model": "other"}) == (204, "")
        assert names.ANNOTATION_SERVED not in noted(), "nor for another one than it does"
        assert await report(reports, token, wrong) == (204, "")
    assert noted()[names.ANNOTATION_SERVED] == '{"v":1,"wrong":["main/one/cpu"]}'


@pytest.mark.usefixtures("as_the_server")
async def test_a_token_for_anything_else_is_refused(installation: Installation, pod: dict[str, Any]) -> None:
    async with running() as (reports, _):
        for audience in ("https://kubernetes.default.svc", "vault", "preheat.dev"):
            token = issued(installation, audiences=[audience], pod=pod)
            status, said = await report(reports, token)
            assert (status, said.strip()) == (401, "the API server does not know this token for this audience")
        unbound = issued(installation, audiences=[names.REPORTS_AUDIENCE])
        status, said = await report(reports, unbound)
        assert (status, said.strip()) == (401, "the token is not bound to a pod")
        good = issued(installation, audiences=[names.REPORTS_AUDIENCE], pod=pod)
        head, payload, signature = good.split(".")
        for forged in ("nonsense", f"{head}.{payload}.{signature[::-1]}", f"{head}.{payload}."):
            assert (await report(reports, forged))[0] == 401
        assert (await report(reports, good))[0] == 204


@pytest.mark.usefixtures("as_the_server")
async def test_a_token_ends_with_its_pod(installation: Installation, pod: dict[str, Any]) -> None:
    token = issued(installation, audiences=[names.REPORTS_AUDIENCE], pod=pod)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/reports?gracePeriodSeconds=0"
    assert installation.server.request("DELETE", path).ok
    for _ in range(50):
        async with running() as (reports, _metrics):
            status, _ = await report(reports, token)
        if status == 401:
            return
        await asyncio.sleep(0.2)
    raise AssertionError(f"still {status}")


def test_a_reporting_token_opens_nothing_in_kubernetes(installation: Installation, pod: dict[str, Any]) -> None:
    """Even where the pod's service account may do everything."""
    import json
    import ssl
    import urllib.error
    import urllib.request

    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "test-everything"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": NAMESPACE}],
    }  # fmt: skip
    installation.server.apply(binding)

    def listing(token: str) -> int:
        context = ssl.create_default_context(cafile=str(installation.server.folder / "pki" / "ca.crt"))
        request = urllib.request.Request(f"{installation.server.url}/api/v1/namespaces/{NAMESPACE}/secrets")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=30) as answer:
                json.load(answer)
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    try:
        usual = issued(installation, audiences=["https://kubernetes.default.svc"], pod=pod)
        eventually(lambda: listing(usual) == 200, what="the service account may list Secrets")
        assert listing(issued(installation, audiences=[names.REPORTS_AUDIENCE], pod=pod)) == 401
    finally:
        installation.server.delete(binding)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/v1/pods?watch=1", None),
        ("GET", "/api/v1/nodes", None),
        ("GET", f"/api/v1/namespaces/{chart.NAMESPACE}/secrets", None),
        ("GET", "/apis/preheat.dev/v1alpha1/compiledmodels", None),
        ("GET", f"/apis/preheat.dev/v1alpha1/namespaces/{NAMESPACE}/compiledmodelindices", None),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}),
        ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/reports?dryRun=All", {"metadata": {"annotations": {"a": "b"}}}),
        ("PATCH", f"/api/v1/namespaces/{NAMESPACE}/pods/reports/status?dryRun=All", {"metadata": {"annotations": {"a": "b"}}}),
        ("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/reports?dryRun=All", None),
        ("POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["x"]},
        }),
    ],
)  # fmt: skip
def test_the_server_may_do_nothing_else(
    installation: Installation, pod: dict[str, Any], method: str, path: str, body: dict[str, Any] | None
) -> None:
    assert pod
    assert installation.server.request(method, path, body, user=SERVER).status == 403


def test_but_ask_about_tokens(installation: Installation) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    eventually(lambda: installation.server.request("POST", path, body, user=SERVER).ok, what="RBAC knows the server")
    assert installation.server.request("POST", path, body, user="bob").status == 403


def test_the_certificate_stays_over_upgrades_while_its_names_do(installation: Installation) -> None:
    def certificate() -> dict[str, str]:
        answer = installation.server.request("GET", f"/api/v1/namespaces/{chart.NAMESPACE}/secrets/preheat-server-tls")
        assert answer.ok, answer.message
        found: dict[str, str] = answer.body["data"]
        return found

    before = certificate()
    chart.install(installation.server)
    assert certificate() == before
    chart.install(installation.server, "server.url=https://reports.example")
    assert certificate() != before
    chart.install(installation.server)
