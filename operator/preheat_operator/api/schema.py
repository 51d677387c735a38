"""From a pydantic model to the structural schema of a CRD.

JSON Schema as pydantic writes it is not what an API server takes: it refuses `$ref`, `anyOf` with null, `const`,
numeric exclusive bounds and `default: null`, and drops nothing silently. What has no translation is an error here,
so a model can never be rendered into a schema that means something else.
"""

from __future__ import annotations

from typing import Any, Final

from preheat_operator.api.base import INT_OR_STRING, UNCHECKED, VALIDATIONS, ApiModel

# Keys that pass through as they are.
_COPIED: Final = frozenset(
    {
        "type", "format", "description", "default", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength",
        "minItems", "maxItems", "minProperties", "maxProperties", "required", "multipleOf",
    }
)  # fmt: skip
_TRANSLATED: Final = frozenset({"$ref", "anyOf", "const", "properties", "items", "additionalProperties", "title"})


class SchemaError(ValueError):
    """A model uses something that a structural schema cannot say."""


def structural(model: type[ApiModel]) -> dict[str, Any]:
    """The structural schema of a model, as in a CRD's `openAPIV3Schema`.

    Raises:
        SchemaError: something of the model has no translation; the message names the place.
    """
    whole = model.model_json_schema(by_alias=True, mode="validation")
    definitions = whole.pop("$defs", {})
    result = _convert(whole, definitions, model.__name__)
    if not isinstance(result, dict):
        raise SchemaError(f"{model.__name__} is not an object")
    return result


def _convert(node: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    node = _inlined(node, definitions, path)
    checked = not node.pop(UNCHECKED, False)
    if node.get("default", ...) is None:
        del node["default"]
    if isinstance(node.get("default"), dict):
        # The fields' own defaults fill it in; written out here they could come to differ.
        node["default"] = {}
    if INT_OR_STRING in node:
        return {key: value for key, value in node.items() if key in _COPIED or key.startswith("x-kubernetes-")}
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in _COPIED or key.startswith("x-kubernetes-"):
            result[key] = value
        elif key not in _TRANSLATED:
            raise SchemaError(f"{path}: a structural schema cannot say {key}: {value!r}")
    if "const" in node:
        result["enum"] = [node["const"]]
    if "properties" in node:
        result["properties"] = {
            name: _convert(child, definitions, f"{path}.{name}") for name, child in node["properties"].items()
        }
    if "items" in node:
        items = _convert(node["items"], definitions, f"{path}[]")
        result["items"] = items if checked else _without_rules(items)
    extra = node.get("additionalProperties")
    if isinstance(extra, dict):
        result["additionalProperties"] = _convert(extra, definitions, f"{path}.*")
    if "type" not in result:
        raise SchemaError(f"{path}: has no type")
    return result


def _without_rules(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_rules(value) for key, value in node.items() if key != VALIDATIONS}
    return [_without_rules(value) for value in node] if isinstance(node, list) else node


def _inlined(node: dict[str, Any], definitions: dict[str, Any], path: str) -> dict[str, Any]:
    """The node with references resolved and `X or null` read as an optional X; what the node says itself wins."""
    own = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "title")}
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        return _inlined(target, definitions, path) | own
    if "anyOf" in node:
        choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        if len(choices) != 1:
            raise SchemaError(f"{path}: a structural schema cannot say one of {len(choices)} types")
        return _inlined(choices[0], definitions, path) | own
    return own
