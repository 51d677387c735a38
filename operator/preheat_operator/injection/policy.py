"""Renders the MutatingAdmissionPolicy: `python -m preheat_operator.injection.policy [--check]`.

The policy needs no server of Preheat's: while everything of Preheat is down, pods are admitted, and injected from
what is ready. It reads one object, the namespace's index, and pays by that object's size. All changes are JSON
patches: what is not added stays as it was, to the order of variables and to names that are set twice.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from preheat_operator.api import names
from preheat_operator.api.crds import write_or_check
from preheat_operator.api.index import WAIT_TIMEOUT_SECONDS
from preheat_operator.injection import additions, cel
from preheat_operator.injection.reading import ASKED
from preheat_operator.injection.reference import FAILS, MIRROR_ANNOTATION, WAITS
from preheat_operator.injection.refusals import REFUSALS

if TYPE_CHECKING:
    from preheat_operator.injection.settings import InjectionSettings

_LABELS: Final = "preheat.labels"


@dataclass(frozen=True, kw_only=True)
class PolicyValues:
    """CEL expressions for the settings, and names: concrete for one installation, or Helm's for the chart.

    Attributes:
        name: name of the policy and its binding.
        excluded_namespaces: namespaces without injection.
        cluster_id: CEL of the first part of the tenant.
        settings: CEL expression of each variable that is a setting, by its name.
    """

    name: str
    excluded_namespaces: tuple[str, ...]
    cluster_id: str
    settings: dict[str, str]


HELM_VALUES: Final = PolicyValues(
    name='{{ include "preheat.fullname" . }}-injection',
    excluded_namespaces=("kube-system", "{{ .Release.Namespace }}"),
    cluster_id='{{ include "preheat.clusterId" . | toJson }}',
    settings={
        "fetchImage": '{{ include "preheat.image" . | toJson }}',
        "pullPolicy": "{{ .Values.image.pullPolicy | toJson }}",
        "pullSecrets": '{{ include "preheat.pullSecretNames" . }}',
        "storeEndpoint": "{{ .Values.store.endpoint | toJson }}",
        "storeBucket": "{{ .Values.store.bucket | toJson }}",
        "storeRegion": "{{ .Values.store.region | toJson }}",
        "storeSecret": "{{ .Values.store.fetchSecret | toJson }}",
        "storeCaConfigMap": "[{{ with .Values.store.caConfigMap }}{{ toJson . }}{{ end }}]",
        "fetchTimeout": "{{ .Values.fetch.timeoutSeconds | toString | toJson }}",
        "runAsUser": '[{{ include "preheat.fetchUser" . }}]',
        "gating": "{{ .Values.server.enabled }}",
        "reportsUrl": '[{{ with include "preheat.reportsUrl" . }}{{ toJson . }}{{ end }}]',
        "reportsCa": '[{{ with include "preheat.reportsCa" . }}{{ toJson . }}{{ end }}]',
    },
)


def values_of(settings: InjectionSettings, *, name: str = "preheat-injection") -> PolicyValues:
    """The values for one installation, without Helm."""
    user = settings.run_as_user
    authority = settings.store_ca_config_map
    return PolicyValues(
        name=name,
        excluded_namespaces=settings.excluded_namespaces,
        cluster_id=cel.constant(settings.cluster_id),
        settings={
            "fetchImage": cel.constant(settings.image),
            "pullPolicy": cel.constant(settings.image_pull_policy),
            "pullSecrets": cel.constants(settings.image_pull_secrets),
            "storeEndpoint": cel.constant(settings.store_endpoint),
            "storeBucket": cel.constant(settings.store_bucket),
            "storeRegion": cel.constant(settings.store_region),
            "storeSecret": cel.constant(settings.store_secret),
            "storeCaConfigMap": cel.constants((authority,) if authority else ()),
            "fetchTimeout": cel.constant(str(settings.fetch_timeout_seconds)),
            "runAsUser": cel.constants(() if user is None else (user,)),
            "gating": cel.constant(settings.gating),
            "reportsUrl": cel.constants(tuple(filter(None, (settings.reports_url,)))),
            "reportsCa": cel.constants(tuple(filter(None, (settings.reports_ca,)))),
        },
    )


def documents(values: PolicyValues) -> tuple[dict[str, Any], dict[str, Any]]:
    """The policy and its binding."""
    group = "admissionregistration.k8s.io/v1"
    policy = {
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": values.name},
        "spec": {
            # A pod starts, whatever happens here.
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "IfNeeded",
            "paramKind": {"apiVersion": names.API_VERSION, "kind": names.COMPILED_MODEL_INDEX},
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
                "objectSelector": {
                    "matchExpressions": [
                        {"key": names.LABEL_MODEL, "operator": "Exists"},
                        {"key": names.LABEL_INJECT, "operator": "NotIn", "values": [names.INJECT_DISABLED]},
                    ]
                },
                "namespaceSelector": {
                    "matchExpressions": [
                        {
                            "key": "kubernetes.io/metadata.name",
                            "operator": "NotIn",
                            "values": list(values.excluded_namespaces),
                        }
                    ]
                },
            },
            "matchConditions": [
                {
                    "name": "not-a-mirror-pod",
                    "expression": f"!('{MIRROR_ANNOTATION}' in object.metadata.?annotations.orValue({{}}))",
                }
            ],
            "variables": [{"name": name, "expression": text} for name, text in variables(values).items()],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": mutation()}}],
        },
    }
    binding = {
        "apiVersion": group,
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": values.name},
        "spec": {
            "policyName": values.name,
            "paramRef": {"name": names.INDEX_NAME, "parameterNotFoundAction": "Allow"},
        },
    }
    return policy, binding


def variables(values: PolicyValues) -> dict[str, str]:
    """The policy's variables, by name: settings, and what `reading.Reading` reads, in the same words."""
    why = "''"
    for entry in reversed(REFUSALS):
        why = f"{entry.cel} ? {cel.words(entry.why)} :\n{why}"
    manifest = f"object.metadata.?annotations['{names.ANNOTATION_MANIFEST}'].orValue('')"
    return values.settings | {
        "storeCa": f'size(variables.storeCaConfigMap) == 1 ? "{names.STORE_CA_FILE}" : ""',
        "mayReport": "object.spec.?serviceAccountName.orValue('') != ''",
        "reports": "variables.mayReport ? variables.reportsUrl : []",
        "reportsAuthority": "variables.mayReport ? variables.reportsCa : []",
        "tenant": f'{values.cluster_id} + "." + request.namespace',
        "model": f"object.metadata.labels['{names.LABEL_MODEL}']",
        "known": "params.models.contains('\\n' + variables.model + ' ')",
        "head": "variables.known ? "
        "params.models.split('\\n' + variables.model + ' ', 2)[1].split('\\n', 2)[0].split(' ') : ['Cold', '0', '-']",
        "asked": f"object.metadata.?annotations['{names.ANNOTATION_CONTAINER}'].orValue('')",
        "container": "variables.asked != '' ? variables.asked : "
        "variables.head[2] == '-' ? object.spec.containers[0].name : variables.head[2]",
        "askedMissing": f"object.metadata.?annotations['{names.ANNOTATION_WHEN_MISSING}'].orValue('')",
        "missing": f"variables.askedMissing in {cel.constants(ASKED)} ? variables.askedMissing : variables.head[0]",
        "waitSeconds": f"variables.head[1] == '0' ? '{WAIT_TIMEOUT_SECONDS}' : variables.head[1]",
        "serving": "size(variables.head) > 3 && variables.head[3] != '-' ? [variables.head[3]] : []",
        "guess": "size(variables.head) > 4 ? variables.head[4] : '?'",
        "deployment": "size(variables.head) > 5 ? variables.head[5] : '-'",
        # A Deployment's ReplicaSets are named `<Deployment>-<hash>`.
        "ofDeployment": "object.metadata.?ownerReferences.orValue([]).exists(o, o.kind == 'ReplicaSet' && "
        "o.?controller.orValue(false) && o.name.startsWith(variables.deployment + '-') && "
        "o.name.lastIndexOf('-') == size(variables.deployment))",
        "position": "object.spec.containers.map(c, c.name).indexOf(variables.container)",
        "served": "object.spec.containers[variables.position < 0 ? 0 : variables.position]",
        "image": "variables.served.?image.orValue('')",
        "env": "variables.served.?env.orValue([])",
        "mark": "'\\n' + variables.model + '|' + variables.image + '='",
        "listed": "params.models.contains(variables.mark)",
        "line": "variables.listed ? params.models.split(variables.mark, 2)[1].split('\\n', 2)[0].split(' ')"
        f" : ['{names.MANIFEST_NONE}', '-']",
        "ready": f"variables.line[0] != '{names.MANIFEST_NONE}'",
        "already": "object.spec.?initContainers.orValue([]).exists(c, "
        f"c.name == '{names.CONTAINER_FETCH}' && c.?command.orValue([]) == {cel.constants(additions.FETCH_COMMAND)})",
        "keeps": f"variables.already && {manifest}.startsWith('sha256:') && "
        f"params.models.contains('=' + {manifest} + ' ')",
        "waits": "variables.gating && !variables.listed && !variables.keeps && "
        "(variables.missing == 'Wait' || variables.missing == 'Auto' && variables.ofDeployment)",
        "fails": "!variables.ready && !variables.keeps && variables.missing == 'Fail'",
        "pending": "variables.waits || variables.fails",
        "setsPythonPath": f"variables.env.exists(e, e.name == '{names.ENV_PYTHONPATH}')",
        "plainly": "variables.waits && variables.guess == '?' && !variables.setsPythonPath",
        "mustFetch": "variables.missing == 'Fail' ? ['Fail'] : []",
        "assumed": "variables.pending && !variables.setsPythonPath ? [variables.guess.replace('$(', '$$(')] : []",
        "path": "variables.pending ? variables.guess : variables.line[1]",
        # `$(` would refer to a variable of the container; `$$(` is how Kubernetes spells the two characters.
        "imagePath": "variables.path in ['-', '?'] ? '' : variables.path.replace('$(', '$$(')",
        "why": why,
        "holds": "variables.waits && variables.why == ''",
        "manifest": f"variables.keeps ? {manifest} : variables.why != '' ? '{names.MANIFEST_NONE}' : "
        f"variables.pending ? '{names.MANIFEST_PENDING}' : variables.line[0]",
        "injected": f"variables.keeps ? '{names.INJECTED_YES}' : "
        f"variables.why != '' ? '{names.INJECTED_NO_PREFIX}' + variables.why :\n"
        f"variables.waits ? {cel.words(WAITS)} :\nvariables.fails ? {cel.words(FAILS)} : '{names.INJECTED_YES}'",
        "pythonPathAt": f"variables.env.map(e, e.name).lastIndexOf('{names.ENV_PYTHONPATH}')",
        "ownPythonPath": "variables.pythonPathAt < 0 ? variables.imagePath : "
        "variables.env[variables.pythonPathAt].?value.orValue('')",
        "newPullSecrets": "variables.pullSecrets.filter(n, "
        "!object.spec.?imagePullSecrets.orValue([]).exists(s, s.?name.orValue('') == n))",
    }


