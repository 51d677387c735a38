"""Finds the first cause, in the order in which things happen to a pod: labelled, admitted, fetched, started, answered.

Each step answers only when the pod got no further; so the explanation is about where it really ended.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from preheat_operator.api import names
from preheat_operator.explain import remedies
from preheat_runtime.reasons import CLASSES, class_of, unable_to_compile

if TYPE_CHECKING:
    from preheat_operator.explain.gathered import Gathered, Raw

UNKNOWN: Final = "unknown"
WAITING: Final = "waiting"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """How a pod was served, why, and what to do.

    Attributes:
        outcome: hot, warm, eager, cold, refused; waiting: it has not come that far; unknown: it cannot be told.
        cause: one word for it: of this module, a class of `preheat_runtime.reasons`, or a condition's reason.
        why: the same in words.
        remedy: what to do.
        notes: what else is worth knowing, a line each.
    """

    outcome: str
    cause: str
    why: str
    remedy: str
    notes: tuple[str, ...] = field(default=())


def explain(found: Gathered) -> Explanation:
    """The explanation of a pod."""
    for step in (_labelled, _admitted, _switched_off, _started, _recorded):
        explanation = step(found)
        if explanation is not None:
            return explanation
    return _unrecorded(found)


def _labelled(found: Gathered) -> Explanation | None:
    if found.label is None:
        why = f"the pod has no label {names.LABEL_MODEL}, so Preheat leaves it alone"
        return Explanation(outcome="cold", cause="NotLabelled", why=why, remedy=remedies.NOT_LABELLED)
    if found.labels.get(names.LABEL_INJECT) == names.INJECT_DISABLED:
        why = f"the pod has the label {names.LABEL_INJECT}: {names.INJECT_DISABLED}"
        return Explanation(outcome="cold", cause="InjectDisabled", why=why, remedy=remedies.INJECT_DISABLED)
    return None


def _admitted(found: Gathered) -> Explanation | None:
    if found.injected == names.INJECTED_YES:
        return None
    if not found.injected:
        why = "admission did not look at the pod: there was no CompiledModelIndex in its namespace, or no injection policy"
        return Explanation(outcome="cold", cause="NotSeen", why=why, remedy=remedies.NOT_SEEN, notes=_of_model(found))
    said = found.injected.removeprefix(names.INJECTED_NO_PREFIX)
    if found.gated:
        return _held("Gated", said, remedies.GATED, found)
    if found.manifest == names.MANIFEST_PENDING:
        return _held("MustBeReady", said, remedies.MUST_BE_READY, found)
    if found.waited and found.manifest == names.MANIFEST_NONE:
        why = f"it waited, and started without artifacts: {said}"
        return Explanation(
            outcome="cold", cause="WaitEnded", why=why, remedy=remedies.WAIT_ENDED, notes=_of_model(found)
        )
    cause, why, remedy = _not_injected(found, said)
    return Explanation(outcome="cold", cause=cause, why=why, remedy=remedy, notes=_of_model(found))


def _held(cause: str, why: str, remedy: str, found: Gathered) -> Explanation:
    return Explanation(outcome=WAITING, cause=cause, why=why, remedy=remedy, notes=_of_model(found))


def _not_injected(found: Gathered, said: str) -> tuple[str, str, str]:
    if said.startswith("there is no CompiledModel "):
        if found.model is None:
            return "NoModel", said, remedies.NO_MODEL
        return "NewerThanPod", "the CompiledModel was not there yet when the pod was created", remedies.REPLACE
    if said.startswith("injection is paused"):
        return "Paused", said, remedies.PAUSED
    if not said.startswith("nothing is ready for image "):
        return "NotInjectable", said, remedies.REFUSED
    return _nothing_ready(found)


def _nothing_ready(found: Gathered) -> tuple[str, str, str]:
    nothing = f"nothing was ready for image {found.image} when the pod was created"
    if found.model is None:
        return "NoModel", f"{nothing}, and now there is no CompiledModel {found.label}", remedies.NO_MODEL
    revision = found.revision_of(found.image)
    if revision is not None and revision.get("state") == "Ready":
        return "NewerThanPod", f"{nothing}; it became ready since", remedies.REPLACE
    if revision is not None and revision.get("state") == "TakenBack":
        return "RevisionTakenBack", f"{nothing}: {_taken_back(revision)}", remedies.TAKEN_BACK
    ready = found.conditions.get("Ready") or {}
    reason, message = str(ready.get("reason") or ""), str(ready.get("message") or "")
    if reason == "Suspended":
        return "Suspended", f"{nothing}: the CompiledModel is suspended", remedies.SUSPENDED
    if revision is None and ready.get("status") == "True":
        images = ", ".join(str(each.get("image")) for each in found.status.get("revisions") or []) or "none"
        return "ImageUnseen", f"{nothing}: what was compiled is for {images}", remedies.UNSEEN
    if not reason:
        return "NotLookedAt", f"{nothing}: the controller has not looked at the CompiledModel yet", remedies.WAIT
    progressing = (found.conditions.get("Progressing") or {}).get("status") == "True"
    return reason, f"{nothing}: {message or reason}", remedies.WAIT if progressing else remedies.CONDITION


def _taken_back(revision: Raw) -> str:
    told = revision.get("takenBack")
    what: Raw = told if isinstance(told, dict) else {}
    parts = [f"{what[key]} of {what.get('pods')} pods {words}" for key, words in _BLAME.items() if what.get(key)]
    why = " and ".join(parts) or "its pods were wrong or crashed"
    return f"revision {revision.get('name')} was taken back, since {why}"


_BLAME: Final = {"wrong": "reported wrong answers", "crashed": "crashed"}


def _switched_off(found: Gathered) -> Explanation | None:
    if found.variable("PREHEAT_DISABLE") in (None, "", "0"):
        return None
    why = "PREHEAT_DISABLE is set in the container"
    return Explanation(outcome="cold", cause="SwitchedOff", why=why, remedy=remedies.SWITCHED_OFF)


def _started(found: Gathered) -> Explanation | None:
    if found.unscheduled is not None:
        return _waits("Unscheduled", f"the pod has no node: {found.unscheduled}")
    kind, words = found.state(names.CONTAINER_FETCH, init=True)
    if kind in ("waiting", "running"):
        return _waits("Fetching", f"init container {names.CONTAINER_FETCH} is {kind}{_because(words)}")
    kind, words = found.state(found.container)
    # Logs of a container that ended are still there; of one that never began there are none.
    if kind in ("waiting", "unknown") and not found.records:
        return _waits("NotStarted", f"container {found.container} is {kind}{_because(words)}")
    return None


def _waits(cause: str, why: str) -> Explanation:
    return Explanation(outcome=WAITING, cause=cause, why=why, remedy=remedies.POD_WAITS)


def _because(words: str) -> str:
    return f" ({words})" if words else ""


def _recorded(found: Gathered) -> Explanation | None:
    first = [record for record in found.records if record.get("when") == "first-answer"]
    if not first:
        return None
    chosen = _to_explain(first)
    outcome, reason = str(chosen.get("outcome")), str(chosen.get("reason"))
    cause = chosen.get("reasonClass")
    # An older runtime does not say the class.
    cause = cause if isinstance(cause, str) and cause in CLASSES else class_of(outcome, reason)
    remedy = remedies.OF_REASON[cause]
    return Explanation(
        outcome=outcome, cause=cause, why=reason, remedy=remedy, notes=_of_records(found, first, chosen, cause)
    )


def _to_explain(first: list[Raw]) -> Raw:
    """The newest first answer that was not hot: a pod of many processes is as cold as its coldest."""
    rank = {"refused": 0, "cold": 1, "eager": 2, "warm": 3, "hot": 4}
    worst = min(rank.get(str(record.get("outcome")), 0) for record in first)
    return [record for record in first if rank.get(str(record.get("outcome")), 0) == worst][-1]


def _of_records(found: Gathered, first: list[Raw], chosen: Raw, cause: str) -> tuple[str, ...]:
    notes = []
    seconds, size = chosen.get("firstAnswerSeconds"), chosen.get("bytes")
    which = "/".join(str(chosen[key]) for key in ("module", "bucket", "hardware") if chosen.get(key))
    facts = [f"the first answer took {seconds} s" if seconds is not None else "", f"artifact {which}" if which else ""]
    facts.append(f"{size} bytes" if size is not None else "")
    notes.append(", ".join(fact for fact in facts if fact))
    unable = unable_to_compile(str(chosen.get("reason")))
    if unable is not None and unable != cause:
        notes.append(f"torch could not compile the call either; to let it: {remedies.TO_COMPILE[unable]}")
    if len(first) > 1:
        outcomes = [str(record.get("outcome")) for record in first]
        counts = ", ".join(f"{outcomes.count(each)} {each}" for each in dict.fromkeys(outcomes))
        notes.append(f"first answers in the log: {counts}")
    later = [record for record in found.records if record.get("when") == "changed"]
    for record in later[-3:]:
        outcome, reason = str(record.get("outcome")), str(record.get("reason"))
        notes.append(f"a later call was {outcome}: {reason}. {remedies.OF_REASON[class_of(outcome, reason)]}")
    if found.receipt is not None and chosen.get("outcome") not in ("hot", "warm"):
        notes.append(f"fetch: {_receipt(found.receipt)}")
    return (*(note for note in notes if note), *_of_faults(found), *found.unread)


def _receipt(receipt: Raw) -> str:
    parts = (receipt.get("outcome"), receipt.get("reason"), receipt.get("message"))
    return ", ".join(str(part) for part in parts if part)


def _of_faults(found: Gathered) -> tuple[str, ...]:
    return tuple(f"a fault of Preheat's: {fault}" for fault in found.faults[-3:])


_ISOLATED: Final = re.compile(r"-[a-zA-Z]*[IE][a-zA-Z]*")
#: In a command: PYTHONPATH set without what it was, or taken away.
_PATH_REPLACED: Final = re.compile(
    r"\bPYTHONPATH=(?!\S*\$\{?PYTHONPATH)\S*|\bunset PYTHONPATH\b|\benv (-\S+ )*(-i\b|--ignore-environment\b|-u ?PYTHONPATH\b)"
)


def _unrecorded(found: Gathered) -> Explanation:
    """There is no line of the runtime's: why not?"""
    cause, why, remedy = _why_no_record(found)
    notes = []
    if found.receipt is not None:
        notes.append(f"fetch: {_receipt(found.receipt)}")
    return Explanation(
        outcome=UNKNOWN, cause=cause, why=why, remedy=remedy, notes=(*notes, *_of_faults(found), *found.unread)
    )


