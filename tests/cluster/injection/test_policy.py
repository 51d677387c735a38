"""The admission policy on a real API server makes the pod that the reference makes, and touches no other."""

from __future__ import annotations

import copy
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from apiserver.fixtures import eventually
from injection_pods import DIGEST, IMAGE, MODELS, PODS, WAITING_IMAGES, pod
from preheat_operator.api.index import ImageEntry, Index, ModelEntry, render
from preheat_operator.injection.policy import documents, values_of
from preheat_operator.injection.reference import inject
from preheat_operator.injection.settings import InjectionSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from apiserver.server import ApiServer

pytestmark = pytest.mark.cluster

SETTINGS = InjectionSettings(
    image="registry.example/preheat@sha256:" + "0" * 64,
    cluster_id="cluster-1",
    store_endpoint='https://s3.example:9000/with"quote',
    store_bucket="models",
    store_region="eu-1",
    image_pull_secrets=("regcred",),
    store_ca_config_map="store-ca",
    fetch_timeout_seconds=45,
    reports_url="https://preheat-server.preheat-system.svc",
    reports_ca="-----BEGIN CERTIFICATE-----\nMIIB+/=\n-----END CERTIFICATE-----\n",
    excluded_namespaces=("kube-system", "inj-excluded"),
)
BARE = InjectionSettings(
    image="preheat:1", cluster_id="c", store_bucket="models", run_as_user=None, gating=False,
    excluded_namespaces=("kube-system", "inj-excluded"),
)  # fmt: skip
INDEX = render(
    Index(
        models=MODELS,
        images=(
            ImageEntry(model="vision", image=IMAGE, manifest=DIGEST),
            ImageEntry(
                model="vision", image="with-path:1", manifest="sha256:" + "b" * 64, python_path="/app:/$(X)/lib"
            ),
            ImageEntry(model="vision-2", image=IMAGE, manifest="sha256:" + "c" * 64, python_path="/srv"),
            ImageEntry(model="paused", image=IMAGE, manifest=DIGEST),
            ImageEntry(model="lost", image=IMAGE, manifest=DIGEST),
            ImageEntry(model="strict", image=IMAGE, manifest=DIGEST),
            *WAITING_IMAGES,
        ),
    )
)
# What the server itself writes into every pod.
SERVERS = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid", "selfLink")


def index(namespace: str, models: str = INDEX) -> dict[str, Any]:
    return {
        "apiVersion": "preheat.dev/v1alpha1",
        "kind": "CompiledModelIndex",
        "metadata": {"name": "preheat", "namespace": namespace},
        "models": models,
    }


def create(server: ApiServer, document: dict[str, Any]) -> dict[str, Any]:
    """The pod as the server would store it."""
    path = f"/api/v1/namespaces/{document['metadata']['namespace']}/pods?dryRun=All"
    answer = server.request("POST", path, document)
    assert answer.ok, answer.message
    for name in SERVERS:
        answer.body["metadata"].pop(name, None)
    # Holds the time of the call, and admission of a pod never sets it.
    answer.body.pop("status", None)
    return answer.body


def installed(server: ApiServer, settings: InjectionSettings, probe: str) -> tuple[dict[str, Any], ...]:
    """Install the policy and wait until a pod in namespace `probe` shows it; here errors of the policy are fatal."""
    policy, binding = copy.deepcopy(documents(values_of(settings, name="injection-test")))
    policy["spec"]["failurePolicy"] = "Fail"
    server.apply(policy, binding)

    def injected() -> bool:
        containers = create(server, pod(namespace=probe))["spec"].get("initContainers", [])
        return any(container["image"] == settings.image for container in containers)

    eventually(injected, what="pods are injected")
    return policy, binding


@pytest.fixture(scope="module")
def namespaces(apiserver: ApiServer) -> tuple[str, str]:
    """A namespace with an index, and the name of one without the policy's reach."""
    for name in ("inj-test", "inj-excluded", "inj-plain", "inj-without-index"):
        apiserver.namespace(name)
    apiserver.apply(index("inj-test"), index("inj-excluded"))
    return "inj-test", "inj-plain"


@pytest.fixture(scope="module", params=[SETTINGS, BARE], ids=["all-settings", "bare-settings"])
def settings(
    apiserver: ApiServer, namespaces: tuple[str, str], request: pytest.FixtureRequest
) -> Iterator[InjectionSettings]:
    policy, binding = installed(apiserver, request.param, namespaces[0])
    yield request.param
    apiserver.delete(binding, policy)
    eventually(
        lambda: "initContainers" not in create(apiserver, pod(namespace=namespaces[0]))["spec"],
        what="the policy is gone",
    )


