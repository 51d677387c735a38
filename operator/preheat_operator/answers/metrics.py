"""What is counted, for Prometheus. Every label is from a closed list, or bounded in how many values it takes.

Namespaces come from tokens, so they are true. Models and shapes come from pods: of each only so many are told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from preheat_operator.answers.message import OTHER_SHAPE

if TYPE_CHECKING:
    from collections.abc import Hashable

    from preheat_operator.answers.message import Message

_SECONDS: Final = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_OTHER_MODEL: Final = "other"
MAX_MODELS_OF_A_NAMESPACE: Final = 100
MAX_MODELS: Final = 2000
MAX_SHAPES_OF_A_MODEL: Final = 16

REFUSALS: Final = ("token", "body", "rate", "unavailable")
"""Why a report was not taken: no good token, no report, too many, no answer from the API server."""


class Distinct:
    """Tells apart so many values of each group, and so many in all; the rest are one."""

    def __init__(self, *, of_a_group: int, in_all: int) -> None:
        self._of_a_group = of_a_group
        self._in_all = in_all
        self._seen: dict[Hashable, set[str]] = {}
        self._count = 0

    def value(self, group: Hashable, value: str, *, otherwise: str) -> str:
        """`value`, or `otherwise` when there are too many already."""
        seen = self._seen.get(group, set())
        if value in seen or value == otherwise:
            return value
        if len(seen) >= self._of_a_group or self._count >= self._in_all:
            return otherwise
        self._seen.setdefault(group, set()).add(value)
        self._count += 1
        return value


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._models = Distinct(of_a_group=MAX_MODELS_OF_A_NAMESPACE, in_all=MAX_MODELS)
        self._shapes = Distinct(of_a_group=MAX_SHAPES_OF_A_MODEL, in_all=MAX_MODELS * 4)
        of_a_model = ("namespace", "model")
        self._first = Counter(
            "preheat_first_answers", "First answers of processes, by how they were given and why.",
            (*of_a_model, "outcome", "reason"), registry=self.registry,
        )  # fmt: skip
        self._later = Counter(
            "preheat_changed_answers", "Later answers that were given by another bucket, or in another way.",
            (*of_a_model, "outcome", "reason"), registry=self.registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "preheat_first_answer_seconds", "Seconds of processes' first answers.",
            (*of_a_model, "outcome"), buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._bytes = Gauge(
            "preheat_artifact_bytes", "Bytes of the artifact that answered last.",
            (*of_a_model, "outcome"), registry=self.registry,
        )  # fmt: skip
        self._uncovered = Counter(
            "preheat_uncovered_calls", "Calls that no bucket was for, by the shapes of their tensors.",
            (*of_a_model, "shape"), registry=self.registry,
        )  # fmt: skip
        self._errors = Counter(
            "preheat_runtime_errors", "Faults of the runtime itself; the calls were answered all the same.",
            of_a_model, registry=self.registry,
        )  # fmt: skip
        self._wrong = Counter(
            "preheat_wrong_answers", "Packages that answered otherwise than eager, and are out of use in that process.",
            of_a_model, registry=self.registry,
        )  # fmt: skip
        self._reports = Counter("preheat_reports", "Reports that were taken.", ("namespace",), registry=self.registry)
        self._refused = Counter(
            "preheat_reports_refused", "Reports that were not taken, by why.", ("why",), registry=self.registry
        )
        for why in REFUSALS:
            self._refused.labels(why)

    def add(self, namespace: str, message: Message) -> None:
        """Count a report."""
        model = self._models.value(namespace, message.model, otherwise=_OTHER_MODEL)
        self._reports.labels(namespace).inc()
        for answer in message.answers:
            counter = self._first if answer.first else self._later
            counter.labels(namespace, model, answer.outcome, answer.reason).inc()
            if answer.first and answer.seconds is not None:
                self._seconds.labels(namespace, model, answer.outcome).observe(answer.seconds)
            if answer.size is not None:
                self._bytes.labels(namespace, model, answer.outcome).set(answer.size)
        if message.errors:
            self._errors.labels(namespace, model).inc(message.errors)
        if message.wrong:
            self._wrong.labels(namespace, model).inc(len(message.wrong))
        for shape, count in message.uncovered:
            told = self._shapes.value((namespace, model), shape, otherwise=OTHER_SHAPE)
            self._uncovered.labels(namespace, model, told).inc(count)

    def refuse(self, why: str) -> None:
        """Count a report that was not taken."""
        self._refused.labels(why).inc()
