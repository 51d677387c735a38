"""The models: defaults, names on the wire, and their agreement with the CRDs."""

from __future__ import annotations

from typing import Any

import pydantic
import pytest
import yaml

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.crds import compiled_model_crd, compiled_model_index_crd
from preheat_operator.api.hardware import Hardware
from preheat_operator.api.spec import CompiledModelSpec, KeepIf

EXAMPLE = """
metadata: {name: vision, namespace: prod, uid: u, generation: 3, labels: {a: b}}
spec:
  workloadRef: {kind: StatefulSet, name: vision, container: server}
  torch:
    factory: vision.model:load
    modules:
    - name: main
      buckets:
      - name: batch
        dims: [{name: n, min: 2, max: 32, multipleOf: 2}]
        args: [{tensor: {shape: [n, 3], dtype: float32}}]
        kwargs: [{name: scale, const: {type: Float, value: "0.5"}}]
  hardware: [{name: cpu, nodeSelector: {a: b}, resources: {limits: {cpu: 2, memory: 1Gi}}}]
  field-of-a-later-release: 1
"""


def example() -> CompiledModel:
    return CompiledModel.model_validate(yaml.safe_load(EXAMPLE))


def test_defaults_of_the_spec() -> None:
    spec = example().spec.to_api()
    assert spec["keepIf"] == {"minSpeedup": "1.05"}
    assert spec["compile"] == {"timeoutSeconds": 3600, "serviceAccountToken": "None", "scheduleTimeoutSeconds": 300}
    assert spec["revisionHistoryLimit"] == 5
    assert spec["suspend"] == "Disabled"
    assert spec["serving"] == {"onMiss": "Compile", "onReject": "Eager", "verify": "After"}
    assert spec["hardware"][0]["cpuIsa"] == "X86_64_V3"
    assert spec["torch"]["modules"][0]["path"] == ""
    assert spec["workloadRef"]["apiVersion"] == "apps/v1"


def test_python_names_are_snake_case_and_the_wire_s_camel_case() -> None:
    model = example()
    assert model.spec.workload_ref is not None
    assert model.spec.torch.modules[0].buckets[0].dims[0].multiple_of == 2
    again = CompiledModel.model_validate(model.to_api())
    assert again == model
    assert KeepIf(min_speedup="2").to_api() == {"minSpeedup": "2"}


def test_objects_are_frozen_and_comparable() -> None:
    with pytest.raises(pydantic.ValidationError):
        example().spec.suspend = "Enabled"  # type: ignore[misc, assignment]
    assert example().spec == example().spec


def test_fields_of_other_releases_do_not_stop_the_controller() -> None:
    assert "field-of-a-later-release" not in example().spec.to_api()


def test_an_error_names_the_field() -> None:
    raw = yaml.safe_load(EXAMPLE)
    raw["spec"]["torch"]["modules"][0]["buckets"][0]["args"][0]["tensor"]["dtype"] = "complex64"
    with pytest.raises(pydantic.ValidationError) as caught:
        CompiledModel.model_validate(raw)
    assert caught.value.errors()[0]["loc"][-2:] == ("tensor", "dtype")


def _fields(schema: dict[str, Any], path: str = "") -> dict[str, dict[str, Any]]:
    found = {path: schema} if path else {}
    for name, child in schema.get("properties", {}).items():
        found |= _fields(child, f"{path}.{name}")
    if "items" in schema:
        found |= _fields(schema["items"], f"{path}[]")
    return found


SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in (compiled_model_crd(), compiled_model_index_crd())
}
FIELDS = {
    f"{kind}{path}": field
    for kind, schema in SCHEMAS.items()
    for path, field in _fields(schema).items()
    if path != ".metadata"
}


@pytest.mark.parametrize("path", [path for path in FIELDS if not path.endswith("[]")])
def test_every_field_says_what_it_is_and_its_default(path: str) -> None:
    field = FIELDS[path]
    description = field.get("description", "")
    assert description.endswith("."), description
    if "default" in field and ".spec" in path and field["default"] != "":
        assert "Default:" in description


@pytest.mark.parametrize("path", FIELDS)
def test_everything_is_bounded(path: str) -> None:
    """Unbounded lists and strings make rules unaffordable and objects too large for etcd."""
    field = FIELDS[path]
    if ".template" in path:
        return
    if field.get("type") == "array":
        assert "maxItems" in field
        assert "x-kubernetes-list-type" in field
    if field.get("type") == "string":
        assert "maxLength" in field or "enum" in field or field.get("format") == "date-time" or path.count(".") == 1


@pytest.mark.parametrize("path", FIELDS)
def test_conventions(path: str) -> None:
    field = FIELDS[path]
    assert field.get("type") not in ("boolean", "number"), (
        "enums instead of booleans, decimal strings instead of floats"
    )
    assert not {"On", "Off", "Yes", "No"} & set(field.get("enum", ())), "YAML would read them as booleans"
    for entry in field.get("x-kubernetes-validations", ()):
        assert entry["message"]


def test_lists_with_keys_do_not_default_their_keys() -> None:
    for path, field in FIELDS.items():
        for key in field.get("x-kubernetes-list-map-keys", ()):
            assert key in field["items"]["required"], path


def test_hardware_leaves_out_what_the_workload_decides() -> None:
    assert Hardware(name="cpu").to_api() == {"name": "cpu", "cpuIsa": "X86_64_V3"}
    assert CompiledModelSpec.model_fields["template"].default is None