def defaulted(server: ApiServer, document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """What the server makes of a pod where no policy touches it, as if it were in `namespace`.

    The namespace `inj-plain` has no index, so a labelled pod is left alone there too.
    """
    stored = create(server, document | {"metadata": document["metadata"] | {"namespace": "inj-plain"}})
    stored["metadata"]["namespace"] = namespace
    return stored


@pytest.mark.parametrize("name", PODS)
def test_the_policy_makes_the_reference_s_pod(
    apiserver: ApiServer, settings: InjectionSettings, namespaces: tuple[str, str], name: str
) -> None:
    document = PODS[name](namespaces[0])
    # The policy sees what the server's defaults made of the pod.
    before = defaulted(apiserver, document, namespaces[0])
    expected = defaulted(apiserver, inject(before, INDEX, settings), namespaces[0])
    assert create(apiserver, document) == expected


@pytest.mark.parametrize("name", PODS)
def test_a_second_call_changes_nothing(
    apiserver: ApiServer, settings: InjectionSettings, namespaces: tuple[str, str], name: str
) -> None:
    once = create(apiserver, PODS[name](namespaces[0]))
    twice = create(apiserver, copy.deepcopy(once))
    assert twice == once


def test_no_index_no_change(apiserver: ApiServer, settings: InjectionSettings) -> None:
    before = pod(namespace="inj-without-index")
    assert inject(before, None, settings) == before
    assert create(apiserver, before)["metadata"] == before["metadata"]


@pytest.mark.parametrize("namespace", ["kube-system", "inj-excluded"])
def test_excluded_namespaces(apiserver: ApiServer, settings: InjectionSettings, namespace: str) -> None:
    before = pod(namespace=namespace)
    assert inject(before, INDEX, settings) == before
    assert "annotations" not in create(apiserver, before)["metadata"]


def test_pods_made_from_a_template_have_no_name_yet(
    apiserver: ApiServer, settings: InjectionSettings, namespaces: tuple[str, str]
) -> None:
    document = pod(namespace=namespaces[0])
    del document["metadata"]["name"]
    document["metadata"]["generateName"] = "vision-7c9-"
    assert create(apiserver, document)["metadata"]["annotations"]["preheat.dev/injected"] == "yes"


def test_an_update_of_the_index_is_seen_also_after_the_policy_was_made_again(
    apiserver: ApiServer, namespaces: tuple[str, str]
) -> None:
    """Parameters of a native kind go stale when a policy is deleted and made again; our own kind must not."""
    apiserver.namespace("inj-updates")
    apiserver.apply(index("inj-updates"))

    def given() -> str:
        stored = create(apiserver, pod(namespace="inj-updates"))
        return str(stored["metadata"].get("annotations", {}).get("preheat.dev/manifest"))

    for number in (1, 2):
        policy, binding = installed(apiserver, BARE, namespaces[0])
        for letter in ("d", "e"):
            digest = "sha256:" + f"{letter}{number}" * 32
            entry = ImageEntry(model="vision", image=IMAGE, manifest=digest)
            text = render(Index(models=(ModelEntry(model="vision"),), images=(entry,)))
            apiserver.apply(index("inj-updates", text))
            eventually(lambda digest=digest: given() == digest, what="the new manifest is given to pods")
        apiserver.delete(binding, policy)
        eventually(lambda: given() == "None", what="the policy is gone")


def test_a_thousand_models_are_within_what_admission_may_spend(
    apiserver: ApiServer, namespaces: tuple[str, str]
) -> None:
    """CEL is metered: the largest index that is planned for must not end in an error, which would inject nothing."""
    apiserver.namespace("inj-large")
    names = [f"model-with-a-long-name-{number:04}" for number in range(1000)]
    images = [
        ImageEntry(
            model=name,
            image=f"registry.example/team/{name}:{tag}",
            manifest="sha256:" + "f" * 64,
            python_path="/app/lib",
        )
        for name, tag in itertools.product(names, range(3))
    ]
    text = render(Index(models=tuple(ModelEntry(model=name) for name in names), images=tuple(images)))
    apiserver.apply(index("inj-large", text))
    policy, binding = installed(apiserver, BARE, namespaces[0])
    document = pod(namespace="inj-large", image=f"registry.example/team/{names[-1]}:2")
    document["metadata"]["labels"]["preheat.dev/model"] = names[-1]
    stored = create(apiserver, document)
    assert stored["metadata"]["annotations"]["preheat.dev/injected"] == "yes"
    apiserver.delete(binding, policy)
