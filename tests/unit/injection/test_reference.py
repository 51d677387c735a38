"""What injection does to a pod, by the pure reference; that the admission policy does the same is a cluster test."""

from __future__ import annotations

import copy

import pytest

from injection_pods import DIGEST, PODS, pod
from preheat_operator.injection.reference import inject
from preheat_operator.injection.settings import InjectionSettings
from unit.injection.injecting import INDEX, SETTINGS, annotations, env, injected


def test_the_serving_container() -> None:
    server = injected("plain")["spec"]["containers"][0]
    assert env(server) == {
        "PYTHONPATH": "/opt/preheat/site",
        "PREHEAT_DIR": "/opt/preheat",
        "PREHEAT_WORK_DIR": "/var/cache/preheat",
        "PREHEAT_MODEL": "vision",
    }
    assert server["volumeMounts"] == [
        {"name": "preheat", "mountPath": "/opt/preheat", "readOnly": True},
        {"name": "preheat-work", "mountPath": "/var/cache/preheat"},
    ]


def test_the_models_serving_reaches_the_container_unless_it_has_its_own() -> None:
    assert env(injected("serving of the model's line")["spec"]["containers"][0])["PREHEAT_SERVING"] == (
        "onMiss=Fail,verify=Before"
    )
    assert env(injected("own serving")["spec"]["containers"][0])["PREHEAT_SERVING"] == "onMiss=Eager"


def test_the_annotations() -> None:
    assert annotations(injected("plain")) == {"preheat.dev/manifest": DIGEST, "preheat.dev/injected": "yes"}


def test_fetch_alone_sees_credentials_and_writes_artifacts() -> None:
    spec = injected("plain")["spec"]
    fetch = spec["initContainers"][0]
    mounts = {mount["name"]: mount for mount in fetch["volumeMounts"]}
    assert "readOnly" not in mounts["preheat"]
    assert mounts["preheat-store"]["readOnly"]
    assert "preheat-work" not in mounts
    assert all(
        mount["name"] != "preheat-store" for container in spec["containers"] for mount in container["volumeMounts"]
    )


def test_fetch_keeps_to_the_restricted_standard() -> None:
    context = injected("plain")["spec"]["initContainers"][0]["securityContext"]
    assert context == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_cluster_may_choose_the_user() -> None:
    settings = InjectionSettings(image="i", cluster_id="c", store_bucket="b", run_as_user=None)
    assert "runAsUser" not in injected("plain", settings=settings)["spec"]["initContainers"][0]["securityContext"]


def test_fetch_is_told_everything_it_needs() -> None:
    settings = InjectionSettings(
        image="i", cluster_id="c1", store_bucket="b", store_endpoint="https://s3", store_region="eu",
        store_ca_config_map="ca", fetch_timeout_seconds=7,
    )  # fmt: skip
    fetch = injected("plain", settings=settings)["spec"]["initContainers"][0]
    values = env(fetch)
    assert values | {"PREHEAT_MANIFEST": "", "PREHEAT_NAMESPACE": ""} == {
        "PREHEAT_MANIFEST": "",
        "PREHEAT_NAMESPACE": "",
        "PREHEAT_MODEL": "vision",
        "PREHEAT_STORE_ENDPOINT": "https://s3",
        "PREHEAT_STORE_BUCKET": "b",
        "PREHEAT_STORE_REGION": "eu",
        "PREHEAT_STORE_TENANT": "c1.prod",
        "PREHEAT_STORE_CREDENTIALS": "/var/run/secrets/preheat.dev/store",
        "PREHEAT_STORE_CA": "/var/run/secrets/preheat.dev/store/ca.crt",
        "PREHEAT_FETCH_TIMEOUT_SECONDS": "7",
    }
    manifest = next(entry for entry in fetch["env"] if entry["name"] == "PREHEAT_MANIFEST")
    assert manifest["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.annotations['preheat.dev/manifest']"}}


REPORTING = InjectionSettings(
    image="i", cluster_id="c", store_bucket="b", reports_url="https://preheat-server", reports_ca="PEM"
)


