"""Which edits of a workload make a new revision, and which must not: a compile costs minutes, a missed one a cold fleet."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from unit.plan.simulation import Simulation, digest, spec

if TYPE_CHECKING:
    from collections.abc import Callable

WORKLOAD: dict[str, Any] = yaml.safe_load("""
metadata: {name: vision, labels: {team: a}, annotations: {}}
spec:
  replicas: 2
  strategy: {type: RollingUpdate}
  template:
    metadata: {labels: {app: vision, preheat.dev/model: vision}, annotations: {}}
    spec:
      serviceAccountName: vision
      nodeSelector: {zone: a}
      volumes:
      - {name: data, emptyDir: {}}
      - {name: config, configMap: {name: settings, defaultMode: 420, items: [{key: a, path: a}, {key: b, path: b}]}}
      - {name: logs, emptyDir: {}}
      - {name: mesh, emptyDir: {}}
      initContainers:
      - {name: weights, image: "fetcher:1", command: [get, "s3://bucket"], volumeMounts: [{name: data, mountPath: /data}]}
      - {name: mesh-init, image: "mesh:1", volumeMounts: [{name: mesh, mountPath: /mesh}]}
      containers:
      - name: server
        image: registry/vision:1
        command: [python3, serve.py]
        args: ["--port", "80"]
        workingDir: /app
        env:
        - {name: SIZE, value: large}
        - {name: THREADS, value: "4"}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: token, key: value}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        envFrom: [{configMapRef: {name: common}}]
        resources: {requests: {cpu: "1", memory: 1Gi}, limits: {memory: 2Gi, nvidia.com/gpu: 1}}
        ports: [{containerPort: 80}]
        volumeMounts:
        - {name: data, mountPath: /data}
        - {name: config, mountPath: /etc/settings}
      - {name: sidecar, image: "logger:1", volumeMounts: [{name: logs, mountPath: /logs}]}
