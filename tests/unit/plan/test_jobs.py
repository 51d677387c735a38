"""Names, keys and manifests of compile Jobs; revisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preheat_operator.plan.jobs import JobKey, is_ours, template_hash
from preheat_operator.plan.objects import JobView, read_job, read_pod
from preheat_operator.plan.revision import wanted
from preheat_operator.plan.workload import Serving, serving
from unit.plan.simulation import INSTALLATION, UID, Simulation, deployment, spec


def key(**change: object) -> JobKey:
    model = Simulation().model
    want = wanted(model="vision", spec=model.spec, image="registry/vision:1")
    base = JobKey(uid=UID, want=want, hardware="cpu", attempt=1)
    return replace(base, **change)  # type: ignore[arg-type]


def test_a_job_is_named_by_everything_it_compiles() -> None:
    other_image = wanted(model="vision", spec=Simulation().model.spec, image="registry/vision:2")
    keys = [key(), key(uid="x"), key(hardware="gpu"), key(attempt=2), key(want=other_image)]
    assert len({k.name("vision") for k in keys}) == len(keys)
    assert key().name("vision") == key().name("vision")
    name = key().name("a" * 39 + "-" + "b" * 12)
    assert name.startswith("a" * 39 + "-")
    assert "--" not in name
    assert len(name) <= 51


def test_a_job_is_ours_by_owner_and_key_not_by_name() -> None:
    ours = JobView(name="x", uid="u", owner_uid=UID, target_key=key().target_key)
    assert is_ours(ours, key())
    assert not is_ours(replace(ours, owner_uid="somebody"), key())
    assert not is_ours(replace(ours, target_key=""), key())


def test_the_manifest() -> None:
    world = Simulation()
    world.settle()
    job = next(iter(world.jobs.values()))
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    assert "ttlSecondsAfterFinished" not in job["spec"]
    assert job["spec"]["template"]["metadata"]["finalizers"] == ["preheat.dev/result"]
    rules = job["spec"]["podFailurePolicy"]["rules"]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert {r["onExitCodes"]["containerName"] for r in rules[1:]} == {"toolkit", "compile", "publish"}
    for rule in rules[1:]:
        assert set(range(64, 79)) <= set(rule["onExitCodes"]["values"])
        assert 0 not in rule["onExitCodes"]["values"]
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("CompiledModel", UID, True)
    assert "preheat.dev/model" not in job["spec"]["template"]["metadata"]["labels"]
    assert all(len(v) <= 63 for v in job["metadata"]["labels"].values())


@pytest.mark.parametrize(
    ("change", "another"),
    [
        ({"keepIf": {"minSpeedup": "1.1"}}, True),
        ({"hardware": [{"name": "cpu", "cpuIsa": "Native"}]}, True),
        ({"hardware": [{"name": "cpu", "cpuIsa": "X86_64_V3"}]}, False),
        ({"keepIf": {"minSpeedup": "1.05"}}, False),
        ({"compile": {"timeoutSeconds": 60}}, False),
        ({"revisionHistoryLimit": 1}, False),
        ({"suspend": "Enabled"}, False),
        ({"serving": {"onMiss": "Fail", "onReject": "Compile", "verify": "Never"}}, False),
    ],
)
def test_a_revision_changes_with_what_decides_compilation(change: dict[str, object], another: bool) -> None:
    def name(body: dict[str, object]) -> str:
        return wanted(model="vision", spec=Simulation(body=body).model.spec, image="i").name

    assert (name(spec()) != name({**spec(), **change})) == another


def test_a_template_hash_changes_with_what_users_can_change_only() -> None:
    def of(world: Simulation, installation: object = INSTALLATION) -> str:
        model = world.model
        found = serving(spec=model.spec, workload=world.workload)
        assert isinstance(found, Serving)
        return template_hash(
            model=model,
            hardware=model.spec.hardware[0],
            serving=found,
            installation=installation,  # type: ignore[arg-type]
        )

    plain = of(Simulation())
    assert of(Simulation(body=spec(compile={"timeoutSeconds": 61}))) != plain
    assert of(Simulation(workload=deployment("registry/vision:1", imagePullSecrets=[{"name": "p"}]))) != plain
    assert of(Simulation(body=spec(serving={"onMiss": "Eager"}))) == plain, "pods read it, no Job does"
    assert of(Simulation(), replace(INSTALLATION, image="newer", store_endpoint="other")) == plain


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": [], "status": 7, "spec": "x"},
                                 {"metadata": {"labels": {"preheat.dev/attempt": "²"}, "creationTimestamp": "x"}},
                                 {"status": {"conditions": [7, {"type": "Failed", "status": "True"}], "phase": None}}])  # fmt: skip
def test_odd_objects_are_read_without_complaint(raw: dict[str, object]) -> None:
    assert read_job(raw).attempt == 0
    assert read_pod(raw).holds_result is False
