"""A wrong CompiledModel is answered without a cluster as the API server answers it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import yaml

from apiserver.fixtures import example
from mistakes import MISTAKES, REMOVED, Mistake, changed
from preheat_operator.api.base import VALIDATIONS
from preheat_operator.api.crds import compiled_model_crd
from preheat_operator.cli import rules
from preheat_operator.cli.document import DocumentError, read_document

# The one mistake that is none without a cluster.
ALLOWED = "no workload"


def refused(text: str, namespace: str | None = None) -> str:
    with pytest.raises(DocumentError) as caught:
        read_document(text, namespace=namespace)
    return str(caught.value)


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.name != ALLOWED], ids=lambda mistake: mistake.name)
def test_a_mistake_is_answered_in_the_api_servers_words(mistake: Mistake) -> None:
    said = refused(yaml.safe_dump(changed(example(), mistake.change)))
    for word in mistake.says:
        assert word in said


def test_a_right_one_is_read_with_defaults_and_needs_no_workload() -> None:
    model = read_document(yaml.safe_dump(example()), namespace=None)
    without = read_document(yaml.safe_dump(changed(example(), {"spec.workloadRef": REMOVED})), namespace=None)
    assert model.spec.to_api() | {"workloadRef": None} == without.spec.to_api() | {"workloadRef": None}
    assert (model.metadata.namespace, model.spec.keep_if.min_speedup) == ("default", "1.05")


def test_the_option_wins_over_the_document_which_wins_over_default() -> None:
    text = yaml.safe_dump(changed(example(), {"metadata.namespace": "prod"}))
    assert read_document(text, namespace=None).metadata.namespace == "prod"
    assert read_document(text, namespace="test").metadata.namespace == "test"


def test_what_kubectl_get_prints_is_taken() -> None:
    more = {"uid": "0b9e", "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}}
    document = example()
    document["metadata"] |= more
    document["status"] = {"observedGeneration": 2}
    assert read_document(yaml.safe_dump(document), namespace=None).metadata.uid == "local"


def test_every_problem_is_told_at_once() -> None:
    said = refused(
        yaml.safe_dump(changed(example(), {"spec.torch.factory": 3, "spec.moddules": [], "spec.suspend": 1}))
    )
    assert {line.partition(":")[0] for line in said.splitlines()} == {
        "spec.torch.factory",
        "spec.moddules",
        "spec.suspend",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "not YAML"),
        ("", "one object of kind CompiledModel, there are 0"),
        ("kind: Deployment", "found: Deployment"),
        ("[]", "one object of kind CompiledModel"),
        ("kind: CompiledModel\nkind: CompiledModel", "line 2, column 1: not YAML: the field 'kind' is there twice"),
        ("kind: CompiledModel", "metadata: Required value"),
    ],
)
def test_what_is_no_compiled_model(text: str, says: str) -> None:
    assert says in refused(text)


def test_two_models_in_one_file_are_not_guessed_between() -> None:
    text = yaml.safe_dump(example())
    assert "there are 2" in refused(f"{text}---\n{text}")


def test_the_deployment_may_be_in_the_same_file() -> None:
    text = yaml.safe_dump_all([{"kind": "Deployment"}, example(), None])
    assert read_document(text, namespace=None).metadata.name == example()["metadata"]["name"]


@pytest.mark.parametrize("name", ["Vision", "../x", "a..b", "", "a/b", 3])
def test_a_name_that_could_not_be_a_key(name: object) -> None:
    assert "metadata.name" in refused(yaml.safe_dump(changed(example(), {"metadata.name": name})))


def all_rules(schema: dict[str, Any]) -> set[str]:
    found = {rule["rule"] for rule in schema.get(VALIDATIONS, ())}
    for below in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(below, dict):
            found |= all_rules(below)
    return found


def test_every_rule_of_the_crd_can_be_evaluated_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of Kubernetes that we lack would make a rule fail for everybody: on a right document none may."""
    schema = compiled_model_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    seen: dict[str, bool] = {}
    real = rules._holds

    def spy(rule: str, *rest: Any) -> bool:
        seen[rule] = real(rule, *rest)
        return seen[rule]

    monkeypatch.setattr(rules, "_holds", spy)
    constants = [{"const": {"type": t, "value": v}} for t, v in (("Int", "1"), ("Float", "1e-6"), ("Bool", "true"))]
    change = {
        "spec.torch.modules.0.buckets.0.args": [
            *example()["spec"]["torch"]["modules"][0]["buckets"][0]["args"],
            *constants,
        ],
        "spec.keepIf": {"minSpeedup": "1.1", "maxError": "1e-3", "maxMemoryGrowth": "1.2"},
        "spec.torch.options": [{"name": "triton.max_tiles", "value": "2"}],
        "spec.torch.arguments": [{"name": "size", "type": "Int", "value": "3"}],
        "spec.torch.modules.0.regions": ["blocks.*"],
        "spec.weights": {"s3": {"endpoint": "https://s3.example.org:9000", "bucket": "models"}},
    }
    read_document(yaml.safe_dump(changed(example(), change)), namespace=None)
    of_status = all_rules(schema["properties"]["status"])
    assert set(seen) == all_rules(schema) - of_status
    assert all(seen.values())


def test_a_duplicate_merge_key_is_no_duplicate_field() -> None:
    text = textwrap.dedent(
        """
        x: &x {a: 1}
        y: &y {b: 1}
        z:
          <<: *x
          <<: *y
        kind: Other
        """
    )
    assert "found: Other" in refused(text)
