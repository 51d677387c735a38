"""What the controller counts for Prometheus: revisions that were taken back, pods of revisions, and what pods say.

Why it exists: a condition is read by people who look; an alert needs a number. Gauges are of models that are there, so
they are bounded by status; a model that is gone takes its series along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from preheat_operator.api.conditions import NOTICES
from preheat_operator.api.enums import RevisionState

if TYPE_CHECKING:
    from preheat_operator.api.status import CompiledModelStatus, RevisionServed
    from preheat_operator.cluster.keys import ModelKey

_OF_A_MODEL: Final = ("namespace", "model")
_HOW: Final = ("hot", "warm", "eager", "cold", "wrong", "crashed")


class Figures:
    """The figures of one controller, from zero when it starts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._taken_back = Counter(
            "preheat_revisions_taken_back", "Revisions that were taken back since the controller started.",
            _OF_A_MODEL, registry=self.registry,
        )  # fmt: skip
        self._withdrawn = Gauge(
            "preheat_model_taken_back", "Whether the model's newest revision was taken back: 1 or 0.",
            _OF_A_MODEL, registry=self.registry,
        )  # fmt: skip
        self._pods = Gauge(
            "preheat_model_pods", "Pods that run with a revision of the model, by how they say they are served.",
            (*_OF_A_MODEL, "how"), registry=self.registry,
        )  # fmt: skip
        self._notices = Gauge(
            "preheat_model_notice", "What pods of the model say that needs a person: 1 or 0.",
            (*_OF_A_MODEL, "reason"), registry=self.registry,
        )  # fmt: skip

    def take(self, key: ModelKey, *, before: CompiledModelStatus, after: CompiledModelStatus) -> None:
        """Note a model's status, as it is after it was before."""
        was = {r.name for r in before.revisions if r.state == RevisionState.TAKEN_BACK}
        taken = {r.name for r in after.revisions if r.state == RevisionState.TAKEN_BACK}
        self._taken_back.labels(*key).inc(len(taken - was))
        newest = after.revisions[0].name if after.revisions else None
        self._withdrawn.labels(*key).set(newest in taken)
        served = [r.served for r in after.revisions if r.served is not None]
        for how in _HOW:
            self._pods.labels(*key, how).set(sum(int(getattr(each, how)) for each in served))
        self._pods.labels(*key, "unknown").set(sum(_unknown(each) for each in served))
        said = {notice.reason for notice in after.notices}
        for reason in NOTICES:
            self._notices.labels(*key, reason.value).set(reason.value in said)

    def forget(self, key: ModelKey) -> None:
        """A model is gone."""
        for gauge in (self._taken_back, self._withdrawn, self._pods, self._notices):
            gauge.remove_by_labels({"namespace": key.namespace, "model": key.name})


def _unknown(served: RevisionServed) -> int:
    """Pods that have not said how they are served."""
    return max(0, served.pods - served.hot - served.warm - served.eager - served.cold)