def _why_no_record(found: Gathered) -> tuple[str, str, str]:
    if found.serving_log is None:
        return "LogUnreadable", f"the log of container {found.container} could not be read", remedies.LOGS
    if any(record.get("when") == "exit" for record in found.records):
        return "NeverCalled", "torch.compile was called, what it returned never was", remedies.NEVER_CALLED
    if found.loaded:
        why = "the runtime is loaded, and no compiled model has answered yet, or torch.compile is never called"
        return "NoRecord", why, remedies.NO_RECORD
    if found.variable("PREHEAT_LOG") == "off":
        return "LogOff", "no word from the runtime: PREHEAT_LOG=off", remedies.LOG_OFF
    return _why_not_loaded(found)


def _why_not_loaded(found: Gathered) -> tuple[str, str, str]:
    """The runtime says once that it is there, and has not: what in the pod's own words would explain that?"""
    none = "no word from the runtime"
    autoload = found.variable("TORCH_DEVICE_BACKEND_AUTOLOAD")
    if autoload not in (None, "1"):
        why = f"{none}: TORCH_DEVICE_BACKEND_AUTOLOAD={autoload}, so torch loads nothing"
        return "AutoloadOff", why, remedies.AUTOLOAD
    if isolated := _isolated(found.command):
        return "Isolated", f"{none}: Python is started with {isolated}, so it was never loaded", remedies.ISOLATED
    if replaced := _PATH_REPLACED.search(" ".join(found.command)):
        why = f"{none}: the container's command has {replaced.group().strip()!r}, so it was never loaded"
        return "PathReplaced", why, remedies.PATH_REPLACED
    return (
        "NotLoaded",
        f"{none}: no process that it could be loaded into has imported torch so far",
        remedies.NOT_LOADED,
    )


