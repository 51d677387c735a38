"""When an API server judges by the policies that it was given: it takes them up once a second, not at once.

Each look takes up all that its watches have brought (apiserver/pkg/admission/plugin/policy/generic/policy_source.go),
so whatever was applied before a pair of policies is in force when that pair is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from apiserver.fixtures import eventually

if TYPE_CHECKING:
    from apiserver.server import ApiServer

GROUP = "admissionregistration.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps?dryRun=All"


def settle(server: ApiServer) -> None:
    """Wait until every policy and binding applied so far is in force."""
    name = f"settle-{uuid4().hex[:8]}"
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    documents = _pair(name)
    server.apply(*documents)
    try:
        # The one refuses only what the other has marked, so a refusal says that both kinds were taken up.
        eventually(lambda: server.request("POST", CONFIG_MAPS, probe).status == 403, what="policies are in force")
    finally:
        server.delete(*reversed(documents))


def _pair(name: str) -> list[dict[str, Any]]:
    """A policy that marks the ConfigMap `name`, one that refuses it when it is marked, and then their bindings."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    common = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "the-probe", "expression": f"object.metadata.name == '{name}'"}],
    }
    mark = {"applyConfiguration": {"expression": "Object{data: {'marked': 'yes'}}"}, "patchType": "ApplyConfiguration"}
    specs: dict[str, dict[str, Any]] = {
        "MutatingAdmissionPolicy": {"reinvocationPolicy": "Never", "mutations": [mark]},
        "ValidatingAdmissionPolicy": {"validations": [{"expression": "!has(object.data)", "reason": "Forbidden"}]},
    }
    bindings: dict[str, dict[str, Any]] = {
        "MutatingAdmissionPolicyBinding": {},
        "ValidatingAdmissionPolicyBinding": {"validationActions": ["Deny"]},
    }
    return [
        {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in (
            *((kind, common | own) for kind, own in specs.items()),
            *((kind, {"policyName": name, **own}) for kind, own in bindings.items()),
        )
    ]
