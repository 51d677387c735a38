"""What pods say that needs a person, and changes nothing by itself: each with a bound at which it is said, and a lower one
at which it is no longer.

Why it exists: a pod that misses or is slow has as often its neighbours, its traffic or its node to thank as the revision.
So nobody acts on it but a person, who must not be called, called off and called again by pods near a bound: what was
said stands until it is clearly over, and status remembers since when.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from preheat_operator.api.conditions import NOTICES, ConditionReason
from preheat_operator.api.enums import Verdict
from preheat_operator.api.status import Notice
from preheat_operator.plan import drift
from preheat_operator.plan.termination import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from preheat_operator.api.spec import CompiledModelSpec
    from preheat_operator.api.status import Revision, Target
    from preheat_operator.plan.watched import Witness

STEADY_SAID: Final = 2.0
STEADY_KEPT: Final = 1.5
"""Times the compile Job's median. A pod has traffic and neighbours, which the Job had not."""
AS_INTENDED: Final = frozenset({"Package", "Caches", "Rejected"})
HARDWARE: Final = frozenset({"CpuDiffers", "GpuDiffers"})
# Said elsewhere: as a revision that is taken back, as hardware, as a shape.
_OTHERS: Final = HARDWARE | {"PackageWrong", "CallNotCovered", "NoRevision"}
_MAX_MESSAGE: Final = 1024
_MAX_NODES: Final = 3


@dataclass(frozen=True, kw_only=True)
class Bound:
    """So many pods, and such a share of those that say anything of it."""

    pods: int
    share: Fraction

    def is_met(self, count: int, total: int) -> bool:
        """Whether `count` of `total` pods are enough."""
        return count >= self.pods and Fraction(count, max(total, count, 1)) >= self.share


MISSES: Final = (Bound(pods=2, share=Fraction(1, 5)), Bound(pods=1, share=Fraction(1, 10)))
SLOW: Final = (Bound(pods=2, share=Fraction(1, 2)), Bound(pods=1, share=Fraction(1, 4)))
"""At which it is said, and below which it is no longer said."""


def notices(
    *, spec: CompiledModelSpec, revision: Revision | None, targets: Sequence[Target], seen: Sequence[Witness],
    previous: Sequence[Notice], now: datetime,
) -> tuple[Notice, ...]:  # fmt: skip
    """What is to be said of the revision that pods of the newest image get. `targets` are its verdicts, if they are known."""
    before = {notice.reason: notice for notice in previous}
    mine = [w for w in seen if revision is not None and w.manifest == revision.manifest]
    said: dict[ConditionReason, str | None] = {
        ConditionReason.HARDWARE_NOT_COVERED: _hardware(mine),
        ConditionReason.PODS_MISS: _misses(mine, said=ConditionReason.PODS_MISS in before),
        ConditionReason.SHAPES_NOT_COVERED: drift.words(
            spec=spec, seen=[w.served for w in mine], said=ConditionReason.SHAPES_NOT_COVERED in before
        ),
        ConditionReason.FIRST_ANSWERS_SLOW: _first(mine, targets, said=ConditionReason.FIRST_ANSWERS_SLOW in before),
        ConditionReason.ANSWERS_SLOW: _steady(mine, said=ConditionReason.ANSWERS_SLOW in before),
    }
    result = []
    for reason in NOTICES:
        message = said[reason]
        if message is not None:
            former = before.get(reason.value)
            since = now if former is None else former.since
            result.append(Notice(reason=reason.value, since=since, message=plain(message, limit=_MAX_MESSAGE)))
    return tuple(result)


