"""What is counted, and that no pod can make more time series than allowed."""

from __future__ import annotations

from prometheus_client import generate_latest

from preheat_operator.answers.message import Answer, Message
from preheat_operator.answers.metrics import MAX_MODELS_OF_A_NAMESPACE, MAX_SHAPES_OF_A_MODEL, Distinct, Metrics


def hot(**changes: object) -> Answer:
    return Answer(**({"first": True, "outcome": "hot", "reason": "Package", "seconds": 0.2, "size": 9} | changes))  # type: ignore[arg-type]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_answers_are_counted_by_how_and_why() -> None:
    metrics = Metrics()
    metrics.add("prod", Message(model="vision", answers=(hot(), hot(), hot(outcome="cold", reason="TorchDiffers"))))
    metrics.add("prod", Message(model="vision", answers=(hot(first=False),), errors=2))
    labels = {"namespace": "prod", "model": "vision"}
    assert value(metrics, "preheat_first_answers_total", outcome="hot", reason="Package", **labels) == 2
    assert value(metrics, "preheat_first_answers_total", outcome="cold", reason="TorchDiffers", **labels) == 1
    assert value(metrics, "preheat_changed_answers_total", outcome="hot", reason="Package", **labels) == 1
    assert value(metrics, "preheat_first_answer_seconds_count", outcome="hot", **labels) == 2
    assert value(metrics, "preheat_first_answer_seconds_bucket", outcome="hot", le="0.1", **labels) == 0
    assert value(metrics, "preheat_first_answer_seconds_bucket", outcome="hot", le="0.3", **labels) == 2
    assert value(metrics, "preheat_artifact_bytes", outcome="hot", **labels) == 9
    assert value(metrics, "preheat_runtime_errors_total", **labels) == 2
    assert value(metrics, "preheat_reports_total", namespace="prod") == 2


def test_calls_are_counted_by_shape() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.add("prod", Message(model="vision", uncovered=(("float32[2]", 3), ("float32[4]", 1))))
    labels = {"namespace": "prod", "model": "vision"}
    assert value(metrics, "preheat_uncovered_calls_total", shape="float32[2]", **labels) == 6
    assert value(metrics, "preheat_uncovered_calls_total", shape="float32[4]", **labels) == 2


def test_refusals_are_there_from_the_start() -> None:
    metrics = Metrics()
    assert value(metrics, "preheat_reports_refused_total", why="token") == 0
    metrics.refuse("token")
    assert value(metrics, "preheat_reports_refused_total", why="token") == 1


def test_a_pod_cannot_make_series_without_end() -> None:
    metrics = Metrics()
    for number in range(500):
        metrics.add("prod", Message(model=f"m{number}", answers=(hot(),), uncovered=((f"float32[{number}]", 1),)))
        metrics.add("prod", Message(model="m0", uncovered=((f"float32[{number}]", 1),)))
    lines = generate_latest(metrics.registry).decode().splitlines()
    first = [line for line in lines if line.startswith("preheat_first_answers_total{")]
    assert len(first) == MAX_MODELS_OF_A_NAMESPACE + 1
    labels = {"namespace": "prod", "model": "other"}
    lost = 500 - MAX_MODELS_OF_A_NAMESPACE
    assert value(metrics, "preheat_first_answers_total", outcome="hot", reason="Package", **labels) == lost
    shapes = [line for line in lines if line.startswith("preheat_uncovered_calls_total{") and 'model="m0"' in line]
    assert len(shapes) == MAX_SHAPES_OF_A_MODEL + 1


def test_distinct_values_are_bounded_in_all_too() -> None:
    distinct = Distinct(of_a_group=2, in_all=3)
    told = [distinct.value(group, value, otherwise="other") for group in "ab" for value in "xyz"]
    assert told == ["x", "y", "other", "x", "other", "other"]
    assert distinct.value("a", "y", otherwise="other") == "y"
    assert distinct.value("c", "other", otherwise="other") == "other"
