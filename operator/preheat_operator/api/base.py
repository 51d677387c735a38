"""What every API model shares: frozen, camelCase on the wire, snake_case in Python.

Unknown fields are ignored, not refused: the API server has already checked what users wrote, and an object
stored by another release of Preheat must not make the controller fail.
"""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

VALIDATIONS: Final = "x-kubernetes-validations"
PRESERVE_UNKNOWN: Final = "x-kubernetes-preserve-unknown-fields"
UNCHECKED: Final = "x-preheat-unchecked"
INT_OR_STRING: Final = "x-kubernetes-int-or-string"


class ApiModel(BaseModel):
    """A frozen object of the API; validates and dumps by its camelCase names."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )

    def to_api(self) -> dict[str, Any]:
        """The object as the API server takes it: camelCase, defaults filled in, absent fields left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


def unchecked() -> dict[str, bool]:
    """Schema extension of a field below which no CEL is written, since an API server would not allow its cost.

    What holds there has to be checked by the model that has the field.
    """
    return {UNCHECKED: True}


def rule(expression: str, message: str, *, message_expression: str | None = None) -> dict[str, str]:
    """One CEL validation. `message` names the field and says the remedy; the API server prefixes the path.

    `message_expression` (CEL) replaces the message where it can name the culprit.
    """
    entry = {"rule": expression, "message": message}
    if message_expression is not None:
        entry["messageExpression"] = message_expression
    return entry


def list_map(*keys: str) -> dict[str, Any]:
    """Schema extension of a list whose items are identified by `keys`: duplicates are refused, appliers merge."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


def atomic_list() -> dict[str, Any]:
    """Schema extension of a list that is replaced as a whole."""
    return {"x-kubernetes-list-type": "atomic"}


def rules(*entries: dict[str, str]) -> dict[str, Any]:
    """Schema extension that carries CEL validations."""
    return {VALIDATIONS: list(entries)}
