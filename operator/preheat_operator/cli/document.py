"""Reads a CompiledModel from YAML and refuses a wrong one with the field and the remedy, as `kubectl apply` would.

Checked are: YAML (also fields that are there twice), structure and types, bounds and words by the pydantic models,
and every CEL rule of the CRD. Not checked, because only a cluster can: a pod `template` beyond the names and images
of its containers, whether a `workloadRef` exists, and rights. Without a cluster neither of the two is needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import ValidationError

from preheat_operator.api import names
from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.api.crds import compiled_model_crd
from preheat_operator.cli.plain import not_plain
from preheat_operator.cli.rules import Problem, broken_rules, structural_problems
from preheat_operator.cli.stores import DEFAULT_NAMESPACE, is_namespace
from preheat_operator.store.keys import is_model_name

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCAL_UID: Final = "local"
"""Stands where a cluster's objects have a uid: without one, a name is all there is."""
_PLACEHOLDER: Final = {"spec": {"containers": [{"name": "local", "image": "local"}]}}


class DocumentError(Exception):
    """The YAML holds no right CompiledModel; every problem that was found, each with its field."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def read_document(text: str, *, namespace: str | None) -> CompiledModel:
    """Return the one CompiledModel in `text`. Raises DocumentError.

    `namespace` wins over that of the document; without either it is "default".
    """
    try:
        return _read(text, namespace)
    except RecursionError:
        raise DocumentError([Problem(field="", message="is nested too deeply")]) from None


def _read(text: str, namespace: str | None) -> CompiledModel:
    document = _the_one(_parsed(text))
    schema = compiled_model_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    # What only a cluster sets may be there (`kubectl get -o yaml`), and is of no interest here.
    document = {key: value for key, value in document.items() if key != "status"}
    _refuse(not_plain(document))
    _refuse([*_metadata_problems(document), *structural_problems(schema, document)])
    metadata = document["metadata"]
    document["metadata"] = {
        "name": metadata["name"],
        "namespace": namespace or metadata.get("namespace") or DEFAULT_NAMESPACE,
        "uid": LOCAL_UID,
    }
    try:
        model = CompiledModel.model_validate_json(json.dumps(document, default=str), strict=True)
    except ValidationError as error:
        raise DocumentError(_problems_of(error)) from None
    body = model.to_api()
    body.pop("status", None)
    if model.spec.workload_ref is None and model.spec.template is None:
        # Nothing is made from them here; the rule that asks for one of them must still refuse both.
        body["spec"]["template"] = _PLACEHOLDER
    _refuse(list(broken_rules(schema, body)))
    return model


def _refuse(problems: Sequence[Problem]) -> None:
    if problems:
        raise DocumentError(problems)


class _Loader(yaml.SafeLoader):
    """Refuses a field that is there twice, of which YAML would silently take the last, and says where a value is none."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        # What is no mapping, and a key that is no word, are refused below.
        keys = [key for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        for key in keys:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.MarkedYAMLError(
                    problem=f"the field {key.value!r} is there twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            # Of what a tag, written or guessed from the look of the value, cannot be made of: 2024-02-30, !!int foo.
            kind = node.tag.rpartition(":")[2]
            shown = f"{node.value!r:.60}" if isinstance(node, yaml.ScalarNode) else "this"
            raise yaml.MarkedYAMLError(
                problem=f"{shown} is taken for a value of type {kind} and is none: put it in quotes if it is text",
                problem_mark=node.start_mark,
            ) from None


def _parsed(text: str) -> list[Any]:
    try:
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise DocumentError([Problem(field=where, message=f"not YAML: {error.problem}")]) from None
    except yaml.YAMLError as error:
        raise DocumentError([Problem(field="", message=f"not YAML: {error}")]) from None


def _the_one(documents: list[Any]) -> dict[str, Any]:
    kinds = [document.get("kind") if isinstance(document, Mapping) else None for document in documents]
    found = [document for document, kind in zip(documents, kinds, strict=True) if kind == names.COMPILED_MODEL]
    if len(found) != 1:
        shown = ", ".join(str(kind) for kind in kinds) or "nothing"
        message = f"must hold one object of kind {names.COMPILED_MODEL}, there are {len(found)} (found: {shown})"
        raise DocumentError([Problem(field="", message=message)])
    return dict(found[0])


def _metadata_problems(document: Mapping[str, Any]) -> list[Problem]:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return [Problem(field="metadata", message="Required value: set metadata.name")]
    name, namespace = metadata.get("name"), metadata.get("namespace")
    problems = []
    if not isinstance(name, str) or not is_model_name(name):
        problems.append(
            Problem(field="metadata.name", message="must be lower-case letters, digits, '-' and '.': it names files")
        )
    if namespace is not None and not (isinstance(namespace, str) and is_namespace(namespace)):
        problems.append(
            Problem(field="metadata.namespace", message="must be lower-case letters, digits and '-', at most 63")
        )
    if document.get("apiVersion") != names.API_VERSION:
        problems.append(Problem(field="apiVersion", message=f"must be {names.API_VERSION}"))
    return problems


def _problems_of(error: ValidationError) -> list[Problem]:
    problems: dict[str, Problem] = {}
    errors = error.errors(include_url=False, include_input=False)
    for each in errors:
        if any(
            len(other["loc"]) > len(each["loc"]) and other["loc"][: len(each["loc"])] == each["loc"] for other in errors
        ):
            continue  # a list that is too short only because an item of it is wrong
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in each["loc"]).removeprefix(".")
        problems.setdefault(field, Problem(field=field, message=each["msg"]))
    return list(problems.values())