def test_where_reports_are_counted_the_serving_container_gets_a_token_for_that_alone() -> None:
    spec = injected("plain", settings=REPORTING)["spec"]
    server = spec["containers"][0]
    assert {name: value for name, value in env(server).items() if "REPORTS" in name} == {
        "PREHEAT_REPORTS_URL": "https://preheat-server",
        "PREHEAT_REPORTS_TOKEN": "/var/run/secrets/preheat.dev/reports/token",
        "PREHEAT_REPORTS_CA": "PEM",
    }
    volume = next(volume for volume in spec["volumes"] if volume["name"] == "preheat-reports")
    assert volume["projected"]["sources"] == [
        {"serviceAccountToken": {"audience": "preheat.dev/reports", "expirationSeconds": 3600, "path": "token"}}
    ]
    mount = {"name": "preheat-reports", "mountPath": "/var/run/secrets/preheat.dev/reports", "readOnly": True}
    assert mount in server["volumeMounts"]
    assert "preheat-reports" not in str(spec["initContainers"]), "fetch has no use for it"


def test_elsewhere_nothing_of_it_is_added() -> None:
    assert "eports" not in str(injected("plain"))
    without = InjectionSettings(image="i", cluster_id="c", store_bucket="b", reports_ca="PEM")
    assert "PREHEAT_REPORTS_URL" not in str(injected("plain", settings=without))


def test_without_a_certificate_the_image_s_own_authorities_decide() -> None:
    settings = InjectionSettings(image="i", cluster_id="c", store_bucket="b", reports_url="https://x")
    assert "PREHEAT_REPORTS_CA" not in env(injected("plain", settings=settings)["spec"]["containers"][0])


def test_a_pod_without_a_service_account_starts_and_does_not_report() -> None:
    assert "eports" not in str(injected("no service account", settings=REPORTING))


def test_a_pod_may_switch_reporting_off() -> None:
    assert (
        env(injected("reports switched off", settings=REPORTING)["spec"]["containers"][0])["PREHEAT_REPORTS_URL"] == ""
    )


def test_reporting_changes_nothing_that_is_counted_in_a_quota() -> None:
    with_, without = (injected("requests only", settings=each)["spec"] for each in (REPORTING, SETTINGS))
    for mine, theirs in zip(with_["containers"], without["containers"], strict=True):
        assert mine.get("resources") == theirs.get("resources")
    assert len(with_["initContainers"]) == len(without["initContainers"])


def test_a_missing_secret_does_not_keep_a_pod_from_starting() -> None:
    volumes = {volume["name"]: volume for volume in injected("plain")["spec"]["volumes"]}
    assert [source["secret"]["optional"] for source in volumes["preheat-store"]["projected"]["sources"]] == [True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PYTHONPATH of the image", "/opt/preheat/site:/app"),
        ("own PYTHONPATH", "/opt/preheat/site:$(ROOT)/lib"),
        ("empty PYTHONPATH", "/opt/preheat/site"),
    ],
)
def test_python_path_is_prefixed(name: str, value: str) -> None:
    assert env(injected(name)["spec"]["containers"][0])["PYTHONPATH"] == value


def test_variables_keep_their_order() -> None:
    order = [entry["name"] for entry in injected("own PYTHONPATH")["spec"]["containers"][0]["env"]]
    assert order[:3] == ["ROOT", "PYTHONPATH", "LATER"]


def test_variables_are_never_overridden() -> None:
    values = env(injected("own variables")["spec"]["containers"][0])
    assert values["PREHEAT_DIR"] == "/mine"
    assert values["PREHEAT_WORK_DIR"] == "/var/cache/preheat"


def test_only_the_serving_container_is_touched() -> None:
    for name, other in (("container of the model's line", 0), ("first container of two", 1)):
        before = PODS[name]("prod")["spec"]["containers"][other]
        assert injected(name)["spec"]["containers"][other] == before


def test_the_annotation_chooses_the_container() -> None:
    containers = injected("container of the annotation")["spec"]["containers"]
    assert "env" not in containers[0]
    assert env(containers[1])["PYTHONPATH"] == "/opt/preheat/site:/x:/y"


