"""The chart as Helm renders it: valid for Kubernetes, strict about values, minimal in rights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from apiserver.chart import CHART, HelmError, helm, render
from preheat_operator.api.crds import compiled_model_crd
from preheat_operator.settings import Settings

REPOSITORY = Path(__file__).resolve().parents[3]


def found(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name)


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    return render()


def controller(documents: list[dict[str, Any]]) -> dict[str, Any]:
    return found(documents, "Deployment", "preheat-controller")["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def environment(documents: list[dict[str, Any]]) -> dict[str, str]:
    return {
        entry["name"]: entry.get("value", "preheat-system") for entry in controller(documents)["containers"][0]["env"]
    }


def test_lint() -> None:
    helm("lint", "--strict", str(CHART), "--kube-version", "1.37.0",
         "--set", "image.repository=r/p,store.bucket=models,clusterId=c")  # fmt: skip


def test_every_object_is_valid_and_has_no_unknown_field(documents: list[dict[str, Any]]) -> None:
    for document in documents:
        kubernetes_validate.validate(document, "1.37", strict=True)
        assert document["metadata"]["labels"]["app.kubernetes.io/name"] == "preheat"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("store.bucket=b-b",), "image.repository"),
        (("image.repository=r/p",), "store.bucket"),
        (("image.repository=r/p", "store.bucket=b-b"), "clusterId"),
    ],
)
def test_what_must_be_set_is_named(settings: tuple[str, ...], says: str) -> None:
    with pytest.raises(HelmError, match=re.escape(f"{says}: set it")):
        render(*settings, *(() if says == "clusterId" else ("clusterId=c",)), needed=False)


@pytest.mark.parametrize(
    "setting",
    [
        "imag.tag=1", "store.bukket=x", "store.bucket=UPPER", "store.endpoint=s3.example", "fetch.timeoutSeconds=0",
        "fetch.timeoutSeconds=soon", "fetch.runAsUser=0", "image.digest=sha256:short", "image.pullPolicy=Sometimes",
        "crds.keep=maybe", "clusterId=a b", "clusterId=a.b", "imagePullSecrets[0]=x", "controller.replicas=2",
        "server.replicas=0", "server.url=preheat", "server.clusterIP=server", "server.tls.ca=x", "server.tls.key=x",
        "server.serviceMonitor.interval=often", "uninstall.timeoutSeconds=1", "templatePolicy.allowPrivileged=yes please", "store.fetchSecret=A_B",
    ],
)  # fmt: skip
def test_wrong_values_are_refused(setting: str) -> None:
    with pytest.raises(HelmError, match="values don't meet the specifications"):
        render(setting)


def test_every_value_is_explained_and_in_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        key = re.match(r"^  (\w+):", line)
        if key and key[1] not in ("requests", "limits"):
            assert lines[number - 1].lstrip().startswith("#"), f"values.yaml: {line.strip()} has no comment"
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, value in values.items():
        if isinstance(value, dict):
            assert set(value) == set(schema["properties"][name]["properties"])
            assert schema["properties"][name]["additionalProperties"] is False


def test_the_controller_understands_what_the_chart_tells_it(documents: list[dict[str, Any]]) -> None:
    settings = Settings.from_env(environment(documents))
    assert settings.installation.image == "registry.example/preheat:0.1.0"
    assert settings.installation.cluster_id == "cluster-1"
    assert settings.installation.store_bucket == "models"
    assert settings.installation.publish_secret == "preheat-publish"
    assert found(documents, "PriorityClass", settings.installation.priority_class)["preemptionPolicy"] == "Never"
    assert settings.health_port == controller(documents)["containers"][0]["ports"][0]["containerPort"]


def test_other_values_reach_it_too() -> None:
    values = environment(
        render(
            "image.digest=sha256:" + "a" * 64,
            "imagePullSecrets[0].name=one",
            "imagePullSecrets[1].name=two",
            "store.caConfigMap=ca",
            "store.publishSecret=writer",
            "store.endpoint=https://s3.example:9000",
            "store.region=eu-1",
            "fetch.runAsUser=null",
        )
    )
    settings = Settings.from_env(values).installation
    assert settings.image == "registry.example/preheat@sha256:" + "a" * 64
    assert settings.image_pull_secrets == ("one", "two")
    assert settings.store_ca_config_map == "ca"
    assert settings.publish_secret == "writer"
    assert settings.store_endpoint == "https://s3.example:9000"
    assert settings.run_as_user is None


def test_one_controller_at_a_time(documents: list[dict[str, Any]]) -> None:
    spec = found(documents, "Deployment", "preheat-controller")["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "Recreate"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Deployment", "preheat-controller"), ("Deployment", "preheat-server"), ("Job", "preheat-uninstall")],
)
def test_our_own_pods_keep_to_the_restricted_standard(documents: list[dict[str, Any]], kind: str, name: str) -> None:
    spec = found(documents, kind, name)["spec"]["template"]["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_no_rule_has_wildcards_or_secrets(documents: list[dict[str, Any]]) -> None:
    roles = [document for document in documents if document["kind"] in ("ClusterRole", "Role")]
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"secrets", "configmaps", "pods/exec", "serviceaccounts/token"} & set(rule["resources"])


def test_crds_stay_unless_told_otherwise() -> None:
    crd = compiled_model_crd()
    kept = found(render(), "CustomResourceDefinition", crd["metadata"]["name"])
    assert kept["spec"] == crd["spec"]
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    loose = found(render("crds.keep=false"), "CustomResourceDefinition", crd["metadata"]["name"])
    assert "annotations" not in loose["metadata"]
    assert not [d for d in render("crds.enabled=false") if d["kind"] == "CustomResourceDefinition"]


def test_the_uninstall_hook_and_its_rights_come_and_go_together(documents: list[dict[str, Any]]) -> None:
    hooks = [d for d in documents if "helm.sh/hook" in d["metadata"].get("annotations", {})]
    assert {d["kind"] for d in hooks} == {
        "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Job",
    }  # fmt: skip
    weights = {d["kind"]: int(d["metadata"]["annotations"]["helm.sh/hook-weight"]) for d in hooks}
    assert max(weights, key=lambda kind: weights[kind]) == "Job"
    for hook in hooks:
        assert hook["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
        assert "hook-succeeded" in hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    job = found(documents, "Job", "preheat-uninstall")
    env = {e["name"]: e.get("value") for e in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["PREHEAT_UNINSTALL_TIMEOUT"] == "300"
    assert not [d for d in render("uninstall.cleanup=false") if "helm.sh/hook" in d["metadata"].get("annotations", {})]


@pytest.mark.parametrize(
    ("release", "prefix"), [("preheat", "preheat"), ("ml", "ml-preheat"), ("preheat-2", "preheat-2")]
)
def test_names_follow_the_release(release: str, prefix: str) -> None:
    text = helm("template", release, str(CHART), "-n", "other", "--kube-version", "1.37.0",
                "--set", "image.repository=r/p,store.bucket=models,clusterId=c")  # fmt: skip
    documents = [document for document in yaml.safe_load_all(text) if document]
    assert found(documents, "Deployment", f"{prefix}-controller")["metadata"]["namespace"] == "other"
    assert f"system:serviceaccount:other:{prefix}-controller" in text


def test_old_clusters_are_refused() -> None:
    with pytest.raises(HelmError, match="kubeVersion"):
        helm("template", "preheat", str(CHART), "--kube-version", "1.35.0",
             "--set", "image.repository=r/p,store.bucket=models,clusterId=c")  # fmt: skip


def test_the_values_are_documented() -> None:
    text = (REPOSITORY / "docs" / "values.md").read_text()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for name, value in values.items():
        for key in value if isinstance(value, dict) else ():
            assert f"`{name}.{key}`" in text
        assert f"`{name}" in text