def mutation() -> str:
    """CEL that lists the JSON patches of one pod."""
    at = "'/spec/containers/' + string(variables.position)"
    container = "Object.spec.containers"
    site = names.SITE_DIRECTORY
    path = f"variables.ownPythonPath == '' ? '{site}' : '{site}:' + variables.ownPythonPath"
    python_path = f"{container}.env{{name: '{names.ENV_PYTHONPATH}', value: {path}}}"
    python_path_at = "(variables.pythonPathAt < 0 ? '-' : string(variables.pythonPathAt))"
    set_python_path = (
        "JSONPatch{op: variables.pythonPathAt < 0 ? 'add' : 'replace', "
        f"path: {at} + '/env/' + {python_path_at}, value: {python_path}}}"
    )
    # Typed as it is in the pod it could not become JSON, so it is written out anew.
    kind = "Object.spec.initContainers.resources"
    resources = (
        f"{kind}{{?limits: variables.served.resources.?limits, ?requests: variables.served.resources.?requests, "
        f"claims: variables.served.resources.?claims.orValue([]).map(c, {kind}.claims{{name: c.name, ?request: c.?request}})}}"
    )
    fetch = cel.literal(additions.fetch_container(), type_name="Object.spec.initContainers")
    volumes = cel.literal(additions.volumes(), type_name="Object.spec.volumes")
    mounts = cel.literal(additions.served_mounts(), type_name=f"{container}.volumeMounts")
    env = cel.literal([*additions.served_env(), *additions.reports_env()], type_name=f"{container}.env")
    reference = "Object.spec.imagePullSecrets{name: n}"
    annotate = [
        _when("!has(object.metadata.annotations)", _add("'/metadata/annotations'", "{}")),
        f"[{_add(_annotation(names.ANNOTATION_MANIFEST), 'variables.manifest')}]",
        f"[{_add(_annotation(names.ANNOTATION_INJECTED), 'variables.injected')}]",
    ]
    gate = f"object.spec.?schedulingGates.orValue([]).exists(g, g.name == '{names.GATE}')"
    hold = [
        f"[{_add(_annotation(names.ANNOTATION_WAIT_SECONDS), 'variables.waitSeconds')}]",
        _when("!has(object.spec.schedulingGates)", _add("'/spec/schedulingGates'", "[]")),
        _when(
            f"!{gate}",
            _add(_quoted("/spec/schedulingGates/-"), f"Object.spec.schedulingGates{{name: '{names.GATE}'}}"),
        ),
    ]
    inject = [
        _when("!has(object.spec.initContainers)", _add("'/spec/initContainers'", "[]")),
        f"[{_add(_quoted('/spec/initContainers/0'), fetch)}]",
        _when("has(variables.served.resources)", _add("'/spec/initContainers/0/resources'", resources)),
        _when("!has(object.spec.volumes)", _add("'/spec/volumes'", "[]")),
        f"{volumes}.map(v, {_add(_quoted('/spec/volumes/-'), 'v')})",
        _when("!has(variables.served.volumeMounts)", _add(f"{at} + '/volumeMounts'", "[]")),
        f"{mounts}.map(m, {_add(at + _plus('/volumeMounts/-'), 'm')})",
        _when("!has(variables.served.env)", _add(f"{at} + '/env'", "[]")),
        f"[{set_python_path}]",
        f"{env}.filter(e, !variables.env.exists(x, x.name == e.name)).map(e, {_add(at + _plus('/env/-'), 'e')})",
        _when(
            "size(variables.newPullSecrets) > 0 && !has(object.spec.imagePullSecrets)",
            _add("'/spec/imagePullSecrets'", "[]"),
        ),
        f"variables.newPullSecrets.map(n, {_add(_quoted('/spec/imagePullSecrets/-'), reference)})",
    ]
    plus = " +\n"
    return (
        f"{plus.join(annotate)} +\n(!variables.holds ? [] :\n{plus.join(hold)}) +\n"
        f"(variables.why != '' || variables.already || variables.plainly ? [] :\n{plus.join(inject)})"
    )


