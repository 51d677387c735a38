"""The real API server takes the generated CRDs, fills in the defaults the docs promise, and keeps the rules."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest

from apiserver.fixtures import example
from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.crds import compiled_model_crd, compiled_model_index_crd

if TYPE_CHECKING:
    from apiserver.server import ApiServer

pytestmark = pytest.mark.cluster

COLLECTION = "/apis/preheat.dev/v1alpha1/namespaces/default/compiledmodels"
DRY_RUN = f"{COLLECTION}?dryRun=All&fieldValidation=Strict"


def test_the_schemas_are_structural_and_their_rules_affordable(apiserver: ApiServer) -> None:
    for crd in (compiled_model_crd(), compiled_model_index_crd()):
        stored = apiserver.request(
            "GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        ).body
        state = {condition["type"]: condition["status"] for condition in stored["status"]["conditions"]}
        assert state["Established"] == "True"
        assert state.get("NonStructuralSchema", "False") == "False"
        assert stored["status"]["acceptedNames"]["shortNames"] == crd["spec"]["names"]["shortNames"]


def test_the_server_fills_in_the_same_defaults_as_the_models(apiserver: ApiServer) -> None:
    answer = apiserver.request("POST", DRY_RUN, example())
    assert answer.ok, answer.message
    from_python = CompiledModel.model_validate({**example(), "status": {}}).to_api()["spec"]
    assert answer.body["spec"] == from_python


def test_a_model_survives_the_way_through_the_server(apiserver: ApiServer) -> None:
    answer = apiserver.request("POST", DRY_RUN, example())
    model = CompiledModel.model_validate(answer.body)
    assert model.spec.torch.modules[0].buckets[0].args[0].tensor is not None
    assert model.spec.torch.modules[0].buckets[0].args[0].tensor.shape == ("batch", 3, 224, 224)
    again = apiserver.request("POST", DRY_RUN, example() | {"spec": model.spec.to_api()})
    assert again.body["spec"] == answer.body["spec"]


def test_a_template_keeps_fields_that_preheat_does_not_know(apiserver: ApiServer) -> None:
    document = example()
    del document["spec"]["workloadRef"]
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "server", "image": "r/x:1", "resources": {"limits": {"cpu": "1"}}}],
            "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }
    document["spec"]["template"] = template
    answer = apiserver.request("POST", DRY_RUN, document)
    assert answer.ok, answer.message
    assert answer.body["spec"]["template"] == template


def test_the_largest_allowed_model_is_within_the_cost_limit(apiserver: ApiServer) -> None:
    """What the schema allows the server must also afford: the rules are evaluated on an object at every bound."""
    document = example()
    arg = {"tensor": {"shape": [f"{'d' * 31}{number}" for number in range(6)] + [1, 1], "dtype": "float32"}}
    bucket: dict[str, Any] = {
        "dims": [{"name": f"{'d' * 31}{number}", "min": 2, "max": 4096} for number in range(6)],
        "args": [arg] * 16,
        "kwargs": [{"name": f"k{number}", **arg} for number in range(16)],
    }
    document["spec"]["torch"]["modules"] = [
        {"name": f"m{m}", "path": f"part{m}", "buckets": [{"name": f"b{b}", **bucket} for b in range(2)]}
        for m in range(8)
    ]
    document["spec"]["hardware"] = [{"name": f"h{h}"} for h in range(8)]
    answer = apiserver.request("POST", DRY_RUN, document)
    assert answer.ok, answer.message


def test_status_is_a_subresource(apiserver: ApiServer) -> None:
    apiserver.namespace("status-test")
    path = "/apis/preheat.dev/v1alpha1/namespaces/status-test/compiledmodels"
    document = example() | {"metadata": {"name": "vision", "namespace": "status-test"}, "status": {"kept": "9/9"}}
    created = apiserver.request("POST", path, document)
    assert created.ok, created.message
    assert "status" not in created.body
    written = apiserver.request("PATCH", f"{path}/vision/status", {"status": {"kept": "1/1", "observedGeneration": 1}})
    assert written.ok, written.message
    assert written.body["status"]["kept"] == "1/1"
    assert written.body["metadata"]["generation"] == 1
    changed = apiserver.request("PATCH", f"{path}/vision", {"spec": {"revisionHistoryLimit": 7}})
    assert changed.body["metadata"]["generation"] == 2
    assert changed.body["status"]["kept"] == "1/1"


def test_printer_columns(apiserver: ApiServer) -> None:
    columns = compiled_model_crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Ready", "Revision", "Kept", "Age"]
    assert [column["name"] for column in columns if column.get("priority")] == ["Reason", "Image"]


@pytest.mark.parametrize("models", ["", "vision Cold 0 -", "\nvision Cold 0 -"])
def test_an_index_begins_and_ends_with_a_newline(apiserver: ApiServer, models: str) -> None:
    document = {"apiVersion": "preheat.dev/v1alpha1", "kind": "CompiledModelIndex", "metadata": {"name": "preheat"}}
    path = "/apis/preheat.dev/v1alpha1/namespaces/default/compiledmodelindices?dryRun=All"
    refused = apiserver.request("POST", path, document | {"models": models})
    assert not refused.ok
    assert "models" in refused.message
    assert "newline" in refused.message
    assert apiserver.request("POST", path, document | {"models": f"\n{models.strip()}\n"}).ok


def test_a_namespace_has_one_index(apiserver: ApiServer) -> None:
    path = "/apis/preheat.dev/v1alpha1/namespaces/default/compiledmodelindices?dryRun=All"
    document = {
        "apiVersion": "preheat.dev/v1alpha1", "kind": "CompiledModelIndex", "metadata": {"name": "other"}, "models": "\n\n",
    }  # fmt: skip
    refused = apiserver.request("POST", path, document)
    assert not refused.ok
    assert "metadata.name must be 'preheat'" in refused.message


def test_an_update_may_keep_what_a_later_rule_would_refuse(apiserver: ApiServer) -> None:
    """Ratcheting: an unchanged field never blocks an unrelated change."""
    document = copy.deepcopy(example())
    document["metadata"]["namespace"] = apiserver.namespace("ratchet-test")
    path = "/apis/preheat.dev/v1alpha1/namespaces/ratchet-test/compiledmodels"
    assert apiserver.request("POST", path, document).ok
    assert apiserver.request("PATCH", f"{path}/vision", {"metadata": {"labels": {"a": "b"}}}).ok