""")


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    return workload["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def server(workload: dict[str, Any]) -> dict[str, Any]:
    return pod(workload)["containers"][0]  # type: ignore[no-any-return]


def as_the_api_server_fills_in(w: dict[str, Any]) -> None:
    server(w).update(terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    server(w)["env"][3]["valueFrom"]["fieldRef"]["apiVersion"] = "v1"
    pod(w).update(dnsPolicy="ClusterFirst", restartPolicy="Always", schedulerName="default-scheduler")


IMMATERIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a label of the workload": lambda w: w["metadata"]["labels"].update(team="b"),
    "an annotation of the workload": lambda w: w["metadata"]["annotations"].update(note="x"),
    "a label of its pods": lambda w: w["spec"]["template"]["metadata"]["labels"].update(track="canary"),
    "kubectl rollout restart": lambda w: w["spec"]["template"]["metadata"]["annotations"].update(
        {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
    ),
    "replicas": lambda w: w["spec"].update(replicas=7),
    "the strategy": lambda w: w["spec"].update(strategy={"type": "Recreate"}, minReadySeconds=5),
    "the order of keys": lambda w: w.update(yaml.safe_load(yaml.safe_dump(w, sort_keys=True))),
    "the order of variables that refer to none": lambda w: server(w)["env"].reverse(),
    "the order of mounts": lambda w: server(w)["volumeMounts"].reverse(),
    "the order of volumes": lambda w: pod(w)["volumes"].reverse(),
    "the order of keys of a ConfigMap": lambda w: pod(w)["volumes"][1]["configMap"]["items"].reverse(),
    "requests of cpu": lambda w: server(w)["resources"]["requests"].update(cpu="4"),
    "limits of memory": lambda w: server(w)["resources"]["limits"].update(memory="8Gi"),
    "a readiness probe": lambda w: server(w).update(readinessProbe={"httpGet": {"path": "/", "port": 80}}),
    "a liveness probe": lambda w: server(w).update(livenessProbe={"tcpSocket": {"port": 80}}),
    "a port": lambda w: server(w)["ports"].append({"containerPort": 9090}),
    "a lifecycle hook": lambda w: server(w).update(lifecycle={"preStop": {"exec": {"command": ["sleep", "5"]}}}),
    "the pull policy": lambda w: server(w).update(imagePullPolicy="Always"),
    "a pull secret": lambda w: pod(w).update(imagePullSecrets=[{"name": "regcred"}]),
    "another image of a sidecar": lambda w: pod(w)["containers"][1].update(image="logger:2"),
    "one sidecar more": lambda w: pod(w)["containers"].append({"name": "proxy", "image": "proxy:1"}),
    "a native sidecar": lambda w: pod(w)["initContainers"].append(
        {
            "name": "proxy",
            "image": "proxy:1",
            "restartPolicy": "Always",
            "volumeMounts": [{"name": "data", "mountPath": "/x"}],
        }
    ),
    "an init container that shares nothing with it": lambda w: pod(w)["initContainers"][1].update(image="mesh:2"),
    "a volume that it does not mount": lambda w: pod(w)["volumes"][2].update(emptyDir={"medium": "Memory"}),
    "the size of an emptyDir": lambda w: pod(w)["volumes"][0].update(emptyDir={"sizeLimit": "9Gi"}),
    "the mode of a ConfigMap's files": lambda w: pod(w)["volumes"][1]["configMap"].update(defaultMode=256),
    "a node selector": lambda w: pod(w).update(nodeSelector={"zone": "b"}),
    "a toleration": lambda w: pod(w).update(tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "affinity": lambda w: pod(w).update(affinity={"podAntiAffinity": {}}),
    "spread": lambda w: pod(w).update(topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone"}]),
    "the priority class": lambda w: pod(w).update(priorityClassName="high"),
    "the grace period": lambda w: pod(w).update(terminationGracePeriodSeconds=5),
    "the user": lambda w: server(w).update(securityContext={"runAsUser": 1000}),
    "the service account": lambda w: pod(w).update(serviceAccountName="other"),
    "what the API server fills in": as_the_api_server_fills_in,
    "Preheat's own variables": lambda w: server(w)["env"].append({"name": "PREHEAT_LOG", "value": "off"}),
    "status": lambda w: w.update(status={"readyReplicas": 2}),
}
MATERIAL: dict[str, Callable[[dict[str, Any]], Any]] = {
    "the command": lambda w: server(w).update(command=["python3", "other.py"]),
    "an argument": lambda w: server(w)["args"].append("--fast"),
    "the order of arguments": lambda w: server(w)["args"].reverse(),
    "the working directory": lambda w: server(w).update(workingDir="/srv"),
    "a variable": lambda w: server(w)["env"][0].update(value="small"),
    "a variable more": lambda w: server(w)["env"].append({"name": "NEW", "value": "1"}),
    "a variable less": lambda w: server(w)["env"].pop(1),
    "another Secret": lambda w: server(w)["env"][2]["valueFrom"]["secretKeyRef"].update(name="token-2"),
    "another key of a Secret": lambda w: server(w)["env"][2]["valueFrom"]["secretKeyRef"].update(key="new"),
    "PYTHONPATH": lambda w: server(w)["env"].append({"name": "PYTHONPATH", "value": "/lib"}),
    "another ConfigMap for variables": lambda w: server(w)["envFrom"][0]["configMapRef"].update(name="uncommon"),
    "the order of sources of variables": lambda w: server(w).update(
        envFrom=[{"secretRef": {"name": "s"}}, *server(w)["envFrom"]]
    ),
    "where something is mounted": lambda w: server(w)["volumeMounts"][0].update(mountPath="/models"),
    "a part of a volume": lambda w: server(w)["volumeMounts"][0].update(subPath="v2"),
    "a mount more": lambda w: server(w)["volumeMounts"].append({"name": "logs", "mountPath": "/logs"}),
    "what a volume is": lambda w: pod(w)["volumes"][0].update(emptyDir=None, persistentVolumeClaim={"claimName": "m"}),
    "another ConfigMap in a volume": lambda w: pod(w)["volumes"][1]["configMap"].update(name="settings-2"),
    "other keys of a ConfigMap": lambda w: pod(w)["volumes"][1]["configMap"]["items"].pop(),
    "the image of the init container that brings data": lambda w: pod(w)["initContainers"][0].update(image="fetcher:2"),
    "the command of that init container": lambda w: pod(w)["initContainers"][0].update(command=["get", "s3://other"]),
    "how many GPUs it sees": lambda w: server(w)["resources"]["limits"].update({"nvidia.com/gpu": 2}),
}  # fmt: skip


def ready() -> Simulation:
    world = Simulation(workload=copy.deepcopy(WORKLOAD))
    world.make_ready(digest("a"))
    return world


@pytest.mark.parametrize("edit", IMMATERIAL)
def test_an_edit_that_does_not_matter_makes_no_revision(edit: str) -> None:
    world = ready()
    before = world.status
    IMMATERIAL[edit](world.workload or {})
    assert world.workload != WORKLOAD or edit == "the order of keys"
    plan = world.settle()
    # How a Deployment rolls decides whether its pods wait, and nothing else.
    after = world.status | {"whenMissing": before["whenMissing"]}
    assert (after, plan.announcements, len(world.made)) == (before, (), 1)


@pytest.mark.parametrize("edit", MATERIAL)
def test_an_edit_that_matters_makes_one_and_going_back_needs_no_job(edit: str) -> None:
    world = ready()
    MATERIAL[edit](world.workload or {})
    world.settle()
    assert world.causes == ["TemplateChanged", "Created"]
    assert len(world.made) == 2
    world.make_ready(digest("b"))
    world.workload = copy.deepcopy(WORKLOAD)
    world.settle()
    assert world.causes == ["Created", "TemplateChanged"]
    assert len(world.made) == 2


@pytest.mark.parametrize(
    "change",
    [{"serving": {"onMiss": "Eager"}}, {"compile": {"timeoutSeconds": 61}}, {"revisionHistoryLimit": 3},
     {"suspend": "Enabled"}, {"hardware": [{"name": "cpu", "cpuIsa": "X86_64_V3"}]}, {"keepIf": {"minSpeedup": "1.05"}}],
)  # fmt: skip
def test_an_edit_of_the_model_that_does_not_matter_makes_no_revision(change: dict[str, Any]) -> None:
    world = ready()
    names = [r["name"] for r in world.status["revisions"]]
    world.body, world.generation = spec() | change, 2
    world.settle()
    assert [r["name"] for r in world.status["revisions"]] == names
    assert world.condition("Ready") == ("True", "RevisionReady")


def test_order_counts_where_a_variable_refers_to_one_before_it() -> None:
    world = Simulation(workload=copy.deepcopy(WORKLOAD))
    server(world.workload or {})["env"].append({"name": "BOTH", "value": "$(SIZE)-$(THREADS)"})
    world.make_ready(digest("a"))
    server(world.workload or {})["env"].reverse()
    world.settle()
    assert world.causes == ["TemplateChanged", "Created"]


def test_the_value_of_a_secret_is_nowhere_and_of_a_variable_set_twice_the_last_counts() -> None:
    world = ready()
    server(world.workload or {})["env"].insert(0, {"name": "SIZE", "value": "overridden"})
    world.settle()
    assert world.causes == ["Created"]


def test_a_status_of_before_templates_were_recorded_needs_no_new_revision() -> None:
    world = ready()
    for field in ("templateHash", "imageDigest", "finished", "formatVersion"):
        world.status["revisions"][0].pop(field, None)
    world.settle()
    assert world.causes == ["Created"]
    assert world.status["revisions"][0]["templateHash"]
    assert len(world.made) == 1
