"""What a namespace's index says, from the status of its CompiledModels.

Per model one line, per image the revision that its pods are given. What cannot be said on a line is left out, and
what does not fit is dropped oldest first: a pod without a line starts as it is, a pod with a wrong line could break.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api import index as text
from preheat_operator.api.compiledmodel import MAX_INDEX_CHARACTERS
from preheat_operator.api.enums import WhenMissing
from preheat_operator.plan.given import given
from preheat_runtime import policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.spec import CompiledModelSpec


@dataclass(frozen=True, kw_only=True)
class IndexText:
    """The text of an index, and the models some of whose images did not fit in it."""

    models: str
    left_out: tuple[str, ...] = ()


def index_text(*, models: Iterable[CompiledModel], paused: bool, limit: int = MAX_INDEX_CHARACTERS) -> IndexText:
    """The index of a namespace with these models; at most `limit` characters."""
    when_missing = WhenMissing.PAUSED if paused else WhenMissing.COLD
    entries: list[text.ModelEntry] = []
    ranked: list[tuple[int, text.ImageEntry]] = []
    for model in models:
        reference = model.spec.workload_ref
        entry = text.ModelEntry(
            model=model.metadata.name,
            when_missing=when_missing,
            container=None if reference is None else reference.container,
            serving=serving_text(model.spec),
        )
        if not _sayable(entry, ()):
            continue
        entries.append(entry)
        ranked += [(rank, image) for rank, image in enumerate(_images(model)) if _sayable(entry, (image,))]
    size = len(text.render(text.Index(models=tuple(entries))))
    fitting, left_out = [], set()
    for _, image in sorted(ranked):
        length = len(text.render(text.Index(models=(text.ModelEntry(model=image.model),), images=(image,)))) - len(
            text.render(text.Index(models=(text.ModelEntry(model=image.model),)))
        )
        if size + length > limit:
            left_out.add(image.model)
            continue
        size += length
        fitting.append(image)
    rendered = text.render(text.Index(models=tuple(entries), images=tuple(fitting)))
    return IndexText(models=rendered, left_out=tuple(sorted(left_out)))


def serving_text(spec: CompiledModelSpec) -> str | None:
    """`spec.serving` as pods are told it; None where all of it is as it is by default."""
    serving = spec.serving
    words = policy.Serving(
        on_miss=serving.on_miss.value, on_reject=serving.on_reject.value, verify=serving.verify.value
    )
    return words.text()


def _images(model: CompiledModel) -> list[text.ImageEntry]:
    """One entry an image."""
    return [
        text.ImageEntry(
            model=model.metadata.name, image=image, manifest=revision.manifest, python_path=revision.python_path
        )
        for image, revision in given(model).items()
        if revision.manifest is not None
    ]


def _sayable(model: text.ModelEntry, images: tuple[text.ImageEntry, ...]) -> bool:
    try:
        text.render(text.Index(models=(model,), images=images))
    except text.IndexTextError:
        return False
    return True