@pytest.mark.parametrize("name", ["resources with a device", "requests only", "a resource claim", "plain"])
def test_fetch_asks_for_what_the_serving_container_asks_for(name: str) -> None:
    spec = injected(name)["spec"]
    assert spec["initContainers"][0].get("resources") == spec["containers"][0].get("resources")


def test_fetch_comes_first_and_others_stay() -> None:
    spec = injected("own init containers and volumes")["spec"]
    assert [container["name"] for container in spec["initContainers"]] == ["preheat-fetch", "weights", "proxy"]
    assert [volume["name"] for volume in spec["volumes"]] == ["data", "preheat", "preheat-work", "preheat-store"]


def test_pull_secrets_are_added_once() -> None:
    settings = InjectionSettings(image="i", cluster_id="c", store_bucket="b", image_pull_secrets=("regcred", "other"))
    secrets = injected("pull secret there already", settings=settings)["spec"]["imagePullSecrets"]
    assert secrets == [{"name": "regcred"}, {"name": "other"}]
    assert "imagePullSecrets" not in injected("plain")["spec"]


REASONS = {
    "model unknown": "there is no CompiledModel visio in this namespace",
    "model is the end of a name": "there is no CompiledModel sion in this namespace",
    "injection paused": "injection is paused for CompiledModel paused",
    "image without a line": "nothing is ready for image registry.example:5000/vision:1",
    "container missing": "the pod has no container gone",
    "container of the annotation missing": "the pod has no container nope",
    "PYTHONPATH from elsewhere": "PYTHONPATH of container server comes from valueFrom",
    "own volume of our name": "volume of its own named preheat",
    "own container of our name": "container named preheat-fetch of its own",
    "own init container of our name": "container named preheat-fetch of its own",
    "own mount below ours": "container server mounts something of its own at /opt/preheat",
    "Windows": "it is a Windows pod",
}


@pytest.mark.parametrize("name", REASONS)
def test_why_not(name: str) -> None:
    before = PODS[name]("prod")
    after = injected(name)
    assert annotations(after)["preheat.dev/injected"].startswith("no: ")
    assert REASONS[name] in annotations(after)["preheat.dev/injected"]
    assert annotations(after)["preheat.dev/manifest"] == "none"
    assert after["spec"] == before["spec"]


@pytest.mark.parametrize("name", ["no label", "opted out"])
def test_not_our_business(name: str) -> None:
    assert injected(name) == PODS[name]("prod")


@pytest.mark.parametrize("namespace", ["kube-system", "preheat-system"])
def test_namespaces_that_are_left_alone(namespace: str) -> None:
    before = pod(namespace=namespace)
    assert inject(before, INDEX, SETTINGS) == before


def test_mirror_pods_are_left_alone() -> None:
    """The kubelet compares a mirror pod with its file, and would make it anew for ever."""
    before = pod(namespace="prod")
    before["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert inject(before, INDEX, SETTINGS) == before


def test_without_an_index_nothing_is_done() -> None:
    assert injected("plain", index=None) == PODS["plain"]("prod")


@pytest.mark.parametrize("name", PODS)
def test_the_given_pod_is_not_changed(name: str) -> None:
    before = PODS[name]("prod")
    kept = copy.deepcopy(before)
    inject(before, INDEX, SETTINGS)
    assert before == kept


@pytest.mark.parametrize("name", PODS)
def test_a_second_call_changes_nothing(name: str) -> None:
    once = injected(name)
    assert inject(once, INDEX, SETTINGS) == once


def test_the_author_s_manifest_is_replaced() -> None:
    assert annotations(injected("a manifest of the author's choice"))["preheat.dev/manifest"] == DIGEST
    assert annotations(injected("a look-alike with a forged manifest"))["preheat.dev/manifest"] == DIGEST


def test_a_rewritten_image_keeps_what_the_first_call_gave() -> None:
    assert annotations(injected("a second call after the image was rewritten"))["preheat.dev/manifest"] == DIGEST


def test_gates_of_others_stay_and_none_is_added() -> None:
    assert injected("scheduling gates of others")["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
    assert "schedulingGates" not in injected("plain")["spec"]