def _add(path: str, value: str) -> str:
    return f"JSONPatch{{op: 'add', path: {path}, value: {value}}}"


def _when(condition: str, patch: str) -> str:
    return f"({condition} ? [{patch}] : [])"


def _quoted(text: str) -> str:
    return f"'{text}'"


def _plus(text: str) -> str:
    return f" + '{text}'"


def _annotation(name: str) -> str:
    return f"'/metadata/annotations/' + jsonpatch.escapeKey('{name}')"


class _Dumper(yaml.SafeDumper):
    """Writes expressions as literal blocks, so that quotes in them (and in what Helm puts there) need no escapes."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    expression = any(mark in text for mark in ("variables.", "object.", "params.", "{{"))
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if expression else None)


_Dumper.add_representer(str, _represent)


def template() -> str:
    """The chart's template."""
    head = "{{- /* Generated by `python -m preheat_operator.injection.policy`. Do not edit. */ -}}"
    texts = []
    for document in documents(HELM_VALUES):
        labelled = document | {"metadata": document["metadata"] | {"labels": _LABELS}}
        text = yaml.dump(labelled, Dumper=_Dumper, sort_keys=False, width=10_000)
        texts.append(
            text.replace(f"  labels: {_LABELS}\n", f'  labels:\n    {{{{- include "{_LABELS}" . | nindent 4 }}}}\n')
        )
    return f"{head}\n" + "---\n".join(texts)


def main(arguments: list[str] | None = None) -> int:
    """Write the template, or with `--check` fail when it differs."""
    parser = argparse.ArgumentParser(prog="python -m preheat_operator.injection.policy", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when the file differs")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository (default: here)")
    options = parser.parse_args(arguments)
    path = options.root / "charts" / "preheat" / "templates" / "injection-policy.yaml"
    return write_or_check({path: template()}, check=options.check, command=parser.prog)


if __name__ == "__main__":
    sys.exit(main())
