"""The whole decision about one CompiledModel: what was observed in, what to do out.

Reads top to bottom like the list of what the controller does for a model; each policy is in its own module. Planning
on the outcome of a plan yields nothing more to do, and planning twice on the same observation yields the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason, ConditionType
from preheat_operator.api.enums import HardwareState, RevisionState, Suspend
from preheat_operator.plan import jobs as job_policy
from preheat_operator.plan import revision as revisions
from preheat_operator.plan import rollout
from preheat_operator.plan.conditions import Standing
from preheat_operator.plan.given import held_back, pin, pin_not_found
from preheat_operator.plan.heard import listen
from preheat_operator.plan.idle import (
    nothing_to_compile_from,
    waiting_for_pods,
    waiting_for_weights,
    when_missing,
    withholding,
)
from preheat_operator.plan.learned import is_read
from preheat_operator.plan.merge import Joined, join
from preheat_operator.plan.need import compiled_in, needed, news, present, rebuild_token
from preheat_operator.plan.objects import JobState, JobView, PodView
from preheat_operator.plan.observed import ModelPlan, Observed
from preheat_operator.plan.ownership import Belongings, sort_out
from preheat_operator.plan.profile import Note, Step, step
from preheat_operator.plan.status import assemble
from preheat_operator.plan.termination import TargetName
from preheat_operator.plan.watched import taken_back_words
from preheat_operator.plan.weights import LOOKUP, Looked, is_look, look
from preheat_operator.plan.workload import NotServing, Serving, serving

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.compiledmodel import CompiledModel
    from preheat_operator.api.status import Revision, Target
    from preheat_operator.plan.installation import Installation
    from preheat_operator.plan.revision import Wanted

# A refusal by the API server can end without the model changing (a quota, a policy), so it is tried again.
_REFUSED_AGAIN_SECONDS = 120.0


def plan_model(observed: Observed, installation: Installation) -> ModelPlan:
    """What to do for one CompiledModel now."""
    plan = _plan_model(observed, installation)
    return replace(plan, release=(*plan.release, *_of_namesakes(observed, plan.release)))


def _of_namesakes(observed: Observed, releasing: Sequence[PodView]) -> tuple[PodView, ...]:
    """Pods that are going and were made for an earlier model of this name, which was made anew before it was seen gone.

    Only such that are going: the model may just have been made anew again, and what runs is then the newer one's.
    """
    uid, known = observed.model.metadata.uid, {pod.uid for pod in releasing}
    return tuple(
        pod for pod in observed.pods
        if pod.holds_result and pod.deleting and pod.uid not in known
        and pod.labels.get(names.LABEL_COMPILED_MODEL_UID) != uid
    )  # fmt: skip


def _plan_model(observed: Observed, installation: Installation) -> ModelPlan:
    model = observed.model
    if model.metadata.deletion_timestamp is not None:
        return plan_gone(uid=model.metadata.uid, jobs=observed.jobs, pods=observed.pods)
    source = _source(observed)
    if source is None:
        return waiting_for_pods(observed, installation)
    if isinstance(source, NotServing):
        return nothing_to_compile_from(observed, installation, source)
    not_ours = dict.fromkeys(observed.taken, "a Job of its name is not Preheat's, delete it")
    looked = look(
        model=model, source=source, installation=installation, refused=not_ours | dict(observed.refused), now=observed.now,
        jobs=[j for j in observed.jobs if j.hardware == LOOKUP], pods=[p for p in observed.pods if is_look(p.labels)],
    )  # fmt: skip
    observed = replace(
        observed,
        jobs=[j for j in observed.jobs if j.hardware != LOOKUP],
        pods=[p for p in observed.pods if not is_look(p.labels)],
    )
    plan = (
        waiting_for_weights(observed, installation)
        if looked.revision is None
        else _plan_revision(observed, installation, source, weights=looked.revision, overlays=looked.notes)
    )
    return _with_look(plan, looked, observed.now)


def _plan_revision(
    observed: Observed, installation: Installation, source: Serving, *, weights: str, overlays: Sequence[Note]
) -> ModelPlan:
    """What to do for the revision that is needed now."""
    model = observed.model
    want = needed(
        model=model, source=source, serving_pods=observed.serving_pods, seen=observed.witnesses, weights=weights
    )
    current = revisions.begin(want=want, previous=model.status.revisions, now=observed.now)
    if current.image_digest is None and (seen := compiled_in(observed.pods, want.name)) is not None:
        current = current.model_copy(update={"image_digest": seen})
    source = replace(source, digest=current.image_digest)
    recorded = _recorded_targets(model, want)
    belongings = sort_out(
        model=model, want=want, jobs=observed.jobs, pods=observed.pods, taken=observed.taken,
        troubles=observed.troubles,
    )  # fmt: skip
    if current.state in (RevisionState.READY, RevisionState.TAKEN_BACK):
        return _conclude(
            observed=observed, installation=installation, belongings=belongings, revision=current, targets=recorded,
            work=_Work(), settled=False, overlays=overlays,
        )  # fmt: skip
    work = _compile(
        observed=observed, installation=installation, source=source, want=want, current=current, recorded=recorded,
        belongings=belongings,
    )  # fmt: skip
    revision = current.model_copy(
        update={
            "state": work.joined.state,
            "manifest": work.joined.manifest,
            "python_path": work.python_path if work.has_python_path else current.python_path,
            "hardware": tuple(s.entry for s in work.steps),
            "finished": _finished(current, work.joined.state, observed.now),
        }
    )
    return _conclude(
        observed=observed, installation=installation, belongings=belongings, revision=revision,
        targets=tuple(t for s in work.steps for t in s.targets), work=work,
        settled=current.state == RevisionState.FAILED, overlays=overlays,
    )  # fmt: skip


def _with_look(plan: ModelPlan, looked: Looked, now: datetime) -> ModelPlan:
    """The plan, and what is to be done about a look at weights."""
    times = [plan.look_again_seconds]
    if looked.look_again_at is not None:
        times.append(max(0.0, (looked.look_again_at - now).total_seconds()))
    status = plan.status
    return replace(
        plan,
        create=plan.create if looked.create is None else (*plan.create, looked.create),
        status=None if status is None else status.model_copy(update={"weights": looked.record}),
        stop=(*plan.stop, *looked.stop),
        release=(*plan.release, *looked.release),
        look_again_seconds=min((t for t in times if t is not None), default=None),
    )


def _source(observed: Observed) -> Serving | NotServing | None:
    """What serves the model; None while there is no pod that its template could be learned from."""
    model = observed.model
    if model.spec.workload_ref is None or is_read(model.spec.workload_ref):
        return serving(spec=model.spec, workload=observed.workload)
    candidates = [serving(spec=model.spec, workload=workload) for workload in observed.learned]
    fitting = [c for c in candidates if isinstance(c, Serving)]
    if not fitting:
        return candidates[0] if candidates else None
    return present(fitting, model.status.revisions)


def plan_gone(*, uid: str, jobs: Sequence[JobView], pods: Sequence[PodView]) -> ModelPlan:
    """What to do when a CompiledModel is gone or going: stop what it started, let go of what was held for it."""
    return ModelPlan(
        stop=tuple(j for j in jobs if j.owner_uid == uid and not j.deleting),
        release=tuple(p for p in pods if p.holds_result and p.labels.get(names.LABEL_COMPILED_MODEL_UID) == uid),
    )


@dataclass(frozen=True, kw_only=True)
class _Work:
    """The outcome of looking at every profile of a revision that is not ready yet."""

    steps: tuple[Step, ...] = ()
    joined: Joined = field(default_factory=lambda: Joined(state=RevisionState.READY))
    create: tuple[dict[str, Any], ...] = ()
    check: tuple[dict[str, Any], ...] = ()
    refusals: tuple[str, ...] = ()

    @property
    def has_python_path(self) -> bool:
        return any(s.has_python_path for s in self.steps)

    @property
    def python_path(self) -> str | None:
        return next(s.python_path for s in self.steps if s.has_python_path)


def _compile(
    *, observed: Observed, installation: Installation, source: Serving, want: Wanted, current: Revision,
    recorded: Sequence[Target], belongings: Belongings,
) -> _Work:  # fmt: skip
    model = observed.model
    suspended = model.spec.suspend == Suspend.ENABLED
    timeout = model.spec.compile.schedule_timeout_seconds
    wanted_targets = [TargetName(module=m.name, bucket=b.name) for m in model.spec.torch.modules for b in m.buckets]
    entries = {h.name: h for h in current.hardware}
    create: list[dict[str, Any]] = []
    check: list[dict[str, Any]] = []
    refusals: list[str] = []
    steps: list[Step] = []
    for hardware in model.spec.hardware:
        # A part of a revision that goes on compiling is final; only a revision that failed as a whole is begun again.
        template_hash = ""
        if current.state == RevisionState.FAILED:
            template_hash = job_policy.template_hash(
                model=model, hardware=hardware, serving=source, installation=installation
            )
        taken_step = step(
            name=hardware.name, targets=wanted_targets, recorded=entries.get(hardware.name),
            verdicts=[t for t in recorded if t.hardware == hardware.name],
            seen=belongings.of(hardware.name), template_hash=template_hash, suspended=suspended,
            schedule_timeout_seconds=timeout, now=observed.now,
        )  # fmt: skip
        if taken_step.create is not None:
            key = job_policy.JobKey(
                uid=model.metadata.uid, want=want, hardware=hardware.name, attempt=taken_step.create.attempt
            )
            job = job_policy.compile_job(
                model=model, key=key, hardware=hardware, serving=source, installation=installation,
                targets=taken_step.create.targets, recover_job=taken_step.create.recover_job,
            )  # fmt: skip
            refusal = observed.refused.get(job["metadata"]["name"])
            if refusal is not None:
                refusals.append(refusal)
                taken_step = _refused(taken_step)
            else:
                (check if taken_step.held else create).append(job)
        steps.append(taken_step)
    joined = join(
        entries=[s.entry for s in steps], seen=belongings.of(job_policy.MERGE), suspended=suspended,
        schedule_timeout_seconds=timeout, now=observed.now,
    )  # fmt: skip
    if joined.create is not None:
        key = job_policy.JobKey(
            uid=model.metadata.uid, want=want, hardware=job_policy.MERGE, attempt=joined.create.attempt
        )
        job = job_policy.merge_job(
            model=model, key=key, serving=source, installation=installation, parts=joined.create.parts,
            recover_job=joined.create.recover_job,
        )  # fmt: skip
        refusal = observed.refused.get(job["metadata"]["name"])
        if refusal is None:
            create.append(job)
        else:
            refusals.append(refusal)
    return _Work(steps=tuple(steps), joined=joined, create=tuple(create), check=tuple(check), refusals=tuple(refusals))


def _finished(current: Revision, state: RevisionState, now: datetime) -> datetime | None:
    """When the revision came to its end: what it was, until it is begun again."""
    if state not in (RevisionState.READY, RevisionState.FAILED):
        return None
    return current.finished or now


def _refused(taken_step: Step) -> Step:
    entry = taken_step.entry.model_copy(update={"state": HardwareState.PENDING})
    return Step(entry=entry, targets=taken_step.targets, notes=taken_step.notes)


def _conclude(
    *, observed: Observed, installation: Installation, belongings: Belongings, revision: Revision,
    targets: Sequence[Target], work: _Work, settled: bool, overlays: Sequence[Note] = (),
) -> ModelPlan:  # fmt: skip
    """Conditions, status and clearing up, once it is known where the wanted revision stands."""
    model = observed.model
    history = revisions.history(
        current=revision, previous=model.status.revisions, limit=model.spec.revision_history_limit, keep=pin(model)
    )
    heard = listen(observed, history, targets)
    history, revision = heard.revisions, heard.revisions[0]
    under_way = revision.state in (RevisionState.PENDING, RevisionState.COMPILING)
    again = rollout.restart(
        spec=model.spec, revision=revision, previous=model.status.revisions, workload=observed.workload,
        now=observed.now,
    )  # fmt: skip
    revision = revision.model_copy(update={"restart": again})
    history = (revision, *history[1:])
    waits = rollout.notes(spec=model.spec, workload=observed.workload, gating=installation.gating)
    standing = Standing(
        revision=revision,
        targets=targets,
        suspended=under_way and model.spec.suspend == Suspend.ENABLED,
        notes=(*(n for s in work.steps for n in s.notes), *work.joined.notes),
        blockers=tuple(
            Note(reason=ConditionReason.TEMPLATE_REFUSED, message=f"the API server refuses the compile Job: {refusal}")
            for refusal in dict.fromkeys(work.refusals)
        ),
        overlays=(
            *overlays,
            *_conflict(observed, belongings, under_way=under_way),
            *pin_not_found(history, name=pin(model)),
            *heard.notes,
            *waits,
        ),
        withholding=withholding(observed, revision),
        settled=settled and revision.state == RevisionState.FAILED,
        pinned=held_back(history, revision, name=pin(model)),
        taken_back=taken_back_words(revision),
        instead=heard.instead,
    )
    status, announcements = assemble(
        model=model, revisions=history, targets=targets, standing=standing, heard=heard, now=observed.now,
        rebuild=rebuild_token(model), when_missing=when_missing(observed, installation, history),
    )  # fmt: skip
    announcements = (*news(revision=revision, previous=model.status.revisions), *announcements)
    stopping = {
        job.uid: job
        for job in (*belongings.superseded, *(j for s in work.steps for j in s.stop), *work.joined.stop)
        if not job.deleting
    }
    if not work.steps:
        # The revision is ready: what still runs of it cannot change it any more.
        running = (j for j in belongings.current if j.state == JobState.ACTIVE and not j.deleting)
        stopping |= {job.uid: job for job in running}
    times = [s.look_again_at for s in work.steps] + [work.joined.look_again_at]
    seconds = [max(0.0, (t - observed.now).total_seconds()) for t in times if t is not None]
    if work.refusals:
        seconds.append(_REFUSED_AGAIN_SECONDS)
    return ModelPlan(
        create=work.create,
        check=work.check,
        status=status,
        stop=tuple(stopping.values()),
        release=belongings.releasable(stopping=set(stopping)),
        announcements=announcements,
        look_again_seconds=min(seconds, default=None),
    )


def _conflict(observed: Observed, belongings: Belongings, *, under_way: bool) -> tuple[Note, ...]:
    """A Job of somebody else's has a name we need. Said for as long as the revision compiles under another one."""
    if belongings.foreign:
        foreign = ", ".join(sorted(belongings.foreign))
        message = f"a Job of the name Preheat needs is not Preheat's: {foreign}; delete it"
        return (Note(reason=ConditionReason.JOB_CONFLICT, message=message),)
    for condition in observed.model.status.conditions:
        said = condition.type == ConditionType.DEGRADED and condition.reason == ConditionReason.JOB_CONFLICT
        if under_way and said:
            return (Note(reason=ConditionReason.JOB_CONFLICT, message=condition.message),)
    return ()


def _recorded_targets(model: CompiledModel, want: Wanted) -> tuple[Target, ...]:
    """The recorded verdicts, if they are of the wanted revision: status holds those of the newest one only."""
    newest = model.status.revisions[0] if model.status.revisions else None
    return model.status.targets if newest is not None and newest.name == want.name else ()
