"""What a namespace's index says, from the status of its CompiledModels.

Per model one line, per image the revision that its pods are given. What cannot be said on a line is left out, and
what does not fit is dropped oldest first: a pod without a line starts as it is, a pod with a wrong line could break.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from preheat_operator.api import index as text
from preheat_operator.api import names
from preheat_operator.api.compiledmodel import MAX_INDEX_CHARACTERS
from preheat_operator.api.enums import Admission, RevisionState, WhenMissing, WorkloadKind
from preheat_operator.api.index import WAIT_TIMEOUT_SECONDS
from preheat_operator.plan.given import given
from preheat_runtime import policy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.spec import CompiledModelSpec


_WAITING = frozenset({Admission.AUTO, Admission.WAIT, Admission.FAIL})


@dataclass(frozen=True, kw_only=True)
class IndexText:
    """The text of an index, its image lines, and the models some of whose images did not fit in it."""

    models: str
    left_out: tuple[str, ...] = ()
    images: tuple[text.ImageEntry, ...] = ()


def index_text(*, models: Iterable[CompiledModel], paused: bool, limit: int = MAX_INDEX_CHARACTERS) -> IndexText:
    """The index of a namespace with these models; at most `limit` characters."""
    entries: list[text.ModelEntry] = []
    ranked: list[tuple[int, text.ImageEntry]] = []
    for model in models:
        entry = _entry(model, paused=paused)
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
    return IndexText(models=rendered, left_out=tuple(sorted(left_out)), images=tuple(fitting))


def _entry(model: CompiledModel, *, paused: bool) -> text.ModelEntry:
    reference = model.spec.workload_ref
    rule = Admission.PAUSED if paused else _rule(model)
    seconds = model.spec.rollout.wait_timeout_seconds
    waits = rule in _WAITING
    return text.ModelEntry(
        model=model.metadata.name,
        when_missing=rule,
        wait_seconds=seconds if waits or seconds != WAIT_TIMEOUT_SECONDS else 0,
        container=None if reference is None else reference.container,
        serving=serving_text(model.spec),
        waiting=_waiting(model) if waits else None,
    )


def _rule(model: CompiledModel) -> Admission:
    """What the model's pods do, as status has it: it was decided with the workload in sight."""
    decided = model.status.when_missing
    if decided is None:
        return Admission.COLD
    if model.spec.rollout.when_missing == WhenMissing.AUTO and decided == WhenMissing.WAIT:
        return Admission.AUTO
    return Admission(decided.value)


def _waiting(model: CompiledModel) -> text.Waiting:
    """The guess at the next image's PYTHONPATH: that of the newest ready one."""
    reference = model.spec.workload_ref
    # What is inside an image stays so, whatever became of what was compiled for it.
    known_of = (RevisionState.READY, RevisionState.TAKEN_BACK)
    newest = next((r for r in model.status.revisions if r.state in known_of), None)
    path = None if newest is None else newest.python_path
    known = newest is not None and text.unsayable_python_path(path) is None
    return text.Waiting(
        known=known,
        python_path=path if known else None,
        deployment=reference.name if reference is not None and reference.kind == WorkloadKind.DEPLOYMENT else None,
    )


def serving_text(spec: CompiledModelSpec) -> str | None:
    """`spec.serving` as pods are told it; None where all of it is as it is by default."""
    serving = spec.serving
    words = policy.Serving(
        on_miss=serving.on_miss.value, on_reject=serving.on_reject.value, verify=serving.verify.value
    )
    return words.text()


def _images(model: CompiledModel) -> list[text.ImageEntry]:
    """One entry an image; and for a wanted image of which nothing comes, the word that it does not."""
    result = {
        image: text.ImageEntry(
            model=model.metadata.name, image=image, manifest=revision.manifest, python_path=revision.python_path
        )
        for image, revision in given(model).items()
        if revision.manifest is not None
    }
    if model.status.revisions and _rule(model) in _WAITING:
        last = model.status.revisions[0]
        if last.state in (RevisionState.FAILED, RevisionState.TAKEN_BACK):
            nothing = text.ImageEntry(model=model.metadata.name, image=last.image, manifest=names.MANIFEST_NONE)
            result.setdefault(last.image, nothing)
    return list(result.values())


def _sayable(model: text.ModelEntry, images: tuple[text.ImageEntry, ...]) -> bool:
    try:
        text.render(text.Index(models=(model,), images=images))
    except text.IndexTextError:
        return False
    return True
