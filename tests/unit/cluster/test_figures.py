"""What the controller counts follows status, and is gone with the model."""

from __future__ import annotations

from preheat_operator.api.status import CompiledModelStatus
from preheat_operator.cluster.figures import Figures
from preheat_operator.cluster.keys import ModelKey
from unit.plan.pods import HOT, WRONG, pod
from unit.plan.test_notices import miss
from unit.plan.test_taken_back import FIRST, with_revisions

KEY = ModelKey("prod", "vision")
OF_MODEL = {"namespace": "prod", "model": "vision"}


def value(figures: Figures, name: str, **labels: str) -> float | None:
    return figures.registry.get_sample_value(name, OF_MODEL | labels)


def test_status_in_numbers() -> None:
    figures, world = Figures(), with_revisions(FIRST)
    nothing = CompiledModelStatus()
    world.served = [*(pod(f"m{n}", served=miss()) for n in range(3)), pod("h", served=HOT), pod("u")]
    world.settle()
    before = world.model.status
    figures.take(KEY, before=nothing, after=before)
    assert value(figures, "preheat_model_notice", reason="PodsMiss") == 1
    assert value(figures, "preheat_model_notice", reason="AnswersSlow") == 0
    assert {how: value(figures, "preheat_model_pods", how=how) for how in ("hot", "cold", "unknown", "wrong")} == {
        "hot": 1, "cold": 3, "unknown": 1, "wrong": 0,
    }  # fmt: skip
    assert value(figures, "preheat_model_taken_back") == 0
    world.served = [pod(f"w{n}", served=WRONG) for n in range(2)]
    world.settle()
    for _ in range(2):
        figures.take(KEY, before=before, after=world.model.status)
        before = world.model.status
    assert value(figures, "preheat_revisions_taken_back_total") == 1, "once"
    assert value(figures, "preheat_model_taken_back") == 1
    figures.take(ModelKey("prod", "other"), before=nothing, after=nothing)
    figures.forget(KEY)
    left = {sample.labels["model"] for metric in figures.registry.collect() for sample in metric.samples}
    assert left == {"other"}
