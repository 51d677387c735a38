"""Plans for a CompiledModel of which nothing can be compiled now: no workload, no pod to learn from, no word of its weights.

What is recorded stays as it is, and what pods say is heard as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import RevisionState, WhenMissing
from preheat_operator.api.index import unsayable_python_path
from preheat_operator.plan import rollout
from preheat_operator.plan.conditions import Standing
from preheat_operator.plan.given import held_back, pin
from preheat_operator.plan.heard import listen
from preheat_operator.plan.observed import ModelPlan
from preheat_operator.plan.profile import Note
from preheat_operator.plan.status import assemble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from preheat_operator.api.status import Revision
    from preheat_operator.plan.heard import Heard
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.observed import Observed
    from preheat_operator.plan.workload import NotServing


def nothing_to_compile_from(observed: Observed, installation: Installation, source: NotServing) -> ModelPlan:
    """The workload is not there, or has no container that serves."""
    standing = Standing(
        revision=None,
        blockers=(Note(reason=source.reason, message=source.message),),
        withholding=withholding(observed, None),
    )
    # Jobs go on: a workload that is deleted and made again within seconds must not cost a compilation.
    return _as_it_is(observed, installation, standing, _listened(observed), release=True)


def waiting_for_pods(observed: Observed, installation: Installation) -> ModelPlan:
    """No pod is there to learn from: what was learned before stays as it is."""
    model = observed.model
    reference = model.spec.workload_ref
    what = "the workload" if reference is None else f"{reference.kind} {reference.name!r}"
    message = f"no pod of {what} with the label {names.LABEL_MODEL}: {model.metadata.name} is there to learn from"
    heard = _listened(observed)
    revision = next(iter(heard.revisions), None)
    note = Note(reason=ConditionReason.WAITING_FOR_POD, message=message, needs_person=False)
    standing = Standing(
        revision=revision, targets=model.status.targets, notes=(note,), withholding=withholding(observed, revision),
        settled=True, pinned=None if revision is None else held_back(heard.revisions, revision, name=pin(model)),
    )  # fmt: skip
    return _as_it_is(observed, installation, standing, heard, release=True)


def waiting_for_weights(observed: Observed, installation: Installation) -> ModelPlan:
    """The first revision waits for the first look: a few seconds now, or a compile twice."""
    note = Note(
        reason=ConditionReason.LOOKING_UP_WEIGHTS, message="looking which weights there are", needs_person=False
    )
    standing = Standing(revision=None, notes=(note,), withholding=withholding(observed, None))
    return _as_it_is(observed, installation, standing, _listened(observed), release=False)


def _listened(observed: Observed) -> Heard:
    return listen(observed, observed.model.status.revisions, observed.model.status.targets)


def _as_it_is(
    observed: Observed, installation: Installation, standing: Standing, heard: Heard, *, release: bool
) -> ModelPlan:
    """The recorded revisions stay; with `release`, pods that are going are let go, since nobody will read them."""
    model = observed.model
    status, announcements = assemble(
        model=model, revisions=heard.revisions, targets=model.status.targets, standing=standing, heard=heard,
        when_missing=when_missing(observed, installation, heard.revisions), now=observed.now,
    )  # fmt: skip
    gone = tuple(p for p in observed.pods if p.holds_result and p.deleting and p.finished) if release else ()
    return ModelPlan(status=status, release=gone, announcements=announcements)


def when_missing(observed: Observed, installation: Installation, history: Sequence[Revision]) -> WhenMissing:
    """What pods do now whose image has no ready revision."""
    return rollout.when_missing(
        spec=observed.model.spec, workload=observed.workload, gating=installation.gating,
        had_ready=any(r.state in (RevisionState.READY, RevisionState.TAKEN_BACK) for r in history),
    )  # fmt: skip


def withholding(observed: Observed, revision: Revision | None) -> tuple[Note, ...]:
    """Why pods are not given what is ready."""
    notes = []
    pause = observed.notes.pause
    if pause is not None:
        message = (
            f"injection is paused in this namespace since {pause.since.isoformat()}: {pause.why}. It resumes when "
            f"Preheat's image is no longer {pause.image!r}, or at {pause.until.isoformat()}"
        )
        notes.append(Note(reason=ConditionReason.INJECTION_PAUSED, message=message))
    if observed.model.metadata.name in observed.notes.left_out:
        message = "some images do not fit in the namespace's index: lower spec.revisionHistoryLimit"
        notes.append(Note(reason=ConditionReason.INDEX_FULL, message=message))
    if revision is not None and revision.state == RevisionState.READY:
        why = unsayable_python_path(revision.python_path)
        if why is not None:
            message = (
                f"PYTHONPATH inside image {revision.image} cannot be kept ({why}), so its pods are not injected: "
                "change it in the image"
            )
            notes.append(Note(reason=ConditionReason.IMAGE_PYTHON_PATH_UNSUPPORTED, message=message))
    return tuple(notes)
