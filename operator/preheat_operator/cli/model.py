"""Reading a CompiledModel, and changing its annotations, as its owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from preheat_operator.api.compiledmodel import CompiledModel
from preheat_operator.cli import exits
from preheat_operator.cli.errors import CommandError
from preheat_operator.cluster import resources
from preheat_operator.cluster.client import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MANAGER: Final = "preheat-cli"


async def read(namespace: str, name: str) -> CompiledModel:
    """The CompiledModel of this name. Raises CommandError when there is none, and ApiError."""
    async with connect() as api:
        return _parsed(await api.get(resources.compiled_models(namespace, name)), namespace, name)


async def annotate(
    namespace: str, name: str, decide: Callable[[CompiledModel], Mapping[str, str | None]]
) -> CompiledModel:
    """Set the annotations that `decide` answers (None: take it away); the model as it was. Raises as `read`.

    A model that was deleted and made again meanwhile is another one: the API server refuses the patch.
    """
    async with connect() as api:
        path = resources.compiled_models(namespace, name)
        model = _parsed(await api.get(path), namespace, name)
        annotations = dict(decide(model))
        body = {"metadata": {"uid": model.metadata.uid, "annotations": annotations}}
        await api.merge_patch(path, body, manager=_MANAGER)
        return model


def _parsed(raw: dict[str, object] | None, namespace: str, name: str) -> CompiledModel:
    if raw is None:
        raise CommandError(f"there is no CompiledModel {name} in namespace {namespace}", code=exits.MISSING)
    try:
        return CompiledModel.model_validate(raw)
    except ValidationError as error:
        raise CommandError(f"CompiledModel {name} is of another release: {error}", code=exits.INTERNAL) from None
