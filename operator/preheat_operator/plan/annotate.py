"""Why a labelled pod was not injected, in words, on the pod itself.

Admission cannot say so when it had nothing to read: there is no index in the namespace, or none of this model in it.
Such pods start as they are; that this happened, and why, must not be a mystery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.enums import RevisionState
from preheat_operator.plan.watched import taken_back_words

if TYPE_CHECKING:
    from collections.abc import Mapping

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.plan.objects import PodView


def verdict(*, pod: PodView, models: Mapping[str, CompiledModel], paused: bool) -> str | None:
    """The value of `preheat.dev/injected` the pod should get; None when it has one, or needs none any more."""
    if names.ANNOTATION_INJECTED in pod.annotations or pod.deleting or pod.finished:
        return None
    return names.INJECTED_NO_PREFIX + _why(pod=pod, models=models, paused=paused)


def _why(*, pod: PodView, models: Mapping[str, CompiledModel], paused: bool) -> str:
    if pod.labels.get(names.LABEL_INJECT) == names.INJECT_DISABLED:
        return f"the pod's label {names.LABEL_INJECT} is {names.INJECT_DISABLED}"
    name = pod.labels.get(names.LABEL_MODEL, "")
    model = models.get(name)
    if model is None:
        return f"there is no CompiledModel {name!r} in this namespace"
    if paused:
        return "injection is paused in this namespace; see the condition Degraded of the CompiledModel"
    images = set(pod.images.values())
    ready = [r for r in model.status.revisions if r.state == RevisionState.READY and r.image in images]
    taken_back = [r for r in model.status.revisions if r.state == RevisionState.TAKEN_BACK and r.image in images]
    if taken_back and not ready:
        return taken_back_words(taken_back[0])
    if not ready:
        return f"CompiledModel {name!r} had nothing ready for this pod's image when the pod was made"
    return "the pod was made before the CompiledModel was in the namespace's index, or no admission policy looked at it"