def _hardware(seen: Iterable[Witness]) -> str | None:
    """Pods on a node for which nothing was made, with what they found there."""
    lost = [w for w in seen if any(_reason(answer) in HARDWARE for answer in w.served.answers) and w.outcome != "hot"]
    if not lost:
        return None
    kinds: dict[str, list[Witness]] = {}
    for witness in sorted(lost, key=lambda w: (w.pod.node, w.pod.name)):
        kinds.setdefault(_facts(witness.served.node), []).append(witness)
    told = []
    for words, pods in list(kinds.items())[:_MAX_NODES]:
        nodes = list(dict.fromkeys(w.pod.node for w in pods if w.pod.node))
        where = f" on {', '.join(nodes[:_MAX_NODES])}{', …' if len(nodes) > _MAX_NODES else ''}" if nodes else ""
        told.append(f"{len(pods)}{where} ({words})")
    return (
        f"pods are on nodes that no hardware profile was compiled for, and start without an artifact: {'; '.join(told)}. Add "
        "a profile to spec.hardware that selects these nodes, or keep the pods off them"
    )


def _facts(node: Mapping[str, str]) -> str:
    words = {"machine": "{}", "cpuIsa": "CPU class {}", "gpu": "GPU {}"}
    return (
        ", ".join(text.format(node[name]) for name, text in words.items() if name in node)
        or "it does not say what it is"
    )


def _misses(seen: Sequence[Witness], *, said: bool) -> str | None:
    telling = [w for w in seen if w.served.answers]
    missing = [w for w in telling if _missed(w)]
    if not MISSES[said].is_met(len(missing), len(telling)):
        return None
    why = Counter(reason for w in missing for reason in _missed(w))
    # Ties by name: the same pods must always be told of in the same words.
    most = sorted(why.items(), key=lambda item: (-item[1], item[0]))[:3]
    reasons = ", ".join(f"{reason} ({count})" for reason, count in most)
    return (
        f"{len(missing)} of {len(telling)} pods do not use what was compiled for them: {reasons}; `preheat why POD` says "
        "more, docs/metrics.md what each word means"
    )


def _missed(witness: Witness) -> set[str]:
    return {_reason(answer) for answer in witness.served.answers} - AS_INTENDED - _OTHERS


def _reason(answer: str) -> str:
    return answer.partition("/")[2]


def _first(seen: Iterable[Witness], targets: Iterable[Target], *, said: bool) -> str | None:
    """A first call that alone takes longer than all of a fresh process did in the Job, from its start to its answer."""
    jobs = {
        f"{t.module}/{t.bucket}/{t.hardware}": float(t.first_answer)
        for t in targets
        if t.verdict == Verdict.KEPT and t.first_answer is not None
    }
    times = [{name: value / jobs[name] for name, value in w.served.first.items() if jobs.get(name)} for w in seen]
    telling = [of_pod for of_pod in times if of_pod]
    slow = [of_pod for of_pod in telling if max(of_pod.values()) > 1]
    if not SLOW[said].is_met(len(slow), len(telling)):
        return None
    name, worst = _worst(slow)
    return (
        f"{len(slow)} of {len(telling)} pods took longer for their first answer than a whole fresh process did in the compile "
        f"Job; {name} took up to {worst:.1f} times as long. The nodes may be slower or busier than the one it was compiled on"
    )


def _steady(seen: Iterable[Witness], *, said: bool) -> str | None:
    telling = [w.served.steady for w in seen if w.served.steady]
    bound = STEADY_KEPT if said else STEADY_SAID
    slow = [of_pod for of_pod in telling if max(of_pod.values()) >= bound]
    if not SLOW[said].is_met(len(slow), len(telling)):
        return None
    name, worst = _worst(slow)
    return (
        f"{len(slow)} of {len(telling)} pods answer at least {bound:g} times slower than the compile Job measured; {name} "
        f"up to {worst:.1f} times. The nodes may be slower or busier, or the pods may have fewer CPUs"
    )


def _worst(pods: Iterable[Mapping[str, float]]) -> tuple[str, float]:
    return max(
        ((name, value) for of_pod in pods for name, value in of_pod.items()), key=lambda item: (item[1], item[0])
    )
