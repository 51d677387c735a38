"""The two kinds as whole objects, with the little of their metadata that Preheat reads."""

from datetime import datetime
from typing import Final, Literal

from pydantic import ConfigDict, Field

from preheat_operator.api import names
from preheat_operator.api.base import ApiModel, rule, rules
from preheat_operator.api.spec import CompiledModelSpec
from preheat_operator.api.status import CompiledModelStatus

# The name goes into labels of Jobs and pods, with a hash of eight after it: 63 - 1 - 8, and room to grow.
MAX_MODEL_NAME: Final = 52
# What etcd takes (1.5 MiB a request), less the rest of the object.
MAX_INDEX_CHARACTERS: Final = 1_000_000


class ObjectMeta(ApiModel):
    """The part of an object's metadata that decisions rest on."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    resource_version: str | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class CompiledModel(ApiModel):
    """A model that is compiled ahead of time for the inputs and the hardware it serves on."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"size(self.metadata.name) <= {MAX_MODEL_NAME}",
                f"metadata.name must have at most {MAX_MODEL_NAME} characters: it becomes part of label values",
            )
        )
    )

    api_version: Literal["preheat.dev/v1alpha1"] = "preheat.dev/v1alpha1"
    kind: Literal["CompiledModel"] = "CompiledModel"
    metadata: ObjectMeta
    spec: CompiledModelSpec = Field(description="What is compiled, for which inputs and hardware, and what is kept.")
    status: CompiledModelStatus = Field(
        default=CompiledModelStatus(), description="What the controller observed and did; written by it alone."
    )


class CompiledModelIndex(ApiModel):
    """What admission reads about a namespace's models; one per namespace, written by the controller only."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"self.metadata.name == '{names.INDEX_NAME}'",
                f"metadata.name must be '{names.INDEX_NAME}': admission reads the one index of a namespace by name",
            )
        )
    )

    api_version: Literal["preheat.dev/v1alpha1"] = "preheat.dev/v1alpha1"
    kind: Literal["CompiledModelIndex"] = "CompiledModelIndex"
    metadata: ObjectMeta
    models: str = Field(
        max_length=MAX_INDEX_CHARACTERS,
        json_schema_extra=rules(
            rule("self.startsWith('\\n') && self.endsWith('\\n')", "must begin and end with a newline")
        ),
        description="One line a model, then one line a ready image; begins and ends with a newline.",
    )
