"""Workloads of other kinds: the template is learned from labelled pods, as they are without what was added to them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from preheat_operator.api.index import ImageEntry, Index, ModelEntry, render
from preheat_operator.api.spec import WorkloadRef
from preheat_operator.injection.reference import inject
from preheat_operator.injection.settings import InjectionSettings
from preheat_operator.plan.decides import template_hash
from preheat_operator.plan.learned import is_read, learned
from preheat_operator.plan.workload import Serving, serving
from unit.plan.simulation import Simulation, digest, spec

IMAGE = "registry/vision:1"
ROLLOUT = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "vision"}
SETTINGS = InjectionSettings(
    image="r/preheat@sha256:0", cluster_id="c1", store_bucket="b", reports_url="https://preheat-server.preheat"
)  # fmt: skip


def pod(name: str = "vision-7d4f-abcde", image: str = IMAGE, *, number: int = 0, **more: Any) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": name.rsplit("-", 1)[0], "uid": name, "controller": True}
    return {
        "metadata": {
            "name": name, "namespace": "prod", "labels": {"preheat.dev/model": "vision"}, "ownerReferences": [owner],
            "creationTimestamp": f"2026-01-01T00:00:{number:02d}Z", **more.pop("metadata", {}),
        },
        "spec": {"serviceAccountName": "vision", "containers": [{"name": "server", "image": image, **more}]},
        "status": {"phase": "Running"},
    }  # fmt: skip


def injected(plain: dict[str, Any], *, python_path: str | None = None) -> dict[str, Any]:
    entry = ImageEntry(model="vision", image=IMAGE, manifest=digest("a"), python_path=python_path)
    text = render(Index(models=(ModelEntry(model="vision"),), images=(entry,)))
    made = inject(copy.deepcopy(plain), text, SETTINGS)
    assert made["metadata"]["annotations"]["preheat.dev/injected"] == "yes"
    # And what every cluster adds.
    served = made["spec"]["containers"][0]
    served["volumeMounts"].append({"name": "kube-api-access-x7f2k", "mountPath": "/var/run/secrets/token"})
    made["spec"]["volumes"].append({"name": "kube-api-access-x7f2k", "projected": {"sources": []}})
    made["spec"] |= {"nodeName": "n1", "priority": 0, "schedulingGates": [{"name": "preheat.dev/artifact"}],
                     "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]}  # fmt: skip
    return made


def learn(*pods: dict[str, Any], paths: dict[str, str | None] | None = None, **ref: str) -> list[Serving]:
    reference = WorkloadRef.model_validate({**ROLLOUT, **ref})
    found = learned(pods, reference=reference, image_paths=paths or {})
    model = Simulation(body=spec(workloadRef={**ROLLOUT, **ref})).model
    sources = [serving(spec=model.spec, workload=each) for each in found]
    assert all(isinstance(each, Serving) for each in sources)
    return sources  # type: ignore[return-value]


@pytest.mark.parametrize("image_path", [None, "/app"])
@pytest.mark.parametrize("own_path", [None, "/lib"])
def test_an_injected_pod_and_one_that_is_not_are_one_template(image_path: str | None, own_path: str | None) -> None:
    env = [{"name": "SIZE", "value": "l"}, *([{"name": "PYTHONPATH", "value": own_path}] if own_path else [])]
    plain = pod(env=env, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    plain["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    (before,) = learn(plain)
    (after,) = learn(injected(plain, python_path=image_path), paths={IMAGE: image_path})
    assert template_hash(after) == template_hash(before)
    assert after.container["env"] == env
    text = str(after.template)
    for ours in ("preheat-fetch", "PREHEAT_", "/opt/preheat", "kube-api-access", "schedulingGates", "nodeName"):
        assert ours not in text, ours


@pytest.mark.parametrize(
    ("name", "owner", "is_its"),
    [
        ("vision-7d4f-abcde", "vision-7d4f", True),
        ("vision-0-1", "vision-0", True),
        ("vision-00001-deployment-6d5f-x", "vision-00001-deployment-6d5f", True),
        ("vision", "", True),
        ("other-abc", "vision", True),
        ("visionary-7d4f-abcde", "visionary-7d4f", False),
        ("other-abc", "other", False),
    ],
)
def test_whose_pods_they_are(name: str, owner: str, *, is_its: bool) -> None:
    references = [{"kind": "X", "name": owner, "uid": "u", "controller": True}] if owner else []
    assert bool(learn(pod(name, metadata={"name": name, "ownerReferences": references}))) is is_its


@pytest.mark.parametrize(
    "change",
    [{"status": {"phase": "Succeeded"}}, {"status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": "x"}}],
)
def test_pods_that_go_teach_nothing(change: dict[str, Any]) -> None:
    gone = pod()
    for field, value in change.items():
        gone[field] |= value
    assert learn(gone) == []


def test_what_says_which_pod_it_is_does_not_count() -> None:
    def of_group(number: int) -> dict[str, Any]:
        name = f"vision-{number}"
        made = pod(name, env=[{"name": "LWS_LEADER_ADDRESS", "value": f"{name}.vision"},
                              {"name": "K_REVISION", "value": name}],
                   volumeMounts=[{"name": "models", "mountPath": "/models"}])  # fmt: skip
        made["spec"] |= {"hostname": name, "subdomain": "vision"}
        made["spec"]["volumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": f"models-{name}"}}]
        return made

    (source,) = learn(of_group(0), of_group(1))
    assert source.claims == {"models"}, "a compile pod gets an empty one"


def test_the_newest_pods_template_comes_first_and_each_once() -> None:
    found = learn(
        pod("vision-a-1", number=1), pod("vision-b-1", "registry/vision:2", number=3), pod("vision-a-2", number=2)
    )
    assert [each.image for each in found] == ["registry/vision:2", IMAGE]
    assert len(learn(*(pod(f"vision-{n}", f"i:{n}", number=n) for n in range(30)))) == 8


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        ({"kind": "Deployment", "name": "x"}, True),
        ({"kind": "StatefulSet", "name": "x"}, True),
        ({"kind": "ReplicaSet", "name": "x"}, False),
        ({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "x"}, False),
        ({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "x"}, False),
        ({"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "name": "x"}, False),
    ],
)
def test_which_kinds_are_read(reference: dict[str, str], *, read: bool) -> None:
    assert is_read(WorkloadRef.model_validate(reference)) is read


# Through the whole plan.


def rollout(*pods: dict[str, Any]) -> Simulation:
    world = Simulation(body=spec(workloadRef=ROLLOUT), workload=None)
    world.labelled = list(pods)
    return world


def test_it_waits_for_the_first_pod_and_says_so() -> None:
    world = rollout()
    world.settle()
    assert world.condition("Ready") == ("False", "WaitingForPod")
    assert world.condition("Progressing") == ("True", "WaitingForPod")
    assert world.condition("Degraded") == ("False", "AsExpected")
    world.labelled = [pod()]
    world.make_ready(digest("a"))
    assert world.condition("Ready") == ("True", "RevisionReady")
    assert world.causes == ["Created"]


def test_scaled_to_zero_everything_stays_as_it_is() -> None:
    world = rollout(pod())
    world.make_ready(digest("a"))
    before = world.status
    world.labelled = []
    plan = world.settle()
    assert (world.status, plan.announcements) == (before, ())


def test_a_roll_out_is_followed_and_not_turned_round_by_old_pods() -> None:
    world = rollout(pod("vision-a-1", number=1))
    world.make_ready(digest("a"))
    world.labelled.append(pod("vision-b-1", "registry/vision:2", number=2))
    world.settle()
    assert world.causes == ["ImageChanged", "Created"]
    world.labelled.append(pod("vision-a-2", number=3))
    world.settle()
    assert world.causes == ["ImageChanged", "Created"], "the old replica set made one more pod"
    world.make_ready(digest("b"))
    world.labelled = [pod("vision-a-3", number=4)]
    world.settle()
    assert (world.causes, len(world.made)) == (["Created", "ImageChanged"], 2), "it was taken back"


def test_a_container_that_is_not_there_needs_a_person() -> None:
    world = rollout(pod())
    world.body = spec(workloadRef={**ROLLOUT, "container": "gone"})
    world.settle()
    assert world.condition("Ready") == ("False", "ContainerNotFound")