def _isolated(command: list[str]) -> str | None:
    """The option that keeps Python from PYTHONPATH, if it is started with one: options stand before the script."""
    words = [part for word in command for part in _parts(word)]
    at = next((i for i, word in enumerate(words) if re.search(r"(^|/)python[0-9.]*$", word)), None)
    if at is None:
        return None
    for word in words[at + 1 :]:
        if not word.startswith("-") or word in ("-m", "-c"):
            return None
        if _ISOLATED.fullmatch(word):
            return word
    return None


def _parts(word: str) -> list[str]:
    """The words of a command that is written as one, as for `sh -c`."""
    try:
        return shlex.split(word) if " " in word.strip() else [word]
    except ValueError:  # quotes that do not end
        return word.split()


def _of_model(found: Gathered) -> tuple[str, ...]:
    """What the CompiledModel says that is not well."""
    notes = []
    for kind, bad in (("Ready", "False"), ("Degraded", "True")):
        condition = found.conditions.get(kind) or {}
        if condition.get("status") == bad:
            notes.append(f"condition {kind}={bad}, {condition.get('reason')}: {condition.get('message')}")
    failed = [each for each in found.status.get("targets") or [] if each.get("verdict") in ("Failed", "NoCapacity")]
    for each in failed[:5]:
        target = f"{each.get('module')}/{each.get('bucket')}/{each.get('hardware')}"
        message = f": {each['message']}" if each.get("message") else ""
        notes.append(f"target {target}: {each.get('verdict')}, {each.get('reason')}{message}")
    return (*notes, *found.unread)
