"""What `spec.rollout` comes to for the workload as it is: whether its pods wait, and whether it is restarted.

Admission sees one pod and no workload, so what `Auto` means is decided here, from the Deployment itself, and told to
admission through status and index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from preheat_operator.api import names
from preheat_operator.api.conditions import ConditionReason
from preheat_operator.api.enums import Restart, RestartState, RevisionState, Suspend, WhenMissing, WorkloadKind
from preheat_operator.api.status import RevisionRestart
from preheat_operator.plan.objects import parse_time
from preheat_operator.plan.profile import Note

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from preheat_operator.api.spec import CompiledModelSpec
    from preheat_operator.api.status import Revision

_DEFAULT_PROGRESS_DEADLINE_SECONDS: Final = 600
#: Of the progress deadline: what is left is for pulling images and starting.
SHARE_OF_DEADLINE: Final = 0.8
_DEFAULT_MAX_SURGE: Final = "25%"


def when_missing(
    *, spec: CompiledModelSpec, workload: dict[str, Any] | None, had_ready: bool, gating: bool
) -> WhenMissing:
    """What pods do whose image has no ready revision: Cold, Wait or Fail.

    `had_ready`: the model has had a ready revision. `gating`: this installation can hold pods back.
    """
    asked = spec.rollout.when_missing
    if asked in (WhenMissing.COLD, WhenMissing.FAIL):
        return asked
    # While suspended nothing is going to be compiled, so there is nothing to wait for.
    if not gating or spec.suspend == Suspend.ENABLED:
        return WhenMissing.COLD
    if asked == WhenMissing.WAIT:
        return asked
    return WhenMissing.WAIT if had_ready and _deployment(spec) and surges(workload) else WhenMissing.COLD


def surges(workload: dict[str, Any] | None) -> bool:
    """Whether a Deployment makes new pods before it takes old ones away."""
    if workload is None:
        return False
    strategy = (workload.get("spec") or {}).get("strategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return False
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", _DEFAULT_MAX_SURGE)
    return str(surge).strip().removesuffix("%") not in ("", "0")


def notes(*, spec: CompiledModelSpec, workload: dict[str, Any] | None, gating: bool) -> tuple[Note, ...]:
    """What a person should know about pods that wait."""
    asked = spec.rollout.when_missing
    if asked == WhenMissing.WAIT and not gating:
        message = (
            "spec.rollout.whenMissing is Wait, but Preheat is installed without its server (the chart's value "
            "server.enabled), which releases pods while the controller is down: pods start cold instead"
        )
        return (Note(reason=ConditionReason.WAIT_UNAVAILABLE, message=message),)
    waits = asked == WhenMissing.WAIT or (asked == WhenMissing.AUTO and surges(workload))
    if not waits or workload is None or not gating or not _deployment(spec):
        return ()
    deadline = (workload.get("spec") or {}).get("progressDeadlineSeconds", _DEFAULT_PROGRESS_DEADLINE_SECONDS)
    seconds = spec.rollout.wait_timeout_seconds
    if not isinstance(deadline, int) or seconds <= SHARE_OF_DEADLINE * deadline:
        return ()
    name = spec.workload_ref.name if spec.workload_ref is not None else ""
    message = (
        f"pods may wait {seconds} s (spec.rollout.waitTimeoutSeconds), more than 0.8 of the {deadline} s after which "
        f"Deployment {name!r} calls its roll-out failed (progressDeadlineSeconds): lower the one or raise the other"
    )
    return (Note(reason=ConditionReason.WAIT_TOO_LONG, message=message),)


def restart(
    *, spec: CompiledModelSpec, revision: Revision, previous: Sequence[Revision], workload: dict[str, Any] | None,
    now: datetime,
) -> RevisionRestart | None:  # fmt: skip
    """The restart that this revision is worth, and whether it was asked of the workload; None when none is.

    It is due when pods of the same image got another revision until now: then the workload's template has not changed
    for it, and nothing but a restart brings it to them. `previous` are the recorded revisions, newest first.
    """
    current = revision.restart
    if revision.state != RevisionState.READY or spec.workload_ref is None:
        return current
    given = next((r for r in previous if r.state == RevisionState.READY and r.image == revision.image), None)
    if given is not None and given.name != revision.name:
        if spec.rollout.restart == Restart.ROLLOUT and given.manifest != revision.manifest:
            return RevisionRestart(since=now, state=RestartState.PENDING)
        return None
    if current is not None and current.state == RestartState.PENDING and restarted(workload, since=current.since):
        return current.model_copy(update={"state": RestartState.DONE})
    return current


def restarted(workload: dict[str, Any] | None, *, since: datetime) -> bool:
    """Whether a workload was restarted at `since` or later, by whomever."""
    template = ((workload or {}).get("spec") or {}).get("template") or {}
    text = ((template.get("metadata") or {}).get("annotations") or {}).get(names.ANNOTATION_RESTARTED_AT)
    at = parse_time(text)
    return at is not None and at >= since


def _deployment(spec: CompiledModelSpec) -> bool:
    return spec.workload_ref is not None and spec.workload_ref.kind == WorkloadKind.DEPLOYMENT
