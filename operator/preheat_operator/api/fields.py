"""Types of fields that several models share: names, identifiers, quantities."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from preheat_operator.api.base import INT_OR_STRING, rule, rules

# Regular expressions in the syntax that CEL (RE2) and Python share.
IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
DECIMAL: Final = "[0-9]+([.][0-9]+)?"
EXPONENT: Final = "([eE][-+]?[0-9]+)?"

_NAME_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "must be lower-case letters, digits and '-', beginning and ending with a letter or digit: "
    "it becomes a folder name and a label value",
)
_IDENTIFIER_RULE = rule(
    f"self.matches('^{IDENTIFIER}$')",
    "must be a Python identifier: letters, digits and '_', not beginning with a digit",
)

_CALLABLE_RULE = rule(
    f"self.matches('^{IDENTIFIER}([.]{IDENTIFIER})*:{IDENTIFIER}([.]{IDENTIFIER})*$')",
    "must be 'package.module:callable', such as 'vision.model:load'",
)

Name = Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=rules(_NAME_RULE))]
Callable_ = Annotated[str, Field(min_length=3, max_length=253, json_schema_extra=rules(_CALLABLE_RULE))]
Identifier = Annotated[str, Field(min_length=1, max_length=63, json_schema_extra=rules(_IDENTIFIER_RULE))]
DimName = Annotated[str, Field(min_length=1, max_length=32, json_schema_extra=rules(_IDENTIFIER_RULE))]
IntOrString = Annotated[int | str, WithJsonSchema({INT_OR_STRING: True})]
# Without a length the API server reckons with strings as long as a request, and refuses every rule that reads one.
Size = Annotated[int | str, WithJsonSchema({INT_OR_STRING: True, "maxLength": 32})]
_REGION_RULE = rule(
    "self.matches('^[A-Za-z0-9_*]+([.][A-Za-z0-9_*]+)*$')",
    "must be a dotted path with '*' for any name at one level, such as 'blocks.*' or 'encoder.layer.*.attention'",
)
Region = Annotated[str, Field(min_length=1, max_length=253, json_schema_extra=rules(_REGION_RULE))]
