"""What a compile pod takes from the pod that serves, and what it must never take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from preheat_operator.api.spec import CompiledModelSpec
from preheat_operator.plan.conditions import ConditionReason
from preheat_operator.plan.template import Errand, compile_pod, merge_pod
from preheat_operator.plan.workload import NotServing, Serving, serving
from unit.plan.simulation import INSTALLATION, digest, spec

WORKLOAD = {
    "spec": {
        "template": {
            "metadata": {"labels": {"app": "vision"}, "annotations": {"a": "b"}},
            "spec": {
                "hostNetwork": True, "hostPID": True, "priorityClassName": "high", "serviceAccountName": "vision",
                "imagePullSecrets": [{"name": "pull"}], "runtimeClassName": "nvidia", "nodeSelector": {"pool": "a", "x": "y"},
                "tolerations": [{"key": "gpu"}], "securityContext": {"fsGroup": 7}, "restartPolicy": "Always",
                "schedulerName": "other", "affinity": {"podAffinity": {}},
                "volumes": [
                    {"name": "weights", "emptyDir": {}}, {"name": "unused", "hostPath": {"path": "/"}},
                    {"name": "token", "projected": {"sources": [
                        {"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "c"}}]}},
                    {"name": "only-token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                ],
                "initContainers": [
                    {"name": "fetch-weights", "image": "w", "command": ["get"], "lifecycle": {"postStart": {}},
                     "volumeMounts": [{"name": "weights", "mountPath": "/w"}]},
                    {"name": "compile", "image": "trap"},
                    {"name": "proxy", "image": "p", "restartPolicy": "Always"},
                    {"name": "preheat-fetch", "image": "old"},
                ],
                "containers": [
                    {"name": "sidecar", "image": "s"},
                    {"name": "server", "image": "registry/vision:1", "command": ["/opt/venv/bin/python3.12", "serve.py"],
                     "args": ["--x"], "env": [{"name": "A", "value": "b"}], "envFrom": [{"secretRef": {"name": "e"}}],
                     "workingDir": "/app", "ports": [{"containerPort": 80}], "readinessProbe": {}, "livenessProbe": {},
                     "startupProbe": {}, "lifecycle": {"preStop": {}}, "tty": True, "restartPolicy": "Always",
                     "resources": {"requests": {"cpu": "1"}}, "securityContext": {"runAsUser": 5},
                     "volumeMounts": [{"name": "weights", "mountPath": "/w"}, {"name": "token", "mountPath": "/t"},
                                      {"name": "only-token", "mountPath": "/o"}, {"name": "data", "mountPath": "/d"}]},
                ],
            },
        },
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }
}  # fmt: skip


def parts(**more: Any) -> tuple[CompiledModelSpec, Serving]:
    body = spec(**more)
    body["workloadRef"]["container"] = "server"
    model = CompiledModelSpec.model_validate(body)
    found = serving(spec=model, workload=WORKLOAD)
    assert isinstance(found, Serving)
    return model, found


def build(**more: Any) -> dict[str, Any]:
    model, found = parts(**more)
    return compile_pod(
        spec=model, hardware=model.hardware[0], serving=found, installation=INSTALLATION, namespace="prod", model="vision",
        errand=Errand(request={"text": "$(HOME)"}, recover_job="uid", parts=(digest("a"), digest("b"))),
    )  # fmt: skip


def test_containers_and_their_order() -> None:
    pod = build()
    assert [c["name"] for c in pod["initContainers"]] == ["toolkit", "fetch-weights", "workload-compile", "compile"]
    assert [c["name"] for c in pod["containers"]] == ["publish"]


def test_what_is_copied() -> None:
    pod = build()
    compiler = pod["initContainers"][-1]
    for key in ("env", "envFrom", "workingDir", "resources", "securityContext"):
        assert compiler[key] == WORKLOAD["spec"]["template"]["spec"]["containers"][1][key]  # type: ignore[index]
    assert compiler["image"] == "registry/vision:1"
    assert compiler["imagePullPolicy"] == "Always"
    assert compiler["volumeMounts"][-1] == {"name": "preheat", "mountPath": "/opt/preheat"}
    assert pod["serviceAccountName"] == "vision"
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["securityContext"] == {"fsGroup": 7}


def test_what_is_never_copied() -> None:
    pod = build()
    assert not {"hostNetwork", "hostPID", "affinity", "schedulerName"} & set(pod)
    assert pod["priorityClassName"] == "preheat-compile"
    assert pod["restartPolicy"] == "Never"
    forbidden = {
        "ports",
        "readinessProbe",
        "livenessProbe",
        "startupProbe",
        "lifecycle",
        "tty",
        "args",
        "restartPolicy",
    }
    for container in pod["initContainers"]:
        assert not (forbidden - ({"args"} if container["name"] != "compile" else set())) & set(container)


def test_volumes_are_those_that_are_used_and_tokens_are_left_behind() -> None:
    volumes = {v["name"]: v for v in build()["volumes"]}
    assert set(volumes) == {"weights", "token", "only-token", "data", "preheat", "preheat-store"}
    assert volumes["token"]["projected"]["sources"] == [{"configMap": {"name": "c"}}]
    assert volumes["only-token"] == {"name": "only-token", "emptyDir": {}}
    assert volumes["data"] == {"name": "data", "emptyDir": {}}


def test_the_token_is_there_when_it_is_asked_for() -> None:
    assert build()["automountServiceAccountToken"] is False
    pod = build(compile={"serviceAccountToken": "Workload"})
    assert pod["automountServiceAccountToken"] is True
    assert {v["name"]: v for v in pod["volumes"]}["only-token"]["projected"]


def test_store_credentials_never_reach_the_users_containers() -> None:
    pod = build()
    for container in (*pod["initContainers"], *pod["containers"]):
        mounted = any(m["name"] == "preheat-store" for m in container.get("volumeMounts", ()))
        assert mounted == (container["name"] in ("toolkit", "publish"))
    assert "PREHEAT_STORE" not in json.dumps(pod["initContainers"][1:])
    secret = next(v for v in pod["volumes"] if v["name"] == "preheat-store")["projected"]["sources"][0]["secret"]
    assert secret == {"name": "preheat-publish", "optional": True}


def test_our_containers_meet_the_restricted_standard() -> None:
    pod = build()
    for container in (pod["initContainers"][0], pod["containers"][0]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
            "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        }  # fmt: skip
        assert container["resources"]["limits"]


def test_the_request_arrives_as_it_is() -> None:
    environment = {e["name"]: e for e in build()["containers"][0]["env"]}
    assert environment["PREHEAT_REQUEST"]["value"] == '{"text":"$$(HOME)"}'
    assert environment["PREHEAT_PARTS"]["value"] == f"{digest('a')},{digest('b')}"
    assert environment["PREHEAT_RECOVER_JOB"]["value"] == "uid"
    assert environment["PREHEAT_STORE_TENANT"]["value"] == "c.prod"
    assert environment["PREHEAT_JOB_UID"]["valueFrom"]["fieldRef"]["fieldPath"].endswith("controller-uid']")


@pytest.mark.parametrize(
    ("command", "driver"),
    [
        (["python", "-m", "x"], ["python", "/opt/preheat/toolkit/compile.py"]),
        (["/opt/venv/bin/python3.12"], ["/opt/venv/bin/python3.12", "/opt/preheat/toolkit/compile.py"]),
        (["uvicorn"], ["/bin/sh", "/opt/preheat/toolkit/compile.sh"]),
        ([], ["/bin/sh", "/opt/preheat/toolkit/compile.sh"]),
        (None, ["/bin/sh", "/opt/preheat/toolkit/compile.sh"]),
    ],
)
def test_the_workloads_python_is_used_when_it_is_named(command: list[str] | None, driver: list[str]) -> None:
    model, found = parts()
    found = replace(found, container={**found.container, "command": command})
    pod = compile_pod(
        spec=model, hardware=model.hardware[0], serving=found, installation=INSTALLATION, namespace="n", model="m",
        errand=Errand(request={}),
    )  # fmt: skip
    paths = ["--request", "/opt/preheat/request.json", "--out", "/opt/preheat/out"]
    assert pod["initContainers"][-1]["command"] == [*driver, *paths]


def test_a_hardware_profile_wins_over_the_workload() -> None:
    entry = {
        "name": "gpu", "nodeSelector": {"pool": "b"}, "tolerations": [{"key": "t"}], "runtimeClassName": "other",
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }  # fmt: skip
    body = spec()
    body["hardware"] = [entry]
    body["workloadRef"]["container"] = "server"
    model = CompiledModelSpec.model_validate(body)
    found = serving(spec=model, workload=WORKLOAD)
    assert isinstance(found, Serving)
    pod = compile_pod(
        spec=model, hardware=model.hardware[0], serving=found, installation=INSTALLATION, namespace="n", model="m",
        errand=Errand(request={}),
    )  # fmt: skip
    assert pod["nodeSelector"] == {"pool": "b", "x": "y"}
    assert pod["tolerations"] == [{"key": "gpu"}, {"key": "t"}]
    assert pod["runtimeClassName"] == "other"
    assert pod["initContainers"][-1]["resources"] == {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("image", "policy", "expected"),
    [("a:1", None, "Always"), ("a:1", "IfNotPresent", "Always"), ("a:1", "Never", "Never"),
     ("a@sha256:" + "0" * 64, "Always", "IfNotPresent")],
)  # fmt: skip
def test_a_tag_that_can_move_is_pulled_again(image: str, policy: str | None, expected: str) -> None:
    model, found = parts()
    found = replace(found, container={"name": "server", "image": image, "imagePullPolicy": policy})
    pod = compile_pod(
        spec=model, hardware=model.hardware[0], serving=found, installation=INSTALLATION, namespace="n", model="m",
        errand=Errand(request={}),
    )  # fmt: skip
    assert pod["initContainers"][-1]["imagePullPolicy"] == expected


def test_the_workload_is_left_as_it_was() -> None:
    before = json.dumps(WORKLOAD, sort_keys=True)
    build()["initContainers"][-1]["env"].append("x")
    assert json.dumps(WORKLOAD, sort_keys=True) == before


def test_a_merge_pod_runs_nobody_elses_code() -> None:
    _, found = parts()
    installation = replace(INSTALLATION, store_ca_config_map="ca", image_pull_secrets=("p",), run_as_user=None)
    pod = merge_pod(serving=found, installation=installation, namespace="n", model="m", errand=Errand(request={}))
    assert pod["initContainers"] == []
    assert [c["image"] for c in pod["containers"]] == ["example.org/preheat:1"]
    assert pod["serviceAccountName"] == "vision"
    assert pod["imagePullSecrets"] == [{"name": "p"}]
    sources = next(v for v in pod["volumes"] if v["name"] == "preheat-store")["projected"]["sources"]
    assert sources[1] == {"configMap": {"name": "ca", "optional": True}}
    assert "runAsUser" not in pod["containers"][0]["securityContext"]


@pytest.mark.parametrize(
    ("workload", "container", "reason"),
    [
        (None, None, ConditionReason.WORKLOAD_NOT_FOUND),
        (WORKLOAD, "other", ConditionReason.CONTAINER_NOT_FOUND),
        ({}, None, ConditionReason.CONTAINER_NOT_FOUND),
        ({"spec": {"template": {"spec": {"containers": [{"name": "a"}]}}}}, None, ConditionReason.CONTAINER_NOT_FOUND),
    ],
)
def test_nothing_to_compile_from(
    workload: dict[str, Any] | None, container: str | None, reason: ConditionReason
) -> None:
    body = spec()
    body["workloadRef"]["container"] = container
    found = serving(spec=CompiledModelSpec.model_validate(body), workload=workload)
    assert isinstance(found, NotServing)
    assert found.reason == reason
