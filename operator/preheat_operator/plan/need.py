"""The revision a model needs now, from everything that can ask for one; and what there is to say about a new one.

Spec, image, pod template and weights come from objects; which image a tag stands for, and whether torch or the machines
are others, comes from running pods; that a
person wants it built again comes from an annotation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.enums import Cause
from preheat_operator.plan import revision as revisions
from preheat_operator.plan.changed import environments
from preheat_operator.plan.conditions import Announcement
from preheat_operator.plan.decides import template_hash
from preheat_operator.plan.running import digest_of_image, running_digests
from preheat_operator.plan.termination import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import Revision
    from preheat_operator.plan.objects import PodView
    from preheat_operator.plan.revision import Wanted
    from preheat_operator.plan.watched import Witness
    from preheat_operator.plan.workload import Serving

_MAX_TOKEN = 63


def needed(
    *, model: CompiledModel, source: Serving, serving_pods: Sequence[PodView], seen: Sequence[Witness], weights: str
) -> Wanted:  # fmt: skip
    """The revision that is needed now. `serving_pods` are the labelled ones, `seen` what they say; `weights` their revision or empty."""
    made_from = revisions.Ingredients(
        spec_hash=revisions.spec_hash(model.spec), image=source.image, template_hash=template_hash(source),
        weights=weights,
    )  # fmt: skip
    running = running_digests(serving_pods, image=source.image, container=str(source.container.get("name", "")))
    return revisions.choose(
        model=model.metadata.name, made_from=made_from, running=running, previous=model.status.revisions,
        rebuild=rebuild_token(model), handled=model.status.rebuild or "",
        environments=environments(seen),
    )  # fmt: skip


def present(candidates: Sequence[Serving], revisions: Sequence[Revision]) -> Serving:
    """Of several templates that pods have at once, the one that counts; `candidates` has that of the newest pod first.

    One that was never seen counts at once. One that was seen before counts again only when no pod has the present one
    any more: else every pod that an old replica set makes in the middle of a roll-out would turn it round.
    """
    known = [(r.image, r.template_hash) for r in revisions]
    have = [(c.image, template_hash(c)) for c in candidates]
    if known and have[0] in known[1:] and known[0] in have:
        return candidates[have.index(known[0])]
    return candidates[0]


def rebuild_token(model: CompiledModel) -> str:
    """The token of the annotation that asks for a new revision, on one line and bounded; empty when there is none."""
    return plain(model.metadata.annotations.get(names.ANNOTATION_REBUILD), limit=_MAX_TOKEN)


def compiled_in(pods: Sequence[PodView], revision: str) -> str | None:
    """The digest of the image that a revision's compile pods run, None while none of them says."""
    for pod in sorted(pods, key=lambda p: (p.created_at, p.name)):
        if pod.labels.get(names.LABEL_REVISION) == revision:
            seen = digest_of_image(pod.image_ids.get(names.CONTAINER_COMPILE, ""))
            if seen is not None:
                return seen
    return None


def news(*, revision: Revision, previous: Sequence[Revision]) -> tuple[Announcement, ...]:
    """The Event that a change of the wanted revision is worth; none when it is the one that was wanted before."""
    last = previous[0] if previous else None
    if last is not None and last.name == revision.name:
        return ()
    if any(r.name == revision.name for r in previous):
        message = f"revision {revision.name} of image {revision.image} is wanted again"
        return (Announcement(warning=False, reason="Returned", message=message),)
    message = f"revision {revision.name} is needed: {_words(revision, last)}"
    return (Announcement(warning=False, reason=revision.cause, message=message),)


def _words(revision: Revision, last: Revision | None) -> str:
    was = "" if last is None else f", after {last.name}"
    words = {
        Cause.CREATED: f"the first one, of image {revision.image}",
        Cause.SPEC_CHANGED: f"spec.torch, spec.hardware or spec.keepIf changed{was}",
        Cause.IMAGE_CHANGED: f"the image is {revision.image}{was}",
        Cause.IMAGE_MOVED: f"pods of image {revision.image} run {revision.image_digest}{was}",
        Cause.TEMPLATE_CHANGED: f"what the serving container runs with changed (command, environment, mounts){was}",
        Cause.WEIGHTS_CHANGED: f"the weights are {revision.weights or 'no longer named'}{was}",
        Cause.TORCH_CHANGED: f"pods say that they run with {revision.environment}{was}",
        Cause.HARDWARE_CHANGED: f"pods say that they run on {revision.environment}{was}",
        Cause.FORMAT_CHANGED: f"this release of Preheat asks compile Jobs in another format{was}",
        Cause.REBUILD: f"the annotation {names.ANNOTATION_REBUILD} asks for it{was}",
    }
    return words[Cause(revision.cause)]
