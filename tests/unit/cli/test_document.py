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


RIGHT = """\
apiVersion: preheat.dev/v1alpha1
kind: CompiledModel
metadata: {name: tiny}
spec:
  torch:
    factory: fac:load
    modules:
    - name: main
      buckets:
      - name: one
        args: [{tensor: {shape: [4, 64], dtype: float32}}]
  hardware: [{name: cpu}]
"""
SHAPE = "spec.torch.modules[0].buckets[0].args[0].tensor.shape[0]"
IN_TEMPLATE = "hardware: [{name: cpu}]\n  template: {spec: {containers: [%s]}}"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("name: tiny", "name: 2024-02-30", "line 3, column 18: not YAML: '2024-02-30' is taken for a value of type time"),
        ("name: tiny", "name: tiny, ? [a, b] : c", "line 3, column 26: not YAML: found unhashable key"),
        ("name: tiny", "name: tiny, ? {a: b} : c", "line 3, column 26: not YAML: found unhashable key"),
        ("{name: tiny}", "!!map foo", "line 3, column 11: not YAML: expected a mapping node"),
        ("[4, 64]", "[!!int foo, 64]", "line 11, column 34: not YAML: 'foo' is taken for a value of type int"),
        ("[4, 64]", "[!!float foo, 64]", "line 11, column 34: not YAML: 'foo' is taken for a value of type float"),
        ("[4, 64]", "[!!bool foo, 64]", "line 11, column 34: not YAML: 'foo' is taken for a value of type bool"),
        ("[4, 64]", "[!!timestamp foo, 64]", "not YAML: 'foo' is taken for a value of type timestamp"),
        ("[4, 64]", f"[{'1' * 5000}, 64]", "is taken for a value of type int and is none"),
        ("[4, 64]", f"[{'1' * 25}, 64]", f"{SHAPE}: must be a whole number from -9223372036854775808 to 9223372036854775807"),
        ("[4, 64]", "[10000000000000000000, 64]", f"{SHAPE}: must be a whole number from"),
        ("[4, 64]", "[.nan, 64]", f"{SHAPE}: must be a finite number, not nan"),
        ("{name: tiny}", "[" * 3000 + "]" * 3000, "is nested too deeply"),
        ("fac:load", '"fac\\ud800:load"', "spec.torch.factory: 'fac\\ud800:load' is no text"),
        ("fac:load", 'fac:load\n    "x\\ud800": 1', "spec.torch: a field's name: 'x\\ud800' is no text"),
        ("{name: tiny}", "&a {name: tiny, labels: *a}", "metadata.labels: is an alias of what it is a part of"),
        (
            "hardware: [{name: cpu}]", IN_TEMPLATE % "&a {name: a, image: b, x: *a}",
            "spec.template.spec.containers[0].x: is an alias of what it is a part of",
        ),
        (
            "hardware: [{name: cpu}]", IN_TEMPLATE % "{name: a, image: b, x: {2024-01-01: 1}}",
            "spec.template.spec.containers[0].x: a field's name must be text, not datetime.date(2024, 1, 1)",
        ),
        (
            "hardware: [{name: cpu}]", IN_TEMPLATE % f"{{name: a, image: b, x: {10**30}}}",
            "spec.template.spec.containers[0].x: must be a whole number from",
        ),
        ("name: one", "name: no", "buckets[0].name: must be of type string, not False: YAML takes yes, no, on, off"),
        ("name: one", "name: 1", 'buckets[0].name: must be of type string, not 1: put it in quotes, "1"'),
    ],
)  # fmt: skip
def test_what_yaml_can_say_and_json_cannot_is_refused_with_its_place(old: str, new: str, says: str) -> None:
    assert old in RIGHT
    read_document(RIGHT, namespace=None)
    said = refused(RIGHT.replace(old, new, 1))
    assert says in said
    assert len(said) < 400


def test_an_object_that_is_named_twice_is_not_part_of_itself() -> None:
    one = "- &one {name: one, args: [{tensor: {shape: [4, 64], dtype: float32}}]}\n      - {<<: *one, name: two}"
    text = RIGHT.replace("- name: one\n        args: [{tensor: {shape: [4, 64], dtype: float32}}]", one)
    assert [bucket.name for bucket in read_document(text, namespace=None).spec.torch.modules[0].buckets] == [
        "one",
        "two",
    ]


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
