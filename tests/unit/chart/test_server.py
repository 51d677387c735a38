"""What the chart installs so that pods can report: a server that may do one thing, and a certificate pods know it by."""

from __future__ import annotations

import base64
import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from apiserver.chart import CHART, helm, render
from preheat_operator.api import names
from preheat_operator.settings import ServerSettings, Settings

if TYPE_CHECKING:
    from pathlib import Path

Documents = list[dict[str, Any]]


def kinds(documents: Documents) -> dict[str, dict[str, Any]]:
    """The server's objects by kind."""
    return {d["kind"]: d for d in documents if d["metadata"]["name"].startswith("preheat-server")}


def told(documents: Documents) -> dict[str, str]:
    """What the injection policy tells pods: `url` and `ca`, empty where nothing."""
    policy = next(d for d in documents if d["metadata"]["name"] == "preheat-injection" and "variables" in d["spec"])
    said = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    found = {name: json.loads(said[name]) for name in ("reportsUrl", "reportsCa")}
    return {"url": "".join(found["reportsUrl"]), "ca": "".join(found["reportsCa"])}


def secret(documents: Documents) -> dict[str, str]:
    return {key: base64.b64decode(value).decode() for key, value in kinds(documents)["Secret"]["data"].items()}


def pod(documents: Documents) -> dict[str, Any]:
    return kinds(documents)["Deployment"]["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def test_it_may_ask_whose_token_it_was_shown_write_on_pods_and_let_them_go_on_and_nothing_else() -> None:
    documents = render()
    assert kinds(documents)["ClusterRole"]["rules"] == [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]},
    ]
    bound = [d for d in documents if any(s["name"] == "preheat-server" for s in d.get("subjects", []))]
    assert [d["roleRef"]["name"] for d in bound] == ["preheat-server"]
    assert pod(documents)["serviceAccountName"] == "preheat-server"


def test_it_starts_with_what_the_chart_tells_it() -> None:
    documents = render()
    container = pod(documents)["containers"][0]
    settings = ServerSettings.from_env({entry["name"]: entry["value"] for entry in container["env"]})
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"reports": settings.reports_port, "metrics": settings.metrics_port}
    assert settings.tls_directory in [mount["mountPath"] for mount in container["volumeMounts"]]
    service = {port["targetPort"]: port["port"] for port in kinds(documents)["Service"]["spec"]["ports"]}
    assert service == {"reports": 443, "metrics": 8080}
    assert kinds(documents)["Service"]["spec"]["selector"].items() <= (
        kinds(documents)["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    )


def test_two_of_them_one_of_which_stays() -> None:
    documents = render()
    assert kinds(documents)["Deployment"]["spec"]["replicas"] == 2
    assert kinds(documents)["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


@pytest.mark.parametrize(
    ("settings", "host"),
    [
        ((), "preheat-server.preheat-system.svc"),
        (("server.clusterIP=10.96.0.50",), "10.96.0.50"),
        (("server.clusterIP=fd00::5",), "fd00::5"),
        (("server.url=https://reports.example:8443",), "reports.example"),
    ],
)
def test_pods_know_the_certificate_by_the_name_they_use(tmp_path: Path, settings: tuple[str, ...], host: str) -> None:
    documents = render(*settings)
    made, said = secret(documents), told(documents)
    assert host in said["url"]
    assert said["ca"] == made["ca.crt"], "one certificate in one rendering"
    for name, text in made.items():
        (tmp_path / name).write_text(text)
    kind = "-verify_ip" if host[0].isdigit() or ":" in host else "-verify_hostname"
    words = ["openssl", "verify", "-CAfile", "ca.crt", "-purpose", "sslserver", kind]
    assert subprocess.run([*words, host, "tls.crt"], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    other = "10.0.0.9" if kind == "-verify_ip" else "elsewhere.svc"
    assert subprocess.run([*words, other, "tls.crt"], cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_the_authority_s_own_key_is_kept_nowhere() -> None:
    made = secret(render())
    assert set(made) == {"ca.crt", "tls.crt", "tls.key"}
    assert all(text.count("BEGIN") == 1 for text in made.values())


def test_with_a_certificate_of_the_user_s_the_chart_makes_none() -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"
    documents = render("server.tls.secretName=mine", f"server.tls.ca={pem}")
    assert "Secret" not in kinds(documents)
    assert told(documents)["ca"] == pem
    assert "mine" in [volume.get("secret", {}).get("secretName") for volume in pod(documents)["volumes"]]
    assert told(render("server.tls.secretName=mine"))["ca"] == ""


def test_without_tls_where_a_mesh_does_it() -> None:
    documents = render("server.tls.enabled=false")
    assert "Secret" not in kinds(documents)
    assert told(documents) == {"url": "http://preheat-server.preheat-system.svc", "ca": ""}
    settings = ServerSettings.from_env({e["name"]: e["value"] for e in pod(documents)["containers"][0]["env"]})
    assert settings.tls_directory == ""
    assert {"name": "reports", "port": 80, "targetPort": "reports"} in kinds(documents)["Service"]["spec"]["ports"]


def test_switched_off_nothing_of_it_is_there_and_pods_are_told_nothing() -> None:
    documents = render("server.enabled=false")
    assert kinds(documents) == {}
    assert told(documents) == {"url": "", "ca": ""}


def test_the_prometheus_operator_is_asked_only_when_told_to() -> None:
    assert "ServiceMonitor" not in kinds(render())
    monitor = kinds(render("server.serviceMonitor.enabled=true", "server.serviceMonitor.labels.release=prom"))[
        "ServiceMonitor"
    ]
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["endpoints"][0]["honorLabels"] is True
    service = kinds(render())["Service"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]


def test_it_finds_the_controller_as_well() -> None:
    assert not [d for d in render() if d["kind"] == "PodMonitor"]
    documents = render("server.serviceMonitor.enabled=true", "server.serviceMonitor.labels.release=prom")
    (monitor,) = (d for d in documents if d["kind"] == "PodMonitor")
    template = next(
        d for d in documents if d["metadata"]["name"] == "preheat-controller" and d["kind"] == "Deployment"
    )["spec"]["template"]
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    assert ports[endpoint["port"]] == Settings.metrics_port
    assert endpoint["honorLabels"] is True


def test_names_follow_the_release() -> None:
    text = helm("template", "ml", str(CHART), "-n", "other", "--kube-version", "1.37.0",
                "--set", "image.repository=r/p,store.bucket=models,clusterId=c")  # fmt: skip
    assert "https://ml-preheat-server.other.svc" in text


def test_the_audience_pods_ask_for_is_the_one_the_server_asks_about() -> None:
    text = str(render())
    assert f'audience: "{names.REPORTS_AUDIENCE}"' in text


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_pods_are_held_back_only_where_somebody_releases_them_without_the_controller(enabled: str) -> None:
    documents = render(f"server.enabled={enabled}")
    controller = next(
        d for d in documents if d["metadata"]["name"] == "preheat-controller" and d["kind"] == "Deployment"
    )
    env = {e["name"]: e.get("value", "") for e in controller["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert Settings.from_env(env).installation.gating is (enabled == "true")
